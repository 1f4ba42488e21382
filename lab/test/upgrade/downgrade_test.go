package upgrade

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

// TestDowngrade: a plan brings Calico to a newer version, which first fails as one node lacks the image, and when it
// has ended another plan brings it back: Typha first, the agents after it, and the other way round where that is taken
// back.
func TestDowngrade(t *testing.T) {
	before, after := releases[0], releases[len(releases)-1]
	rigtest.Full(t, "Calico from "+before+" to "+after+
		", with an image that one node lacks, and back by a plan of its own (9 minutes)")
	rig := rigtest.New(t, bin, "down", 2, "calico-typha@"+before)
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	running, was := pods(t, rig), state(t, rig)

	withoutImage(t, rig, before, after)
	asBefore(t, rig, before, was)
	rigtest.Start(t, rig, "here", "apply", plan(t, rig, after), "--yes").Ends(0, "finished: done")
	nothingLost(t, rig, before+" to "+after)

	said := takenBack(t, rig, after, before, "Update down-node-2 to ")
	inOrder(t, said, "undone: Update down-node-1 to ", "undone: Update Deployment kube-system/calico-typha to ")
	back := rigtest.Start(t, rig, "here", "apply", plan(t, rig, before), "--yes")
	back.Ends(0, "finished: done")
	inOrder(t, back.Said(), "Update Deployment kube-system/calico-kube-controllers to ",
		"Update Deployment kube-system/calico-typha to ", "Update down-node-1 to ")
	nothingLost(t, rig, after+" to "+before)
	asBefore(t, rig, before, was)
	if got := definitions(t, rig); got != after {
		t.Errorf("at the end the definitions are of %q, not %s, with which %s works", got, after, before)
	}
	if now := pods(t, rig); now != running {
		t.Errorf("pods were touched:\n%s\nand were\n%s", now, running)
	}
}

// withoutImage begins an upgrade to a version of which one node, that of the second turn, lacks the image of the agent;
// it has to be taken back by itself.
func withoutImage(t *testing.T, rig *scenario.Rig, before, after string) {
	t.Helper()
	file, node := plan(t, rig, after), rig.NodeNames()[1]
	manifest, err := os.ReadFile(filepath.Join(rig.Dir, "calico-typha.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`image: "?([^\s"]*/node:[^\s"]*)`).FindSubmatch(manifest)
	if found == nil {
		t.Fatal("the manifest names no image of calico-node")
	}
	image := string(found[1])
	rename := func(from, to string) {
		script := fmt.Sprintf("ctr -n k8s.io images tag %[1]s %[2]s && ctr -n k8s.io images rm %[1]s", from, to)
		if out, err := rig.OnNode(t.Context(), node, "sh", "-c", script); err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
	}
	rename(image, "kept.test/node:1")
	run := rigtest.Start(t, rig, "here", "apply", file, "--yes")
	run.Ends(4, "error: rolled-back: restart the agent of DaemonSet kube-system/calico-node on "+node+": ",
		"node "+node+" cannot get the image "+image, "hint: fix the cause, make a new plan")
	inOrder(t, run.Said(), "undone: Update "+node+" to "+after, "undone: Update "+rig.NodeNames()[0]+" to "+after)
	nothingLost(t, rig, before+" to "+after+" and back by itself")
	rename("kept.test/node:1", image)
}

// inOrder demands texts one after another.
func inOrder(t *testing.T, said string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		_, after, found := strings.Cut(said, text)
		if !found {
			t.Errorf("%q is not said, or too early, of %q", text, texts)
			return
		}
		said = after
	}
}
