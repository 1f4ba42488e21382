package network

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func params(modules func(component, module string) (string, error)) Params {
	return Params{
		PodCIDR:     netip.MustParsePrefix("198.19.16.0/20"),
		NodePodCIDR: netip.MustParsePrefix("198.19.17.0/24"),
		ServiceCIDR: netip.MustParsePrefix("198.18.64.0/21"),
		DNS:         netip.MustParseAddr("198.18.64.10"),
		Modules:     modules,
	}
}

// source is a module directory with one file.
func source(t *testing.T, name, content string) func(string, string) (string, error) {
	dir := t.TempDir()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return func(string, string) (string, error) { return dir, nil }
}

const calicoExcerpt = `
            # - name: CALICO_IPV4POOL_CIDR
            #   value: "192.168.0.0/16"
            - name: CALICO_IPV4POOL_VXLAN
              value: "CrossSubnet"
            - name: CALICO_IPV6POOL_VXLAN
              value: "CrossSubnet"
            - name: FELIX_HEALTHENABLED
              value: "true"
`

const calicoAdapted = `
            - name: CALICO_IPV4POOL_CIDR
              value: "198.19.16.0/20"
            - name: CALICO_IPV4POOL_VXLAN
              value: "Always"
            - name: CALICO_IPV6POOL_VXLAN
              value: "CrossSubnet"
            - name: FELIX_DebugSkipCTLBCleanup
              value: "true"
            - name: FELIX_HEALTHENABLED
              value: "true"
`

func TestCalicoIsAdapted(t *testing.T) {
	got, err := Manifest("calico", params(source(t, "manifests/calico-vxlan.yaml", calicoExcerpt)))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != calicoAdapted {
		t.Errorf("got:\n%s\nwant:\n%s", got, calicoAdapted)
	}
}

func TestCalicoWithBGPHasNoTunnels(t *testing.T) {
	const tunnel = "            - name: CALICO_IPV4POOL_IPIP\n              value: \"Always\"\n"
	got, err := Manifest(CalicoBGP, params(source(t, "manifests/calico.yaml", tunnel+calicoExcerpt)))
	if err != nil {
		t.Fatal(err)
	}
	if want := "- name: CALICO_IPV4POOL_IPIP\n              value: \"Never\"\n"; strings.Count(string(got), want) != 1 {
		t.Errorf("want %q once in:\n%s", want, got)
	}
}

// TestCanalIsAdapted: flannel's agent is the one that the lab builds.
func TestCanalIsAdapted(t *testing.T) {
	const excerpt = `      "Network": "10.244.0.0/16",
          image: docker.io/flannel/flannel:v0.24.4
            - name: FELIX_HEALTHENABLED
`
	got, err := Manifest(Canal, params(source(t, "manifests/canal.yaml", excerpt)))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"Network": "198.19.16.0/20"`, "image: ghcr.io/flannel-io/flannel:v0.28.4\n",
		"FELIX_DebugSkipCTLBCleanup"} {
		if strings.Count(string(got), want) != 1 {
			t.Errorf("want %q once in:\n%s", want, got)
		}
	}
}

// TestReflectors holds that the nodes' marks are what the peerings pick reflectors by.
func TestReflectors(t *testing.T) {
	peers, err := Manifest(Peers, Params{})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(peers), "has("+MasterLabel+")") != 4 {
		t.Errorf("the peerings go by another label than %s:\n%s", MasterLabel, peers)
	}
	reflectors := 0
	for n := 1; n <= 5; n++ {
		labels, annotations := NodeMarks(CalicoBGP, n)
		_, master := labels[MasterLabel]
		if master != (annotations["projectcalico.org/RouteReflectorClusterID"] != "") {
			t.Errorf("node %d is labelled %v and annotated %v", n, labels, annotations)
		}
		if master {
			reflectors++
		}
	}
	if reflectors != 3 {
		t.Errorf("%d reflectors, want 3", reflectors)
	}
	if labels, annotations := NodeMarks("calico", 1); labels != nil || annotations != nil {
		t.Errorf("a node of another network has %v and %v", labels, annotations)
	}
}

func TestWeaveIsAdapted(t *testing.T) {
	const excerpt = `
              command:
                - /home/weave/launch.sh
              env:
                - name: HOSTNAME
              image: 'weaveworks/weave-kube:latest'
              imagePullPolicy: Always
              image: 'weaveworks/weave-npc:latest'
              imagePullPolicy: Always
`
	const adapted = `
              command:
                - /home/weave/launch.sh
              env:
                - name: IPALLOC_RANGE
                  value: "198.19.16.0/20"
                - name: WEAVE_NO_FASTDP
                  value: "1"
                - name: CHECKPOINT_DISABLE
                  value: "1"
                - name: HOSTNAME
              image: 'docker.io/weaveworks/weave-kube:2.6.5'
              imagePullPolicy: IfNotPresent
              image: 'docker.io/weaveworks/weave-npc:2.6.5'
              imagePullPolicy: IfNotPresent
`
	got, err := Manifest("weave", params(source(t, "prog/weave-kube/weave-daemonset-k8s-1.11.yaml", excerpt)))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != adapted {
		t.Errorf("got:\n%s\nwant:\n%s", got, adapted)
	}
}

// TestCiliumIsRendered holds what Helm is asked to render, and that the user's values come after the lab's.
func TestCiliumIsRendered(t *testing.T) {
	helm := filepath.Join(t.TempDir(), "helm")
	if err := os.WriteFile(helm, []byte("#!/bin/sh\nprintf '%s\\n' \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	given := params(func(component, module string) (string, error) { return "/src/" + component, nil })
	given.Program = func(string) (string, error) { return helm, nil }
	given.Kubernetes, given.Values = "v1.36.3", []string{"operator.replicas=2"}
	rendered := func() string {
		t.Helper()
		got, err := Manifest(Cilium, given)
		if err != nil {
			t.Fatal(err)
		}
		return string(got)
	}
	proxied := rendered()
	for _, want := range []string{
		"template\ncilium\n/src/cilium-v1.20.2/install/kubernetes/cilium\n", "--kube-version\nv1.36.3\n",
		"\nipam.operator.clusterPoolIPv4PodCIDRList={198.19.16.0/20}\n", "\nhubble.enabled=false\n",
	} {
		if !strings.Contains(proxied, want) {
			t.Errorf("want %q in:\n%s", want, proxied)
		}
	}
	if !strings.HasSuffix(proxied, "\n--set\noperator.replicas=2\n") ||
		strings.Contains(proxied, "kubeProxyReplacement") {
		t.Errorf("beside kube-proxy, and with a value of the user's:\n%s", proxied)
	}
	given.WithoutProxy, given.APIServer = true, netip.MustParseAddrPort("198.18.0.10:6443")
	if want, got := "kubeProxyReplacement=true\n--set\nk8sServiceHost=198.18.0.10\n--set\nk8sServicePort=6443\n",
		rendered(); !strings.Contains(got, want) {
		t.Errorf("in place of kube-proxy: want %q in:\n%s", want, got)
	}
	if err := os.WriteFile(helm, []byte("#!/bin/sh\necho 'Error: no such value' >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Manifest(Cilium, given); err == nil ||
		!strings.Contains(err.Error(), "render Cilium's chart: exit status 1: Error: no such value") {
		t.Errorf("Helm's own word is lost: %v", err)
	}
}

// TestFlannelMigrationIsUpstreams holds that Calico's own way over from flannel is played as it is: but for the
// line that the lab's build of Felix needs, nothing is changed.
func TestFlannelMigrationIsUpstreams(t *testing.T) {
	const env = "\n            - name: FELIX_HEALTHENABLED\n"
	got, err := Manifest("flannel-migration", params(source(t, "manifests/flannel-migration/calico.yaml", env)))
	if want := "\n            - name: FELIX_DebugSkipCTLBCleanup\n              value: \"true\"" + env; err != nil ||
		string(got) != want {
		t.Errorf("calico.yaml: got %v:\n%s\nwant:\n%s", err, got, want)
	}
	const job = "kind: Job\n"
	got, err = Manifest("flannel-migration-job",
		params(source(t, "manifests/flannel-migration/migration-job.yaml", job)))
	if err != nil || string(got) != job {
		t.Errorf("migration-job.yaml: got %v:\n%s\nwant:\n%s", err, got, job)
	}
}

func TestFlannelIsAdaptedAndGetsAPolicyController(t *testing.T) {
	const excerpt = `"Network": "10.244.0.0/16",
image: ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel1
`
	got, err := Manifest("flannel", params(source(t, "Documentation/kube-flannel.yml", excerpt)))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"Network": "198.19.16.0/20",`,
		"flannel-cni-plugin:v0.9.1\n",
		"--service-cluster-ip-range=198.18.64.0/21\n",
	} {
		if strings.Count(string(got), want) != 1 {
			t.Errorf("want %q once in:\n%s", want, got)
		}
	}
}

// TestFolders: manifests write to the folders that the nodes' runtime reads.
func TestFolders(t *testing.T) {
	const excerpt = `"Network": "10.244.0.0/16",
image: ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel1
        - mountPath: /opt/cni/bin
        hostPath:
          path: /opt/cni/bin
        hostPath:
          path: /etc/cni/net.d
`
	p := params(source(t, "Documentation/kube-flannel.yml", excerpt))
	p.ConfDir, p.BinDir = "/srv/net.d", "/srv/cni/bin"
	got, err := Manifest("flannel-alone", p)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"- mountPath: /opt/cni/bin\n", "  path: /srv/cni/bin\n", "  path: /srv/net.d\n"} {
		if strings.Count(string(got), want) != 1 {
			t.Errorf("want %q once in:\n%s", want, got)
		}
	}
	const installer = "            - name: CNI_CONF_NAME\n"
	p.Modules = source(t, "manifests/calico-vxlan.yaml", calicoExcerpt+installer)
	for applied, want := range map[bool]string{false: calicoAdapted + installer,
		true: calicoAdapted + "            - name: CNI_NET_DIR\n              value: /srv/net.d\n" + installer} {
		p.Applied = applied
		if got, err := Manifest("calico", p); err != nil || string(got) != want {
			t.Errorf("%v; got:\n%s\nwant:\n%s", err, got, want)
		}
	}
	if got := NodeFiles("bridge", p)[0].Path; got != "/srv/net.d/10-bridge.conflist" {
		t.Errorf("the bridge's file is %s", got)
	}
}

func TestKubeRouterIsReleased(t *testing.T) {
	const excerpt = `
             "isDefaultGateway":true,
      containers:
      - name: kube-router
        image: docker.io/cloudnativelabs/kube-router
        imagePullPolicy: Always
        args:
        - --run-service-proxy=false
      initContainers:
      - name: install-cni
        image: docker.io/cloudnativelabs/kube-router
        imagePullPolicy: Always
`
	got, err := Manifest(KubeRouter, params(source(t, "daemonset/kubeadm-kuberouter.yaml", excerpt)))
	if err != nil {
		t.Fatal(err)
	}
	if text := string(got); strings.Count(text, "kube-router:v1.5.1\n        imagePullPolicy: IfNotPresent") != 2 ||
		!strings.Contains(text, "--run-service-proxy=false\n        - --service-cluster-ip-range=") ||
		!strings.Contains(text, `"hairpinMode":true,`) {
		t.Errorf("it is\n%s", text)
	}
}

func TestOwnManifestsAreWhole(t *testing.T) {
	for _, part := range []string{"coredns", Firewall, Kindnet} {
		got, err := Manifest(part, params(nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, left := range []string{"SERVICE_CIDR", "DNS_ADDRESS", "POD_CIDR"} {
			if strings.Contains(string(got), left) {
				t.Errorf("%s: %s was not filled in", part, left)
			}
		}
		for _, document := range strings.Split(string(got), "\n---\n") {
			if strings.Count(document, "\nkind: ") != 1 || !strings.Contains(document, "\n  name: ") {
				t.Errorf("%s: a document without kind or name:\n%s", part, document)
			}
		}
	}
}

func TestWhatCannotBeDeployed(t *testing.T) {
	away := func(string, string) (string, error) { return "", errors.New("no proxy") }
	for _, test := range []struct {
		name, network string
		params        Params
		want          string
	}{
		{"unknown", "weve", params(nil), `there is no network "weve"`},
		{"no source", "calico", params(nil), "no source was given"},
		{"source out of reach", "calico", params(away), "no proxy"},
		{"phrase gone", "calico", params(source(t, "manifests/calico-vxlan.yaml", "kind: DaemonSet")),
			"CALICO_IPV4POOL_CIDR"},
		{"phrase twice", "calico", params(source(t, "manifests/calico-vxlan.yaml", calicoExcerpt+calicoExcerpt)),
			"2 times"},
		{"no pod CIDR", "flannel", Params{}, "pod CIDR"},
		{"no pod CIDR for Weave Net", "weave", Params{}, "pod CIDR"},
		{"no DNS address", "coredns", Params{}, "address"},
		{"no pod CIDR for Cilium", "cilium", Params{}, "pod CIDR"},
		{"no source of Cilium", "cilium", params(nil), "neither was given"},
		{"no Service CIDR", Firewall, Params{}, "CIDR of Services"},
		{"no Service CIDR of the network", KubeRouter, Params{}, "CIDR of Services"},
		{"no source of kube-router", KubeRouter, params(nil), "no source was given"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Manifest(test.network, test.params)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %d bytes and the error %v; want one that says %q", len(got), err, test.want)
			}
		})
	}
}

func TestBridgeConf(t *testing.T) {
	files := NodeFiles("bridge", params(nil))
	if len(files) != 1 {
		t.Fatalf("got %d files, want 1", len(files))
	}
	var conf struct {
		Plugins []struct {
			Type string
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal(files[0].Content, &conf); err != nil {
		t.Fatal(err)
	}
	if got := conf.Plugins[0].IPAM.Ranges[0][0].Subnet; got != "198.19.17.0/24" {
		t.Errorf("the node hands out %s; want its own part", got)
	}
	if files := NodeFiles("flannel", params(nil)); files != nil {
		t.Errorf("flannel wants %v on the nodes beforehand; it brings its files itself", files)
	}
}
