// Package surge replaces the nodes of real clusters under traffic.
package surge

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

const bin = "../../../bin"

// TestNodesReplaced doubles a cluster under traffic, and scales the old nodes in. Nothing may be lost.
func TestNodesReplaced(t *testing.T) {
	rigtest.Full(t, "nodes replaced by surge, 2 -> 4 -> 2: five minutes")
	rig := doubling(t, "sg")
	rigtest.Run(t, rig, "here", 0, nil, "apply", plan(t, rig), "--yes")
	mustBe(t, rig, "sg-node-3", "sg-node-4")
	cost := rigtest.NothingLost(t, rig, 3*time.Minute, "after the change")
	t.Logf("nothing lost of %d requests", cost.Sent())
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
}

// TestNodesStay doubles a cluster under traffic, and takes that back from the last moment at which it can be.
func TestNodesStay(t *testing.T) {
	rigtest.Full(t, "nodes replaced by surge, taken back: seven minutes")
	rig := doubling(t, "sgb")
	first := rigtest.Start(t, rig, "here", "apply", plan(t, rig), "--yes")
	first.Until("Check that no pod is left on sgb-node-1")
	first.Signal(syscall.SIGKILL)
	first.Ends(-1)
	rigtest.Run(t, rig, "there", 5, nil, "rollback")
	mustBe(t, rig, "sgb-node-1", "sgb-node-2")
	cost := rigtest.NothingLost(t, rig, 3*time.Minute, "after the rollback")
	t.Logf("nothing lost of %d requests", cost.Sent())
}

// doubling is a cluster of two nodes under traffic.
func doubling(t *testing.T, name string) *scenario.Rig {
	t.Helper()
	rig := rigtest.New(t, bin, name, 2, "flannel", "--bake", "2s", "--max-lost", "20")
	rig.Strategy = "surge"
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rig
}

// plan asks for all nodes to be replaced at once.
func plan(t *testing.T, rig *scenario.Rig) string {
	t.Helper()
	change, err := rig.SurgeFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(rig.Dir, "plan.yaml")
	if _, err := rig.Run(t.Context(), append([]string{"plan", "-o", file}, change...)...); err != nil {
		t.Fatal(err)
	}
	return file
}

// mustBe demands that these are the cluster's nodes, and that nothing of Theseus is on them.
func mustBe(t *testing.T, rig *scenario.Rig, names ...string) {
	t.Helper()
	rig.Members = names
	out, err := rig.Kubectl(t.Context(), nil, "get", "nodes", "-o", "jsonpath={range .items[*]}{.metadata.name} {end}")
	if err != nil || strings.TrimSpace(out) != strings.Join(names, " ") {
		t.Errorf("nodes: %s (%v), want %v", out, err, names)
	}
	out, err = rig.Kubectl(t.Context(), nil, "get", "nodes", "-o",
		"jsonpath={range .items[*]}{.metadata.labels} {.metadata.annotations} {.spec.taints}{end}")
	if err != nil || strings.Contains(out, "theseus.dev/") {
		t.Errorf("nodes still carry marks of Theseus (%v):\n%s", err, out)
	}
}
