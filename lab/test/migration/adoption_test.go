package migration

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// TestAdopt moves a cluster under traffic by adoption: the same pods, with their addresses, never restarted, and
// nothing lost. Then a pod is deleted as ever, and its successor gets an address of the same range.
func TestAdopt(t *testing.T) {
	rigtest.Full(t, "running pods moved from flannel to Calico")
	rig := newRig(t, "adopt", 3)
	rig.Strategy, rig.Outside = "adopt", true
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	guests := invite(t, rig)
	before := podsOf(t, rig)
	if err := rig.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the adoption")
	nothingOnNodes(t, rig, "flannel", flannelTraces)
	mustServeCalico(t, rig)
	mustTellOfMoves(t, rig)
	for _, component := range []string{"containerd", "kubelet"} { // what they remember of pods is what they find
		if out, err := exec.Command(rig.Lab, "node", "kill", "--name", rig.Name, "--component", component, rig.NodeNames()[0]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	mustLoseNothing(t, rig, "after containerd and kubelet were killed")
	guests.leave()
	mustBeSamePods(t, before, podsOf(t, rig))

	if _, err := rig.Kubectl(t.Context(), nil, "-n", workload.Namespace, "delete", "pod", "guest-1", "guest-2"); err != nil {
		t.Fatal(err)
	}
	nothingOnNodes(t, rig, "what the former network held, or a pod's port,",
		`ls /var/lib/cni/networks/* 2>/dev/null | grep -E '^[0-9]+[.]'; iptables-save | grep -w `+guestPort+`; nft list ruleset | grep -w `+guestPort+`; true`)
	if _, err := rig.Kubectl(t.Context(), nil, "-n", workload.Namespace, "delete", "pod", "db-0"); err != nil {
		t.Fatal(err)
	}
	if _, err := rig.Kubectl(t.Context(), nil, "-n", workload.Namespace, "wait", "--for=condition=Ready", "pod/db-0", "--timeout=60s"); err != nil {
		t.Fatal(err)
	}
	mustHoldNoMore(t, rig)
	mustStartAfresh(t, rig, rig.NodeNames()[1])
	mustHoldNoMore(t, rig)
}

// mustHoldNoMore demands that Calico has given away as many addresses as there are pods and tunnels, soon: what deleted pods had, it gets back.
func mustHoldNoMore(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		out, err := rig.Kubectl(t.Context(), nil, "get", "pods", "-A", "-o", `jsonpath={range .items[*]}pod {.spec.hostNetwork}{"\n"}{end}`)
		if err != nil {
			t.Fatal(err)
		}
		pods := strings.Count(out, "pod \n")
		handles, err := rig.Kubectl(t.Context(), nil, "get", "ipamhandles.crd.projectcalico.org", "-o", "name")
		if err != nil {
			t.Fatal(err)
		}
		n := len(strings.Fields(handles))
		if n == pods+len(rig.NodeNames()) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d addresses are given away, for %d pods and %d tunnels:\n%s", n, pods, len(rig.NodeNames()), handles)
		}
	}
}

// mustStartAfresh cuts a node's power. Its pods come up again on Calico alone, and nothing of the former network with them.
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
	nothingOnNodes(t, rig, "flannel", flannelTraces)
	if kept, err := rig.OnNode(t.Context(), node, "ip", "address", "show", "dev", "lo"); err != nil || strings.Contains(kept, "lo:theseus") {
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

// backFrom are the moments at which an adoption is stopped and taken back: in the middle of a node, between nodes,
// and when Calico carries the range already.
var backFrom = []string{
	"Let calico serve new pods on adback-node-1",
	"send what leaves adback-node-1 by calico",
}

// TestAdoptBack takes an adoption back from its middle and from its end, by a kill and then `theseus rollback`
// elsewhere: every pod is on flannel again, with its address, and was never restarted, and no client lost a request.
func TestAdoptBack(t *testing.T) {
	rig := newRig(t, "adback", 2)
	rig.Strategy = "adopt"
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := podsOf(t, rig)
	for i, text := range backFrom {
		plan, err := rig.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		killAt(t, rig, "here", text, nil, "apply", plan, "--yes")
		code, out := theseus(t, rig, fmt.Sprintf("there-%d", i), "rollback")
		if code != 5 {
			t.Fatalf("rollback from %q ended with %d:\n%s", text, code, out)
		}
		mustLoseNothing(t, rig, "after the rollback from "+text)
		mustBeSamePods(t, before, podsOf(t, rig))
		nothingOnNodes(t, rig, "Calico", calicoTraces)
	}
}

// TestAdoptRangeTooEarly lets Calico carry the range while pods are still on flannel, which no plan does: Felix puts a
// blackhole in the place of the route to flannel's bridge. The agents mend it, the gate sees what was lost meanwhile, and
// the run is taken back: every pod is on flannel, the routes are as they were, and clients are served.
func TestAdoptRangeTooEarly(t *testing.T) {
	rigtest.Full(t, "the range carried by Calico too early")
	rig := newRig(t, "early", 2)
	rig.Strategy, rig.Flags = "adopt", []string{"--max-lost", "3", "--bake", "1s"}
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, routes := podsOf(t, rig), routesOf(t, rig)
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	apply := rigtest.Start(t, rig, "here", "apply", plan, "--yes")
	apply.Until("Adopt the pods of early-node-1")
	if _, err := rig.Kubectl(t.Context(), nil, "patch", "ippools.crd.projectcalico.org", "default-ipv4-ippool", "--type", "merge",
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
	apply.Ends(4)
	cost, err := rig.Steady(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("in all: %v of %d requests", scenario.Loss(cost), cost.Sent())
	mustBeSamePods(t, before, podsOf(t, rig))
	nothingOnNodes(t, rig, "Calico", calicoTraces)
	if after := routesOf(t, rig); !slices.Equal(routes, after) {
		t.Errorf("the routes were\n%s\nand are\n%s", strings.Join(routes, "\n"), strings.Join(after, "\n"))
	}
}

// routesOf are the nodes' routes to the addresses of pods.
func routesOf(t *testing.T, rig *scenario.Rig) []string {
	t.Helper()
	var all []string
	for _, node := range rig.NodeNames() {
		out, err := rig.OnNode(t.Context(), node, "sh", "-c", "ip -4 route show | grep -E 'cni0|flannel|blackhole|vxlan.calico|^[0-9./]+ via' | sort")
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
		t.Errorf("the pods (name, identity, address, restarts) were\n%s\nand are\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}
