package guard

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// TestGuardLossy: the links of a network lose packets before the change. As much during it is never a proven loss, and
// a hundred times as much for 20 s is one. Without --baseline-loss-ok the command is not run.
func TestGuardLossy(t *testing.T) {
	rigtest.Full(t, "guards of a network that loses packets before: ten minutes")
	rig := rigtest.New(t, bin, "gl", 2, "flannel")
	loses := func(share string) string {
		var all []string
		for _, node := range rig.NodeNames() {
			all = append(all, rig.Lab+" link --name "+rig.Name+" "+node+" --loss "+share)
		}
		return strings.Join(all, " && ")
	}
	shell := func(command string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	args := func(report, baseline, command string) []string {
		return []string{"guard", "--agent-image", scenario.AgentImage, "--probe-interval", "30ms", "--baseline",
			baseline, "--quiet", "10s", "--watch-at-most", "90s", "--baseline-loss-ok",
			"-o", report, "--", "sh", "-c", command}
	}
	shell(loses("0.05%"))

	report := filepath.Join(rig.Dir, "as-before.json")
	said, err := rig.Run(t.Context(), args(report, "60s", "sleep 20")...)
	var ended *exec.ExitError
	if err != nil && (!errors.As(err, &ended) || ended.ExitCode() != 8) {
		t.Errorf("as much loss as before: %v", err)
	}
	if err == nil && !strings.Contains(said, "the network lost probes before the change, and no more since then") {
		t.Errorf("what was lost before is not told:\n%s", said)
	}
	if !strings.Contains(said, "note: the baseline lost probes") {
		t.Errorf("what the baseline lost is not told:\n%s", said)
	}
	nothingLeft(t, rig)
	if verdict := verdictOf(t, report); !strings.Contains(verdict, "lost (0.") {
		t.Errorf("the report does not say what is compared:\n%s", verdict)
	}

	report = filepath.Join(rig.Dir, "worse.json")
	rigtest.Run(t, rig, "here", 7, []string{"note: the baseline lost probes", "LOSS: ", "error: a loss is proven: ",
		"more is lost (evidence "}, args(report, "30s", loses("5%")+"; sleep 20; "+loses("0.05%"))...)
	nothingLeft(t, rig)
	t.Log(verdictOf(t, report))

	shell(loses("1%"))
	rigtest.Run(t, rig, "here", 8, []string{"error: the command was not run", "--baseline-loss-ok"},
		"guard", "--agent-image", scenario.AgentImage, "--probe-interval", "30ms", "--", "touch",
		filepath.Join(rig.Dir, "ran"))
	if _, err := os.Stat(filepath.Join(rig.Dir, "ran")); err == nil {
		t.Error("the command was run")
	}
}

// verdictOf is the verdict of a report.
func verdictOf(t *testing.T, report string) string {
	t.Helper()
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Verdict struct {
			Word, Title, Why string
			Missing          []string
		}
		Totals struct{ Sent, Lost int64 }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Totals.Lost == 0 {
		t.Errorf("%s: nothing was lost", report)
	}
	return strings.Join(append([]string{got.Verdict.Word, got.Verdict.Title, got.Verdict.Why},
		got.Verdict.Missing...), "\n")
}
