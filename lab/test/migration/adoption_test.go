package migration

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// TestAdopt moves a cluster under traffic by adoption: the same pods, with their addresses, never restarted, and
// nothing lost. Pods that start meanwhile are like all others, and one that cannot be adopted is made again. Then a pod
// is deleted as ever, and its successor gets an address of the same range.
func TestAdopt(t *testing.T) {
	rigtest.Full(t, "running pods moved from flannel to Calico")
	testAdopt(t, func(*scenario.Rig) func() { return func() {} })
}

// TestAdoptParked does the same as on kernels that rename no interface in use.
func TestAdoptParked(t *testing.T) {
	rigtest.Full(t, "running pods moved from flannel to Calico by agents that park them, to the end "+
		"(TestAdoptBack does so there and back)")
	testAdopt(t, func(rig *scenario.Rig) func() { return park(t, rig) })
}

func testAdopt(t *testing.T, prepare func(*scenario.Rig) (prepared func())) {
	rig := newRig(t, "adopt", 3)
	rig.Strategy, rig.Outside = "adopt", true
	prepared := prepare(rig)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	guests := invite(t, rig)
	odd := startUnadoptable(t, rig)
	former := odd()
	before := podsOf(t, rig)
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(plan); err != nil || !strings.Contains(string(text), "it has several interfaces") {
		t.Errorf("%v; the plan does not say why a pod cannot be adopted:\n%s", err, text)
	}
	births := give(t, rig, guests.second)
	run := rigtest.Start(t, rig, "state", "apply", plan, "--yes")
	run.Until("Use Calico for new pods on ")
	prepared()
	run.Ends(0)
	mustLoseNothing(t, rig, "after the adoption")
	births.end()
	if now := odd(); now == former {
		t.Errorf("the pod that cannot be adopted is the one that it was: %s", now)
	}
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	mustServeCalico(t, rig, "state")
	mustTellOfMoves(t, rig)
	for _, component := range []string{"containerd", "kubelet"} { // what they remember of pods is what they find
		if out, err := exec.Command(rig.Lab, "node", "kill", "--name", rig.Name, "--component", component,
			rig.NodeNames()[0]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	mustLoseNothing(t, rig, "after containerd and kubelet were killed")
	guests.leave()
	mustBeSamePods(t, before, podsOf(t, rig))

	if _, err := rig.Kubectl(t.Context(), nil, "-n", workload.Namespace, "delete", "pod",
		"guest-1", "guest-2"); err != nil {
		t.Fatal(err)
	}
	rigtest.NothingOn(t, rig, "what the former network held, or a pod's port,",
		`ls /var/lib/cni/networks/* 2>/dev/null | grep -E '^[0-9]+[.]'; iptables-save | grep -wE '`+guestPorts+
			`'; nft list ruleset | grep -wE '`+guestPorts+`'; true`)
	if _, err := rig.Kubectl(t.Context(), nil, "-n", workload.Namespace, "delete", "pod", "db-0"); err != nil {
		t.Fatal(err)
	}
	if _, err := rig.Kubectl(t.Context(), nil, "-n", workload.Namespace, "wait", "--for=condition=Ready", "pod/db-0",
		"--timeout=60s"); err != nil {
		t.Fatal(err)
	}
	mustHoldNoMore(t, rig)
	mustStartAfresh(t, rig, rig.NodeNames()[1])
	mustHoldNoMore(t, rig)
}

// startUnadoptable makes a pod that says of itself that it has another interface. The returned function says which pod
// that is.
func startUnadoptable(t *testing.T, rig *scenario.Rig) (which func() string) {
	t.Helper()
	kubectl := func(stdin io.Reader, args ...string) string {
		t.Helper()
		out, err := rig.Kubectl(t.Context(), stdin, append([]string{"-n", "odd"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	kubectl(strings.NewReader(oddDeployment), "apply", "-f", "-")
	return func() string {
		t.Helper()
		kubectl(nil, "rollout", "status", "deployment/odd", "--timeout=60s")
		return kubectl(nil, "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}")
	}
}

const oddDeployment = `
apiVersion: v1
kind: Namespace
metadata: {name: odd}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: odd, namespace: odd}
spec:
  selector: {matchLabels: {app: odd}}
  template:
    metadata: {labels: {app: odd}, annotations: {k8s.v1.cni.cncf.io/networks: another}}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 1
      containers:
        - name: odd
          image: theseus.dev/workload:lab
          imagePullPolicy: IfNotPresent
          resources: {requests: {cpu: 5m, memory: 8Mi}}
          args: [serve, "--http=:8080"]
`

// mustHoldNoMore demands that soon there no longer exists than what the pods that are there have: addresses that
// Calico has given away, those of its tunnels besides; interfaces on the nodes; and what the runtime remembers.
func mustHoldNoMore(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		out, err := rig.Kubectl(t.Context(), nil, "get", "pods", "-A", "-o",
			`jsonpath={range .items[*]}pod {.spec.hostNetwork}{"\n"}{end}`)
		if err != nil {
			t.Fatal(err)
		}
		pods := strings.Count(out, "pod \n")
		handles, err := rig.Kubectl(t.Context(), nil, "get", "ipamhandles.crd.projectcalico.org", "-o", "name")
		if err != nil {
			t.Fatal(err)
		}
		var links, remembered []string
		for _, node := range rig.NodeNames() {
			for script, found := range map[string]*[]string{"ip -br link show type veth | grep ^cali; true": &links,
				"ls /var/lib/cni/results | grep -- -eth0$; true": &remembered} {
				out, err := rig.OnNode(t.Context(), node, "sh", "-c", script)
				if err != nil {
					t.Fatal(err)
				}
				*found = append(*found, slices.Collect(strings.Lines(out))...)
			}
		}
		if len(strings.Fields(handles)) == pods+len(rig.NodeNames()) && len(links) == pods && len(remembered) == pods {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there are %d pods and %d tunnels, and these addresses, interfaces and memories:\n%s%s%s",
				pods, len(rig.NodeNames()), handles, links, remembered)
		}
	}
}

// mustStartAfresh cuts a node's power. Its pods come up again on Calico alone, and nothing of the former network with
// them.
func mustStartAfresh(t *testing.T, rig *scenario.Rig, node string) {
	t.Helper()
	pods := func() map[string]string { // name to the containers of those that are Ready
		out, err := rig.Kubectl(t.Context(), nil, "get", "pods", "-A", "--field-selector", "spec.nodeName="+node, "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} {.status.containerStatuses[*].containerID}{"\n"}{end}`)
		if err != nil {
			t.Fatal(err)
		}
		ready := map[string]string{}
		for line := range strings.Lines(out) {
			name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			ready[name] = strings.TrimPrefix(rest, "True ")
			if ready[name] == rest {
				ready[name] = "" // not Ready
			}
		}
		return ready
	}
	before := pods()
	for _, verb := range []string{"kill", "start"} {
		if out, err := exec.Command(rig.Lab, "node", verb, "--name", rig.Name, node).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(time.Second) {
		var missing []string
		for name, containers := range pods() {
			if containers == "" || containers == before[name] {
				missing = append(missing, name)
			}
		}
		if len(missing) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s had no power, these are not there again: %v", node, missing)
		}
	}
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	if kept, err := rig.OnNode(t.Context(), node, "ip", "address", "show", "dev", "lo"); err != nil ||
		strings.Contains(kept, "lo:theseus") {
		t.Errorf("on %s: %v %s", node, err, kept)
	}
}

// mustTellOfMoves demands that the report has what every pod felt when it was moved.
func mustTellOfMoves(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	code, text := theseus(t, rig, "state", "report", "-o", "json")
	var model struct {
		Totals  struct{ Pods int }
		Adopted struct {
			Pods, Measured, Lost, Sent   int
			FlipMicros                   [3]int64
			FlipGapMillis, ControlMillis [3]float64
		}
		Gaps []struct {
			Path, Step string
			From       time.Time
			Millis     float64
		}
	}
	if err := json.Unmarshal([]byte(text), &model); code != 0 || err != nil {
		t.Fatalf("report: exit %d, %v", code, err)
	}
	a := model.Adopted
	t.Logf("moved (p50, p99, longest): %+v", a)
	for _, gap := range model.Gaps {
		t.Logf("gap: %+v", gap)
	}
	if a.Pods < model.Totals.Pods/2 || a.Measured == 0 || a.Sent == 0 || a.FlipMicros[2] == 0 {
		t.Errorf("of %d pods, the report says: %+v", model.Totals.Pods, a)
	}
}

// TestAdoptBack rolls an adoption back from the middle of a node, by a kill and then `theseus rollback` elsewhere, in
// which the API server is killed, too:
// every pod is on flannel again, with its address, and was never restarted, and no client lost a request. Calico has
// not run on the second node by then. The agents park pods: they move them as on kernels that rename no interface in
// use.
func TestAdoptBack(t *testing.T) {
	adoptBack(t, "Use Calico for new pods on adback-node-1", rigtest.Perhaps(rigtest.BackOnFlannel))
}

// TestAdoptBackLate does the same once Calico carries the range, which undoes everything that an earlier moment would.
func TestAdoptBackLate(t *testing.T) {
	rigtest.Full(t, "an adoption taken back when Calico carries the range: six to ten minutes")
	adoptBack(t, "send the outgoing traffic of adback-node-1 over Calico", rigtest.BackOnFlannel)
}

func adoptBack(t *testing.T, moment string, stays []rigtest.Stays) {
	t.Setenv("THESEUS_LAB_RUNTIME", build.Runtimes()[1]) // the other tests run the first
	rig := newRig(t, "adback", 2)
	rig.Strategy = "adopt"
	parks := park(t, rig)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := podsOf(t, rig)
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	killAt(t, rig, "here", moment, nil, "apply", plan, "--yes")
	parks()
	back := rigtest.Start(t, rig, "there", "rollback")
	back.Until("stop Calico on adback-node-1")
	rigtest.KillAPIServer(t, rig)
	back.Ends(rolledBack)
	mustLoseNothing(t, rig, "after the rollback from "+moment)
	mustBeSamePods(t, before, podsOf(t, rig))
	rigtest.NothingOn(t, rig, "Calico", rigtest.CalicoTraces)
	rigtest.NothingLeft(t, rig, regexp.MustCompile("calico|tigera|theseus-agent"), stays...)
}

// TestAdoptHarmed does harm to adoptions, one after the other. Each is noticed and taken back: every pod is on flannel
// with its address, nothing of Calico is left, and the routes are as they were.
func TestAdoptHarmed(t *testing.T) {
	rigtest.Full(t, "adoptions that are harmed: an address that is taken, a plugin that fails, an agent that is "+
		"killed, the range carried by Calico too early")
	rig := newRig(t, "harmed", 2)
	rig.Strategy = "adopt"
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, routes := podsOf(t, rig), routesOf(t, rig)
	for _, harm := range []struct {
		name, at string
		do       func(*testing.T, *scenario.Rig) (undo func())
		noticed  string // by what was said
		lossless bool
	}{
		{"address", "Start Calico next to flannel on harmed-node-2",
			takeAddress, "not moved: .*already (assigned|exists)", true},
		{"plugin", "Adopt the probe pod of harmed-node-1", failPlugin, "portmap: nothing goes here", true},
		{"agent", "Adopt the pods of harmed-node-1", killAgent, "restarted its count|probes lost on", true},
		{"range", "Adopt the pods of harmed-node-1", carryTooEarly,
			"probes lost on|the host reaches it through nothing", false},
	} {
		t.Run(harm.name, func(t *testing.T) {
			rig.Flags = []string{"--max-lost", "3", "--bake", "1s"}
			if !harm.lossless {
				rig.Flags[1] = "0" // the agents mend it before many are
			}
			plan, err := rig.Plan(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			apply := rigtest.Start(t, rig, "here", "apply", plan, "--yes")
			apply.Until(harm.at)
			undo := harm.do(t, rig)
			apply.Ends(4)
			if !regexp.MustCompile(harm.noticed).MatchString(apply.Said()) {
				t.Errorf("nothing was said of %q:\n%s", harm.noticed, apply.Said())
			}
			undo()
			if harm.lossless {
				mustLoseNothing(t, rig, "after the rollback")
			} else if cost, err := rig.Steady(t.Context()); err != nil {
				t.Fatal(err)
			} else {
				t.Logf("in all: %v of %d requests", scenario.Loss(cost), cost.Sent())
			}
			mustBeAsBefore(t, rig, before, routes)
		})
	}
}

// takeAddress lets Calico's plugin for addresses give that of a pod to somebody else.
func takeAddress(t *testing.T, rig *scenario.Rig) (undo func()) {
	t.Helper()
	node := rig.NodeNames()[0]
	address, err := rig.Kubectl(t.Context(), nil, "-n", workload.Namespace, "get", "pods", "-l", "app=web",
		"--field-selector", "spec.nodeName="+node, "-o", "jsonpath={.items[0].status.podIP}")
	if err != nil {
		t.Fatal(err)
	}
	text, err := rig.OnNode(t.Context(), node, "cat", "/etc/cni/net.d/10-calico.conflist.theseus")
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Plugins []map[string]any }
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Plugins) == 0 {
		t.Fatalf("%v: %s", err, text)
	}
	conf := list.Plugins[0]
	conf["name"], conf["cniVersion"] = "k8s-pod-network", "0.3.1"
	stdin, err := json.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	out, err := rig.OnNode(t.Context(), node, "sh", "-c",
		`echo "$1" | CNI_COMMAND=ADD CNI_CONTAINERID=somebody CNI_NETNS=/run/netns/somebody CNI_IFNAME=eth0 \
		CNI_PATH=/opt/cni/bin CNI_ARGS="IP=$2" /opt/cni/bin/calico-ipam`, "sh", string(stdin), address)
	if err != nil || !strings.Contains(out, address) {
		t.Fatalf("%v: %s", err, out)
	}
	fmt.Fprintf(rig.Out, "-- %s is somebody's at Calico\n", address)
	return func() {}
}

// failPlugin lets what is chained to both networks' plugins fail for some pods, after those have done their part: the
// interface and the address are there, and nobody takes them back but who asked for them.
func failPlugin(t *testing.T, rig *scenario.Rig) (undo func()) {
	t.Helper()
	const script = `#!/bin/sh
case "$CNI_COMMAND $CNI_ARGS" in
"ADD "*K8S_POD_NAME=web-*) echo '{"cniVersion":"0.3.1","code":11,"msg":"nothing goes here"}'; exit 1 ;;
esac
exec /opt/cni/bin/portmap.real
`
	onNodes := func(command string) {
		t.Helper()
		for _, node := range rig.NodeNames() {
			if out, err := rig.OnNode(t.Context(), node, "sh", "-ec", command); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
	onNodes("cd /opt/cni/bin; cp portmap portmap.real; printf %s '" + strings.ReplaceAll(script, "'", `'\''`) +
		"' > new; chmod 755 new; mv new portmap")
	return func() {
		t.Helper()
		onNodes("cd /opt/cni/bin; mv portmap.real portmap")
	}
}

// killAgent kills the agent of the first node, which is started again.
func killAgent(t *testing.T, rig *scenario.Rig) (undo func()) {
	t.Helper()
	node := rig.NodeNames()[0]
	out, err := rig.OnNode(t.Context(), node, "sh", "-c", `for pid in $(pgrep -x theseus-agent); do
		if grep -qzx run /proc/$pid/cmdline; then kill -9 $pid; echo $pid; fi; done`) // probers run the same program
	if err != nil || len(strings.Fields(out)) != 1 {
		t.Fatalf("the agent of %s: %v %q", node, err, out)
	}
	fmt.Fprintf(rig.Out, "-- the agent of %s is killed (%s)\n", node, strings.TrimSpace(out))
	return func() {}
}

// carryTooEarly lets Calico carry the range while pods are still on flannel, which no plan does: Felix puts a blackhole
// in the place of the route to flannel's bridge. The agents mend it; one refuses to move what its node does not reach,
// or the gate sees what was lost meanwhile.
func carryTooEarly(t *testing.T, rig *scenario.Rig) (undo func()) {
	t.Helper()
	if _, err := rig.Kubectl(t.Context(), nil, "patch", "ippools.crd.projectcalico.org",
		"default-ipv4-ippool", "--type", "merge",
		"-p", `{"spec":{"vxlanMode":"Always"}}`); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]string{"Felix takes the route": "blackhole", "the agent mends it": "proto 191"}
	for deadline := time.Now().Add(time.Minute); len(wanted) > 0; {
		now := strings.Join(routesOf(t, rig), "\n")
		for what, text := range wanted {
			if strings.Contains(now, text) {
				t.Logf("seen: %s", what)
				delete(wanted, what)
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("not seen: %v in\n%s", wanted, now)
		}
	}
	return func() {}
}

// routesOf are the nodes' routes to the addresses of pods.
func routesOf(t *testing.T, rig *scenario.Rig) []string {
	t.Helper()
	var all []string
	for _, node := range rig.NodeNames() {
		out, err := rig.OnNode(t.Context(), node, "sh", "-c",
			"ip -4 route show | grep -E 'cni0|flannel|weave|blackhole|vxlan.calico|^[0-9./]+ via' | sort")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, node, out)
	}
	return all
}

// podsOf are the workload's pods: name, identity, address, restarts.
func podsOf(t *testing.T, rig *scenario.Rig) []string {
	t.Helper()
	out, err := rig.Kubectl(t.Context(), nil, "-n", workload.Namespace, "get", "pods", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.podIP} {.status.containerStatuses[*].restartCount}{"\n"}{end}`)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	return lines
}

func mustBeSamePods(t *testing.T, before, after []string) {
	t.Helper()
	if !slices.Equal(before, after) {
		t.Errorf("the pods (name, identity, address, restarts) were\n%s\nand are\n%s",
			strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}
