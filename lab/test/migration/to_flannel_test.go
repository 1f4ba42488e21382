package migration

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestToFlannel leaves Calico for flannel under traffic. Pods on Calico have addresses that no node's own range holds,
// so the planner, asked to adopt them, says which and why and has them created again. It is taken back from the middle
// first, and nothing of flannel is left; in the end nothing of Calico is, and nodes take pods.
func TestToFlannel(t *testing.T) {
	rigtest.Full(t, "Calico to flannel, back and there again: five minutes")
	rig := newRig(t, "tofl", 2)
	// A cluster on Calico whose range is not that of the nodes: flannel replaced by hand, before anybody uses it.
	for _, do := range []func(context.Context) error{rig.DeleteAndInstall, rig.Deploy, rig.EndPolicy} {
		if err := do(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rig.Steady(t.Context()); err != nil {
		t.Fatal(err)
	}
	change, err := rig.FlannelFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	plan := filepath.Join(rig.Dir, "plan.yaml")
	newPlan := func() {
		t.Helper()
		out, err := rig.Run(t.Context(), slices.Concat([]string{"plan", "-o", plan, "--agent-image",
			scenario.AgentImage, "--probe-interval", "20ms"}, change, rig.Flags)...)
		if err != nil {
			t.Fatal(err)
		}
		mustContain(t, out,
			"pods cannot be adopted (flannel gives the pods of each node addresses of that node's own range")
	}
	newPlan()
	killAt(t, rig, "here", "Move the pods of tofl-node-", nil, "apply", plan, "--yes")
	if code, out := theseus(t, rig, "there", "rollback"); code != 5 {
		t.Fatalf("rollback ended with %d:\n%s", code, out)
	}
	mustLoseNothing(t, rig, "after the rollback")
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	rigtest.Finds(t, rig, "calico")

	newPlan()
	if _, err := rig.Run(t.Context(), "apply", plan, "--yes"); err != nil {
		t.Fatal(err)
	}
	mustLoseNothing(t, rig, "after the change")
	rigtest.NothingOn(t, rig, "Calico", rigtest.CalicoTraces)
	rigtest.NothingOn(t, rig, "a name of the change", `ls /etc/cni/net.d | grep -v '^10-flannel.conflist$'; true`)
	if left := kubectl(t, rig, "", "get", "crd,clusterrole,clusterrolebinding",
		"-o", "name"); strings.Contains(left, "calico") {
		t.Errorf("of Calico there is:\n%s", left)
	}
	if taints := kubectl(t, rig, "", "get", "nodes", "-o", "jsonpath={.items[*].spec.taints}"); strings.Contains(taints,
		"NoSchedule") {
		t.Errorf("nodes take no pods: %s", taints)
	}
	rigtest.Finds(t, rig, "flannel")
	rigtest.NothingLeft(t, rig, regexp.MustCompile("calico|tigera"), rigtest.OfCalico...)
}

func kubectl(t *testing.T, rig *scenario.Rig, stdin string, args ...string) string {
	t.Helper()
	out, err := rig.Kubectl(t.Context(), strings.NewReader(stdin), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
