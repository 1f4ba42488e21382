// Package bench runs theseus bench network on a real cluster.
package bench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// bin holds the built programs: `make build` makes them.
const bin = "../../../bin"

// result is what the test reads of the output.
type result struct {
	Rows []struct {
		Path, Name, Error string
		Runs              int
		Sent, Lost        int64
		UnderLoadSent     int64
		Value             struct{ Median float64 }
	}
	Counters  map[string]map[string]int64
	Addresses []struct{ Usable, Before, After int64 }
	Notes     []string
	Stopped   string
}

// TestBench: every measurement has a result on a real network, with rules of policy too, which it enforces; a node
// that is not Ready stops the load at once, and so does an interrupt; a benchmark whose process was killed does not
// prevent the next one. Nothing is left, each time.
func TestBench(t *testing.T) {
	rigtest.Full(t, "a benchmark of a network")
	rig := rigtest.New(t, bin, "bn", 2, "flannel")
	nodes := strings.Join(rig.NodeNames(), ",")
	command := func(more ...string) []string {
		return append([]string{"bench", "network", "--agent-image", scenario.AgentImage, "--max-round-trip", "1s"},
			more...)
	}
	load := func(more ...string) []string { return append(command("--yes", "--nodes", nodes), more...) }
	rigtest.Run(t, rig, "here", 0, []string{"5, and a Service", "1 and 8 streams"},
		command("--dry-run", "--nodes", nodes)...)
	rigtest.Run(t, rig, "here", 2, []string{`error: there is no node "nowhere"`},
		command("--yes", "--nodes", "nowhere,other")...)

	// A process that is killed leaves its pods to the next one.
	killed := rigtest.Start(t, rig, "here", load("--runs", "10")...)
	killed.Until("run 1 of 10: ")
	killed.Kill()

	out, err := rig.Run(t.Context(), load("--runs", "2", "--duration", "2s", "--policy-rules", "10,1000",
		"-o", "json")...)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var got result
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(got.Rows) != 28 || got.Stopped != "" || len(got.Counters) != 2 {
		t.Errorf("%+v", got)
	}
	for _, row := range got.Rows {
		if row.Runs != 2 || row.Error != "" ||
			row.Name != "round trip at rest" && (row.Value.Median <= 0 || row.UnderLoadSent == 0) {
			t.Errorf("%+v", row)
		}
	}
	t.Logf("counters %v, addresses %+v, notes %q", got.Counters, got.Addresses, got.Notes)
	if len(got.Addresses) != 2 { // a range of each node
		t.Errorf("%+v", got.Addresses)
	}
	for _, left := range got.Addresses {
		if left.Before <= 0 || left.Before > left.Usable || left.After != left.Before {
			t.Errorf("%+v", left)
		}
	}
	nothingLeft(t, rig)

	// One node has the kernel for itself; the load takes more than a hundredth of its processors.
	rigtest.Run(t, rig, "here", 5, []string{"--max-cpu-share 1)"},
		command("--yes", "--nodes", rig.NodeNames()[0], "--max-cpu-share", "1", "--runs", "1")...)
	nothingLeft(t, rig)
	counted, err := rig.Run(t.Context(), "check", "--load", "--agent-image", scenario.AgentImage)
	t.Logf("check --load: %v\n%s", err, counted)
	if err != nil || !strings.Contains(counted, "ADDRESSES OF") || strings.Contains(counted, "no counters") {
		t.Errorf("%v: %s", err, counted)
	}
	nothingLeft(t, rig)

	interrupted := rigtest.Start(t, rig, "here", load("--runs", "10")...)
	interrupted.Until("run 1 of 10: ")
	interrupted.Signal(syscall.SIGINT)
	interrupted.Ends(130, "removing the pods")
	nothingLeft(t, rig)

	stopped := rigtest.Start(t, rig, "here", load("--runs", "10")...)
	stopped.Until("run 1 of 10: ")
	node := rig.NodeNames()[1]
	if out, err := rig.Kubectl(t.Context(), nil, "patch", "node", node, "--subresource", "status", "-p",
		`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Test","message":"for a test"}]}}`); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stopped.Ends(5, "error: the load was stopped: node "+node+" is not Ready", "hint: ")
	nothingLeft(t, rig)
	if out, err := rig.Kubectl(t.Context(), nil, "wait", "--for=condition=Ready", "node/"+node,
		"--timeout=60s"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	around(t, rig)
}

// around demands that a guard that measures before and after its command shows both in its report. A machine that is
// too busy for the load stops it: then it is tried again.
func around(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	var load struct {
		Nodes   []string
		Figures []struct {
			Figure        string
			Before, After struct{ Median *float64 }
		}
		Notes []string
	}
	for try := 1; ; try++ {
		file := filepath.Join(t.TempDir(), "report.json")
		guard := rigtest.Start(t, rig, "here", "guard", "--agent-image", scenario.AgentImage, "--bench=1s",
			"--probe-interval", "60ms", "--max-lost", "3", "--baseline", "5s", "--quiet", "6s", "-o", file, "--",
			"true")
		if code := guard.Code(); try < 3 && code == 5 && strings.Contains(guard.Said(), "the load was stopped: ") {
			t.Logf("try %d: the load before the change was stopped", try)
			continue
		}
		guard.Ends(0, "--bench, before and after the change, puts load on the network",
			"putting load on the network, before the change", "putting load on the network, after the change")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		report := struct{ Load any }{&load}
		if err := json.Unmarshal(text, &report); err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(load.Notes, " "); try < 3 && strings.Contains(notes, "is overloaded") {
			t.Logf("try %d: %s", try, notes)
			load.Notes, load.Figures = nil, nil
			continue
		}
		break
	}
	known := 0
	for _, figure := range load.Figures {
		if figure.Before.Median != nil && figure.After.Median != nil {
			known++
		}
	}
	// every measurement but the streams has a P50 and a P99, and every one but that at rest probes under it
	if len(load.Nodes) != 2 || known < 30 || len(load.Notes) > 0 {
		t.Errorf("%d figures are known of %+v", known, load)
	}
	without(t, rig, "pods,services,networkpolicies") // the namespace has the journal
}

// TestCompare: two networks are measured under the same load in one round, every figure has a result of both, and their
// clusters are removed.
func TestCompare(t *testing.T) {
	rigtest.Full(t, "a comparison of networks")
	lab, err := filepath.Abs(filepath.Join(bin, "theseus-lab"))
	if err != nil {
		t.Fatal(err)
	}
	dir, before := t.TempDir(), labs(t, lab)
	for try := 1; ; try++ { // a machine that is too busy for the load stops it
		out, err := exec.CommandContext(t.Context(), lab, "compare", "--networks", "calico-nftables,flannel",
			"--rounds", "1", "--name", "tc", "--dir", dir).CombinedOutput()
		t.Logf("%s", out)
		if err == nil {
			break
		}
		if try == 3 || !strings.Contains(string(out), "not measured: stopped: ") {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "compare.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Lines []struct {
			Path, Measured, Figure string
			Cells                  []struct {
				Network string
				Median  *float64
				Failed  int
			}
		}
		Runs []struct{ Network, Failed string }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Lines) < 17 || len(got.Runs) != 2 || got.Runs[0].Network != "calico-nftables" {
		t.Errorf("%d lines, runs %+v", len(got.Lines), got.Runs)
	}
	for _, line := range got.Lines {
		for _, cell := range line.Cells {
			if cell.Failed > 0 || cell.Median == nil && !strings.Contains(line.Figure, "P99") {
				t.Errorf("%s, %s, %s: %+v", line.Path, line.Measured, line.Figure, cell)
			}
		}
		if len(line.Cells) != 2 {
			t.Errorf("%+v", line)
		}
	}
	if page, err := os.ReadFile(filepath.Join(dir, "compare.html")); err != nil ||
		!strings.Contains(string(page), "2 networks under the same load") ||
		strings.Count(string(page), "<svg") != 3 {
		t.Errorf("the page: %v", err)
	}
	if after := labs(t, lab); after != before {
		t.Errorf("labs before:\n%s\nand after:\n%s", before, after)
	}
}

// labs are those of the machine.
func labs(t *testing.T, lab string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), lab, "status").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// nothingLeft waits until no object of the benchmark is left.
func nothingLeft(t *testing.T, rig *scenario.Rig) {
	without(t, rig, "pods,services,networkpolicies,namespaces")
}

// without waits until no object of Theseus of these kinds is left.
func without(t *testing.T, rig *scenario.Rig, kinds string) {
	t.Helper()
	rigtest.Within(t, time.Minute, "none of Theseus' "+kinds+" is left", func() bool {
		left, err := rig.Kubectl(t.Context(), nil, "get", kinds, "-A", "-o", "name", "-l", "theseus.dev/managed")
		return err == nil && strings.TrimSpace(left) == ""
	})
}
