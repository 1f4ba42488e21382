package piday

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestReflectorsUpgraded upgrades Calico on five nodes of which three reflect, under traffic: taken back when the nodes
// that reflect are done, then to the end. Nothing is lost, nor does a router outside ever lack a route to a block of
// addresses.
func TestReflectorsUpgraded(t *testing.T) {
	const before, after = "v3.28.5", "v3.31.0"
	rigtest.Full(t, "nodes that reflect BGP's routes upgraded, and taken back; an older Calico has to be built")
	rig := rigtest.New(t, "../../../bin", "relup", 5, network.CalicoBGP+"@"+before)
	outside := outsideRouter(t, rig)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	outside.learns("before")
	held := func(version string, never func() int) {
		t.Helper()
		cost := rigtest.NothingLost(t, rig, time.Minute, version)
		t.Logf("%s: nothing lost or leaked of %d requests; the router outside always had every route, and changed "+
			"one %d times", version, cost.Sent(), never())
		outside.learns(version)
		images := kubectl(t, rig, "-n", "kube-system", "get", "pods", "-l", "k8s-app=calico-node", "-o",
			"jsonpath={.items[*].spec.containers[0].image}")
		if strings.Count(images, ":"+version) != len(rig.NodeNames()) {
			t.Fatalf("agents are %s, not %s", images, version)
		}
	}

	never := outside.never(t)
	run := toNewest(t, rig)
	run.Until("Update relup-node-3 to " + after) // nodes that reflect are the last
	rigtest.Run(t, rig, "there", 0, nil, "rollback")
	run.Ends(5, "undone: Update relup-node-2 to "+after, "undone: Update relup-node-1 to "+after,
		"undone: Update relup-node-4 to "+after)
	held(before, never)

	never = outside.never(t)
	toNewest(t, rig).Ends(0, "finished: done")
	held(after, never)
}

// toNewest plans the upgrade to the lab's own version of Calico, and begins it.
func toNewest(t *testing.T, rig *scenario.Rig) *rigtest.Process {
	t.Helper()
	manifest, err := rig.ManifestFile(t.Context(), network.CalicoBGP, "--pod-cidr",
		kubectl(t, rig, "get", "ippools.crd.projectcalico.org", "-o", "jsonpath={.items[0].spec.cidr}"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(rig.Dir, "plan.yaml")
	if text, err := rig.Run(t.Context(), "plan", "--to", "calico", "--manifest", manifest,
		"--agent-image", scenario.AgentImage,
		"--bake", "3s", "--probe-interval", "20ms", "--max-lost", "3", "-o", file); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return rigtest.Start(t, rig, "here", "apply", file, "--yes")
}
