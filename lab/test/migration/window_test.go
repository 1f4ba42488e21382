package migration

import (
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// TestWindow carries out a recreation that is divided into windows: it stops at the end of each with both networks
// joined, nothing is lost while it stands there, and resume goes on after its check.
func TestWindow(t *testing.T) {
	rigtest.Full(t, "a change that is divided into windows")
	rig := newRig(t, "win", 3)
	rig.Window = "2m"
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	code, text := theseus(t, rig, "state", "apply", plan, "--yes")
	windows := 1
	for ; code == 5 || code == 6; windows++ {
		t.Logf("window %d:\n%s", windows, text)
		mustContain(t, text, "window")
		if windows == 1 {
			_, status := theseus(t, rig, "state", "status")
			mustContain(t, status, "theseus resume")
		}
		mustLoseNothing(t, rig, "at the end of a window")
		code, text = theseus(t, rig, "state", "resume")
	}
	if code != 0 || windows < 2 {
		t.Fatalf("exit code %d in window %d:\n%s", code, windows, text)
	}
	mustLoseNothing(t, rig, "after the last window")
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
}
