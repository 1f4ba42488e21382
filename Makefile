# The two commands: `make demo` and `make test`. Each sets up what it needs and says what it does.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

BIN := bin
LAB := $(BIN)/theseus-lab
RUNS ?= 3
# One way to compile for programs and tests, so that no package is compiled twice.
export GOFLAGS := -buildvcs=false -trimpath
export CGO_ENABLED := 0

.PHONY: images images-lock release help demo demo-cilium demo-flags demo-mirror pi-day bench-loss bench-flags bench-scale bench-swarm fuzz test unit oracles judge lab-test build setup clean

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: setup build ## a real cluster moved from flannel to Calico under traffic, and the report
	$(LAB) demo --dir $(BIN)/demo

# setup then installs the compiler that Cilium calls
demo-cilium: export THESEUS_FULL := 1
demo-cilium: setup build ## a real cluster moved from flannel to Cilium under traffic, and the report (pods are created again; the first time, Cilium's build takes 7 minutes)
	$(LAB) demo --to cilium --dir $(BIN)/demo-cilium

demo-flags: setup build ## Calico's data plane switched to nftables and back on a real cluster, one node first, under traffic
	$(LAB) canary --dir $(BIN)/canary

demo-mirror: setup build ## a dozen names moved to a second cluster and back, the first one's network replaced meanwhile, under traffic
	$(LAB) mirror --dir $(BIN)/mirror

pi-day: setup build ## the outage of Pi-Day 2023 in a real cluster, and Theseus preventing it
	$(LAB) pi-day --dir $(BIN)/pi-day

bench-loss: export THESEUS_FULL := $(or $(THESEUS_FULL),$(if $(PAIRS),1))
bench-loss: setup build ## the usual swap, Calico's migration controller and Theseus, and what each loses (RUNS=1 for one run each; PAIRS=1: the other changes, which build Cilium first)
	$(LAB) bench-loss --runs $(RUNS) --dir $(BIN)/bench-loss $(if $(PAIRS),--pairs)

bench-flags: RUNS := 10
bench-flags: setup build ## Calico's data plane switched to nftables and back, 10 times each way by Theseus (RUNS), and by hand: lost and leaked
	$(LAB) bench-flags --runs $(RUNS) --dir $(BIN)/bench-flags

bench-scale: ## planning any change on 500 and on 5,000 nodes, writing and reading a plan, status and resume: time, memory, steps
	go test -c -o $(BIN)/plan.test ./internal/change/plan
	@export GOGC=70; cd internal/change/plan; for change in flannel-to-calico weave-to-calico bridge-to-calico calico-to-flannel \
		flannel-to-calico-adopt weave-to-calico-adopt bridge-to-calico-adopt flannel-to-calico-surge weave-to-calico-surge bridge-to-calico-surge \
		calico-upgrade calico-upgrade-bgp calico-upgrade-owned calico-to-nftables calico-to-pool calico-encapsulation calico-to-no-encapsulation \
		calico-mesh-to-reflectors calico-reflectors-to-mesh calico-reflectors-to-others; do for nodes in 500 5000; do \
		../../../$(BIN)/plan.test -test.run XXX -test.bench "Scale/$$change$$/$$nodes$$" -test.benchtime 1x | grep -E 'Scale|MiB'; done; done
	@cd internal/change/plan; for form in yaml json; do for nodes in 500 5000; do \
		../../../$(BIN)/plan.test -test.run XXX -test.bench "File/$$form$$/$$nodes$$" -test.benchtime 1x | grep -E 'File|MiB'; done; done
	go test -c -o $(BIN)/control.test ./internal/cli/control
	cd internal/cli/control && ../../../$(BIN)/control.test -test.run XXX -test.bench 'Status|Resume' -test.benchtime 1x

SWARM ?= 1000 5000
# What a swarm of more nodes takes is a tenth of what the lab took, for bytes, memory and writes.
bench-swarm: setup build ## a change of many nodes, which a model stands for, with real agents: time, memory and requests by verb, as a table (SWARM, numbers of nodes)
	@rm -f $(BIN)/swarm.md; failed=; for nodes in $(SWARM); do times=1; if [ $$nodes -gt 1000 ]; then times=0.1; fi; \
		$(LAB) swarm --nodes $$nodes --times $$times --timeout 12h --table $(BIN)/swarm.md --dir $(BIN)/swarm-$$nodes || failed="$$failed $$nodes"; done; \
		cat $(BIN)/swarm.md; if [ -n "$$failed" ]; then echo "did not reach its end:$$failed"; exit 1; fi

# Smaller inputs are not sought for longer than this many tries: that may take all of a minute, and sees nothing new.
FUZZTIME ?= 1m
FUZZFLAGS ?= -fuzzminimizetime 100x -parallel 1
FUZZJOBS ?= 2
fuzz: ## every fuzz target for a minute each (FUZZTIME), FUZZJOBS at a time, and how many inputs each saw
	@grep -rnoE '^func Fuzz[A-Za-z0-9]+' --include='*_test.go' internal lab/internal | sort | \
		sed -E 's,^(.*)/[^/]+:[0-9]+:func (.*)$$,\1 \2,' | xargs -P $(FUZZJOBS) -L 1 bash -c ' \
			module=.; case $$1 in lab/*) module=lab;; esac; result=ok; \
			said=$$(go -C $$module test -run "^$$" -fuzz "^$$2$$" -fuzztime $(FUZZTIME) $(FUZZFLAGS) $$PWD/$$1 2>&1) || result=FAILED; \
			echo "$$result $$1 $$2 $$(grep -oE "execs: [0-9]+" <<<"$$said" | tail -1)"; \
			if [ $$result = FAILED ]; then echo "$$said"; exit 1; fi' fuzz

test: setup build unit lab-test ## unit tests, and those in the lab (the long ones with THESEUS_FULL=1)

# Most tests wait, for a server, a node or a time to pass. So more packages are tested at once than there are processors.
BESIDE := -p 4

# The modules with tests that need no cluster. test/web drives the live page in chromium.
modules := lab release $(addprefix test/,acme calico-selector chart cloud cyclonus externaldns flagd health web)
packages-of-lab := ./internal/... ./cmd/...
# Go does not see when the chart or the golden files, outside of the module, change.
flags-of-test/chart := -count 1
flags-of-test/health := -count 1
flags-of-test/flagd := -v
before-test/web := THESEUS_AXE="$$(./axe.sh)" && export THESEUS_AXE &&

.PHONY: $(modules:%=unit-in-%)
$(modules:%=unit-in-%): unit-in-%:
	@echo "== unit tests in $*"
	cd $* && go vet ./... && $(before-$*) go test -timeout 10m $(flags-of-$*) $(or $(packages-of-$*),./...)

unit: ## the tests that need no cluster
	@echo "== unit tests"
	go vet ./...
	go test $(BESIDE) -timeout 10m ./...
	go test -v -run '^(TestOutrun|TestAdoptWeave)$$' ./internal/node
	go test -v -run '^TestInCluster$$' ./internal/change/plan
	$(MAKE) --no-print-directory -j 3 --output-sync=target $(modules:%=unit-in-%)
	@test/web/axe.sh --kept >/dev/null
	@[ -n "$${THESEUS_GAPS:-}" ] || echo "== NOT MEASURED without THESEUS_GAPS=20: gaps of pods that are moved there and back"
ifeq ($(THESEUS_FULL),1)
	$(MAKE) judge
	cd test/charts && go vet ./...
	cd release && THESEUS_FULL=1 go test -timeout 60m -run Full -v ./test
else
	@echo "== NOT TESTED without THESEUS_FULL=1: two whole releases of this commit compared, and go install of theseus; unit tests make"
	@echo "   the images with a small program, and go install theseus-agent"
	@echo "== NOT TESTED without THESEUS_FULL=1: the program that renders charts for fixtures (test/charts), and of moves with parked pods all"
	@echo "   but there and back, and what the kernel says of renames"
	@echo "== NOT TESTED without clang-19 and a lab that has built Cilium: that the programs of its image start"
	@if cmp -s <($(judged)) test/judged.sha256; then \
		echo "== NOT TESTED without THESEUS_FULL=1: the golden files of mirror config by kops, Cluster API and kubeadm, who judged these very files before (make oracles)"; \
	else echo "== golden files of mirror config, or their judges, are others than those of test/judged.sha256: make oracles keeps what is judged now"; $(MAKE) judge; fi
endif

# The golden files of mirror config are judged by the programs that they are for, which take ten minutes to compile. test/judged.sha256
# is of the golden files and judges that have passed: where neither has changed, neither has the judgement.
judged = find internal/mirror/config/testdata test/capi test/kops test/kubeadm -type f | LC_ALL=C sort | xargs sha256sum

oracles: judge ## kops, Cluster API and kubeadm judge the golden files of mirror config, and what they judged is kept
	$(judged) >test/judged.sha256

judge:
	cd test/capi && go vet ./... && go test -timeout 10m ./...
	cd test/kops && go vet ./... && go test ./... && go test -modfile=kops-1.31.mod ./...
	cd test/kubeadm && go vet ./... && go test -timeout 10m ./...

# The lab's programs of Kubernetes, for tests of an API server alone: the newest, and with THESEUS_FULL=1 an older one.
lab_kubes := "$${XDG_CACHE_HOME:-$$HOME/.cache}"/theseus-lab/bin
lab_kube = $$(ls -t $(lab_kubes)/kube/*/kube | head -1)
api_kubes = "$(lab_kube)"$(if $(filter 1,$(THESEUS_FULL)), "$$(ls -t $(lab_kubes)/kube-v*/*/kube-v* | head -1)")

lab-test: setup build ## the tests on real clusters (the long ones with THESEUS_FULL=1)
	@echo "== lab tests"
	$(LAB) build
ifeq ($(THESEUS_FULL),1)
	$(LAB) build --network flannel --kubernetes v1.34.4
endif
	@for kube in $(api_kubes); do \
	[ -x "$$kube" ] || { echo "== FAILED: no program of Kubernetes is built"; exit 1; }; \
	echo "== an API server of $$($$kube kube-apiserver --version)"; \
	THESEUS_KUBE=$$kube go test $(BESIDE) -v -run '^(TestAPIServer|TestArchiveAPIServer|TestFollowAPIServer|TestPage|TestRun|TestSignedAPIServer|TestNetworkAPIServer)$$' ./internal/run ./internal/run/benched ./internal/run/changes ./internal/run/controller ./internal/cluster/kube ./internal/cli/apply ./internal/cli/approve ./internal/cli/control ./internal/cli/rights ./internal/mirror/scratch ./internal/node/introduce ./cmd/theseus-controller || exit 1; done
ifeq ($(THESEUS_FULL),1)
	$(LAB) build --network calico-typha --calico v3.28.5,v3.30.1
	$(LAB) build --network cilium
	cd lab && go test -v -run '^TestCiliumToolsRun$$' ./internal/image
	cd test/certmanager && go vet ./...
	THESEUS_KUBE=$(lab_kube) go test -v -run '^TestInCluster$$' ./internal/change/plan
	THESEUS_WEAVE="$${XDG_CACHE_HOME:-$$HOME/.cache}"/theseus-lab/bin go test -v -run '^TestAdoptWeave$$' ./internal/node
else
	@echo "== NOT TESTED without THESEUS_FULL=1: Kubernetes v1.34.4 (its build takes ten minutes), adoption to its end with pods that are parked, taken back from its end, harmed, and from a bridge, recreation that is killed ten times, and taken back,"
	@echo "   policy verdicts against a real Calico, translated policies on a real Calico and a real Cilium, the certificates of a real cert-manager, rollouts of Calico's flags, in its configuration and in the environment, of its data planes, and of Cilium's flags, the outage of Pi-Day 2023, labels of BGP that go in the middle, a BIRD that hangs, route reflectors,"
	@echo "   nodes replaced by surge, pods moved to another pool, VXLAN and back, the ways from Weave Net, from kindnet (with a program in the place of its daemon), from kube-router, from Canal and from a plain bridge, from Calico to flannel and from flannel to Cilium, there and back, agents that do not start, second and unknown networks, nodes with other folders of CNI files, labs on Cilium, alone and next to flannel (its build takes fifteen minutes of CPU time), on Weave Net, on kindnet, on kube-router, on Canal and on a plain bridge, nodes that join, restart or are upgraded in the middle, two mirrored clusters in one plan, a plan that is handed over to the controller, whose chart is upgraded, whose node loses power, whose uninstall is refused, whose cluster is frozen and whose Service of the API server is cut off meanwhile, whose chart is upgraded to a controller that cannot read the journal, agents that start without that Service, plans for 5,000 nodes in a real API server,"
	@echo "   a Change that is edited before and during its run, a node of a swarm that loses packets, a change that is rehearsed on a copy of a cluster, one that is divided into windows, a benchmark of a network, a Prometheus that scrapes the controller or a rollout, a guard whose new pods get no network, one without a command, guards of a change of kube-proxy, of a reboot, of a swap and an upgrade by hand, and on an unknown network, a comparison of networks,"
	@echo "   and the upgrades of Calico, back by another plan, and with a stand-in for its operator, by which it comes too"
endif
ifeq ($(THESEUS_FULL),1)
	@$(call labs,lab-test,./test/...)
else
	@failed=0; ( $(call labs,lab-test,$(labs-alone)) ) || failed=1; \
		echo "== two lab tests at a time: those of the second row begin with \"| \""; \
		( ( $(call labs,lab-test-2,$(labs-second)) ) 2>&1 | sed -u 's/^/| /' ) & second=$$!; \
		( $(call labs,lab-test-1,$(labs-first)) ) || failed=1; wait $$second || failed=1; exit $$failed
endif

# labs runs the tests of packages on real clusters, one after the other. The output of all is in a file.
labs = (cd lab && go test -timeout 120m -p 1 -count 1 -v $(2)) 2>&1 | tee $(BIN)/$(1).log || { echo "== FAILED (all of it: $(BIN)/$(1).log)"; \
	grep -E '^ *[a-z_]+\.go:[0-9]+: |^ *--- FAIL|^panic: |^ *Test[A-Za-z]+: (error|hint|note|\$$)' $(BIN)/$(1).log | grep -E -B100 -- '--- FAIL|^panic: ' | cut -c1-300; exit 1; }
# The lab's own tests compare the machine before and after. Then two clusters at a time: most of a lab test is waiting.
labs-alone := ./test
labs-second := $(addprefix ./test/,badinput flags mirror policy swarm upgrade surge)
labs-first = $(filter-out $(labs-alone) $(labs-second),$(patsubst lab/%/,./%,$(sort $(dir $(wildcard lab/test/*/*_test.go)))))

build: ## bin/theseus, bin/theseus-agent, bin/theseus-lab
	@echo "== building theseus"
	CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o $(BIN)/ ./cmd/...
	cd lab && CGO_ENABLED=0 go build -trimpath -o ../$(BIN)/ ./cmd/theseus-lab

# Images and releases are made of the commit that HEAD names. They need git, apt and dpkg-deb; no container engine, and no root.
RELEASE := go run ./cmd/theseus-release --repository ..
LIMITS := $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(PLATFORM),--platform $(PLATFORM))

images: ## bin/images: an OCI layout with the images of the commit, for amd64 and arm64 (VERSION, REGISTRY, PLATFORM)
	@echo "== making images"
	cd release && $(RELEASE) images $(if $(VERSION),--version $(VERSION)) $(LIMITS) --dir ../$(BIN)/images

images-lock: ## release/debian.lock: the newest packages of Debian that the images need
	cd release && $(RELEASE) lock

release: ## bin/release: archives of theseus, images, checksums, SBOMs and a krew manifest (VERSION=v0.2.0, PLATFORM=linux/amd64 for a quick one)
	@test -n "$(VERSION)" || { echo "error: no version is named"; echo "hint: make release VERSION=v0.2.0"; exit 2; }
	@echo "== making the release $(VERSION)"
	cd release && $(RELEASE) release $(VERSION) $(LIMITS) --dir ../$(BIN)/release

setup: ## Debian packages that the lab's nodes run
	@./lab/install.sh

clean: ## remove what was built here (not the caches)
	rm -rf $(BIN)
