package rehearse

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// shown are the traps of a rehearsal's result, each with the workload and the checks that had reported it.
type shown struct {
	Trap, Object string
	Checks       []string
}

// rehearsed runs theseus-lab rehearse on a snapshot that internal/cli/rehearse makes, with all checks accepted, and
// returns what the result says.
func rehearsed(t *testing.T, name, snapshot string, args ...string) (passed bool, traps []shown, out string) {
	t.Helper()
	rig := rigtest.Unstarted(t, bin, name, 2)
	args = append([]string{"rehearse", "--name", rig.Name, "--from", snapshot, "--dir", rig.Dir, "--", "--to",
		"calico", "--pod-cidr", "198.19.16.0/20", "--strategy", "recreate", "--once", "--probe-interval", "60ms",
		"--max-lost", "50", "--max-gap", "10s", "--bake",
		"2s"}, args...)
	for _, topic := range []string{"agent", "api", "bgp", "calico", "cidr", "cni", "felix", "gitops", "ipam",
		"kubeproxy", "labels", "load", "mtu", "node", "pdb", "policy", "taints", "typha", "vxlan", "webhook",
		"workload"} {
		args = append(args, "--accept", topic+"=a rehearsal without checks")
	}
	command := exec.CommandContext(t.Context(), rig.Lab, args...)
	var said bytes.Buffer
	to := io.MultiWriter(rig.Out, &said)
	command.Stdout, command.Stderr = to, to
	end := command.Run()
	data, err := os.ReadFile(filepath.Join(rig.Dir, "rehearsal.json"))
	if err != nil {
		t.Fatal(err, end)
	}
	var result struct {
		Passed  bool
		Shown   []shown
		Traffic []struct {
			Asked, Lost, Leaked int
			Unlike              string
		}
	}
	if err := json.Unmarshal(data, &result); err != nil {
		t.Fatal(err)
	}
	if result.Passed != (end == nil) {
		t.Errorf("passed: %v, and it ended with %v", result.Passed, end)
	}
	for _, one := range result.Traffic {
		if one.Unlike != "" || one.Leaked > 0 {
			t.Errorf("a connection between stand-ins: %+v", one)
		}
	}
	if len(result.Traffic) == 0 {
		t.Error("stand-ins opened no connections")
	}
	return result.Passed, result.Shown, said.String()
}

// TestTraps: a copy with four traps at once, no check to stop the change: the run shows each by name, and the result
// says which of them a check had reported. In a copy without traps, it shows none.
func TestTraps(t *testing.T) {
	rigtest.Full(t, "a change rehearsed on copies with and without traps")
	t.Run("traps", func(t *testing.T) {
		passed, traps, out := rehearsed(t, "rt", "traps.json", "--patience", "60s", "--wait", "4m")
		if passed {
			t.Error("the rehearsal passed")
		}
		want := []shown{{"finalizer", "Deployment trap/held", nil}, {"probe", "Deployment trap/late", nil},
			{"budget", "Deployment trap/never", []string{"pdb/blocks"}}, {"drain", "Deployment trap/slow", nil}}
		if !slices.EqualFunc(traps, want, func(a, b shown) bool {
			return a.Trap == b.Trap && a.Object == b.Object && slices.Equal(a.Checks, b.Checks)
		}) {
			t.Errorf("the run showed %+v", traps)
		}
		for _, one := range want {
			if says := "the run showed a trap (" + one.Trap + "): " + one.Object; !strings.Contains(out, says) {
				t.Errorf("%q is missing", says)
			}
		}
	})
	t.Run("none", func(t *testing.T) {
		passed, traps, _ := rehearsed(t, "rq", "quiet.json")
		if !passed || len(traps) > 0 {
			t.Errorf("passed: %v; the run showed %+v", passed, traps)
		}
	})
}
