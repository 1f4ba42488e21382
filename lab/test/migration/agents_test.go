package migration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestAgentsThatDoNotStart: on one of two nodes the target's image is missing, then its agent crashes again and again
// from its start, and then only when all pods have moved, those of its node too. Each time the user is told why, the
// change is taken back by itself, and the clients notice nothing.
func TestAgentsThatDoNotStart(t *testing.T) {
	rigtest.Full(t, "an image that one node lacks, and an agent that crashes on one node, at its "+
		"start and later (8 minutes)")
	rig := newRig(t, "ail", 2)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	node := rig.NodeNames()[1]
	sh := func(t *testing.T, script string) {
		t.Helper()
		if out, err := rig.OnNode(t.Context(), node, "sh", "-c", script); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	if _, err := rig.ChangeFlags(t.Context()); err != nil { // writes the manifest
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(rig.Dir, "calico.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	images := regexp.MustCompile(`image: "?([^\s"]*/node:[^\s"]*)`).FindSubmatch(manifest)
	if images == nil {
		t.Fatal("the manifest names no image of calico-node")
	}
	image := string(images[1])

	sh(t, fmt.Sprintf("ctr -n k8s.io images tag %[1]s kept.test/node:1 && ctr -n k8s.io images rm %[1]s", image))
	const started = "wait until Calico is ready on "
	takenBack(t, rig, "an image that one node lacks", nil, started,
		"node "+node+" cannot get the image "+image+" of pod kube-system/calico-node-", "PullImage|pull")
	sh(t, fmt.Sprintf("ctr -n k8s.io images tag kept.test/node:1 %s && ctr -n k8s.io images rm kept.test/node:1",
		image))

	const spoilt = "/var/lib/calico/nodename" // a file that calico-node writes as it starts
	sh(t, "mkdir -p "+spoilt)
	takenBack(t, rig, "an agent that crashes on one node", nil, started,
		"container calico-node of pod kube-system/calico-node-", "on node "+node+" does not stay up", spoilt)

	sh(t, "rm -rf "+spoilt)
	takenBack(t, rig, "an agent that crashes when its node's pods have moved",
		func(t *testing.T, run *rigtest.Process) {
			run.Until("evict the pods of " + node + " that are on flannel") // the last ones end yet
			sh(t, "rm "+spoilt+" && mkdir "+spoilt+" && pkill -KILL -x start_runit")
		}, "wait until DaemonSet kube-system/calico-node is ready on every node: ",
		"container calico-node of pod kube-system/calico-node-", "on node "+node+" does not stay up", spoilt)
}

// takenBack applies a plan, does harm, fails with some words in a step of that title, and demands that all is as
// before.
func takenBack(t *testing.T, rig *scenario.Rig, what string, harm func(*testing.T, *rigtest.Process),
	step string, words ...string) {
	t.Helper()
	ok := t.Run(what, func(t *testing.T) {
		plan, err := rig.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		run := rigtest.Start(t, rig, "here", "apply", plan, "--yes")
		if harm != nil {
			harm(t, run)
		}
		run.Until("waiting: " + words[0])
		run.Ends(4, "error: rolled-back: "+step, "hint: fix the cause, make a new plan")
		cause := run.Said()[strings.Index(run.Said(), "error: rolled-back"):]
		for _, word := range words {
			if !regexp.MustCompile(word).MatchString(cause) {
				t.Errorf("%q is not in the error: %s", word, cause)
			}
		}
		rigtest.Start(t, rig, "here", "status").Ends(0, "rolled-back", "calico-node-")
		mustLoseNothing(t, rig, what)
		rigtest.NothingOn(t, rig, "Calico", rigtest.CalicoTraces)
		if left, err := rig.Kubectl(t.Context(), nil, "get", "daemonsets", "-A", "-o", "name"); err != nil ||
			strings.Contains(left, "calico") || strings.Contains(left, "theseus") {
			t.Errorf("left: %s %v", left, err)
		}
	})
	if !ok {
		t.FailNow()
	}
}
