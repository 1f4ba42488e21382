// Package web follows changes in real clusters on the live page of theseus web, in a real browser. What the page shows
// of runs that are made up is tested in the module test/web.
package web

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/scraped"
)

// bin holds the built programs: `make build` makes them, and these tests are of no other.
const bin = "../../../bin"

// limit is how long a wave of the changes below may take; it only ends a test that has failed.
const limit = 3 * time.Minute

// soon is how long the page may take to show a loss: agents report every ten seconds.
const soon = 30 * time.Second

// TestPageFollows: a person follows the rollout of another data plane on the page, from its first step to its end. In
// the next rollout, one node's link loses packets: the page shows it within seconds, and where, and then the gate that
// fails, and the rollback. A Prometheus scrapes both: it has the counts of the reports, and raises the alert of the
// losses.
func TestPageFollows(t *testing.T) {
	rigtest.Full(t, "two rollouts, followed on the live page in chromium")
	rig := rigtest.New(t, bin, "pf", 2, "calico")
	rig.WorldRate = 25 // a restart of Felix must not lose a connection that is masqueraded
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	prometheus := scraped.Start(t)
	toTheEnd(t, rig, prometheus)
	prometheus.NextRun()
	lossy(t, rig, prometheus)
}

// begin plans and applies a change, one node first, and opens the page.
func begin(t *testing.T, rig *scenario.Rig, prometheus *scraped.Prometheus, name string,
	args ...string) (change, web *rigtest.Process, page *reader) {
	t.Helper()
	plan := filepath.Join(rig.Dir, name+".yaml")
	if _, err := rig.Run(t.Context(), append(args, "--waves", "1,0", "--agent-image", scenario.AgentImage,
		"--probe-interval", "60ms", "--accept", scenario.FelixAlone, "-o", plan)...); err != nil {
		t.Fatal(err)
	}
	change = rigtest.Start(t, rig, "here", "apply", plan, "--yes", "--metrics", prometheus.Target)
	change.Until("Install Theseus' agent on every node") // there is a journal
	web = rigtest.Start(t, rig, "onlooker", "web")
	web.Until("open this address")
	return change, web, open(t, strings.Fields(web.Said())[0])
}

// toTheEnd follows a change that loses nothing.
func toTheEnd(t *testing.T, rig *scenario.Rig, prometheus *scraped.Prometheus) {
	change, web, page := begin(t, rig, prometheus, "there", "plan", "--dataplane", "nftables", "--bake", "10s")
	first, second := rig.NodeNames()[0], rig.NodeNames()[1]
	page.until("a run with all nodes to do", limit, func(v view) bool {
		return strings.Contains(v.Summary, "running") && v.Cells[first] == "to do" && v.Cells[second] == "to do" &&
			strings.Contains(v.Waves[first], "wave-1") && strings.Contains(v.Waves[second], "wave-2")
	})
	for i, node := range []string{first, second} {
		page.until(node+" moving", limit, func(v view) bool {
			return strings.Contains(v.Step, "Switch "+node+" to nftables") && v.Cells[node] == "moving" &&
				(i == 1 || v.Cells[second] == "to do")
		})
		page.until(node+" watched", limit, func(v view) bool {
			return v.Cells[node] == "watched" && strings.Contains(v.Step, "Gate: ")
		})
		page.until(node+" done", limit, func(v view) bool { return v.Cells[node] == "done" })
	}
	change.Ends(0, "finished: done")
	file := filepath.Join(rig.Dir, "report.json")
	if _, err := rig.Run(t.Context(), "report", "-o", file); err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct{ Totals struct{ Lost int64 } }
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	end := "The run has ended; nothing was lost"
	var perhaps []string
	if report.Totals.Lost > 0 { // by the probes of a busy machine: the page must not hide it
		t.Logf("the report has %d lost probes", report.Totals.Lost)
		end, perhaps = "The run has ended; there were losses", []string{"TheseusProbesLost", "TheseusLongGap"}
	}
	prometheus.Agrees(file, report.Totals.Lost == 0)
	prometheus.Alerts(nil, perhaps...)
	prometheus.Panels(map[string]string{
		"theseus_migrations_degraded": "the controller alone knows conditions of migrations",
	})
	page.until("the end", limit, func(v view) bool {
		return strings.Contains(v.Summary, "done") && v.Headline == end
	})
	web.Kill()
	cost := rigtest.NothingLost(t, rig, time.Minute, "iptables to nftables")
	t.Logf("the clients lost nothing of %d requests", cost.Sent())
}

// lossy follows a change during which the link of the first node loses packets.
func lossy(t *testing.T, rig *scenario.Rig, prometheus *scraped.Prometheus) {
	node := rig.NodeNames()[0]
	change, web, page := begin(t, rig, prometheus, "back", "flags", "rollout", "nftablesMode=Disabled", "--bake", "30s",
		"--max-gap", "5s")
	page.until(node+" watched on the way back", limit, func(v view) bool {
		return v.Cells[node] == "watched" && strings.HasPrefix(v.Headline, "Nothing is being lost")
	})
	link := func(args ...string) {
		t.Helper()
		if out, err := rig.InLab(t.Context(), append([]string{"link", node}, args...)...); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	link("--loss", "5%")
	begun := time.Now()
	page.until("that probes are being lost", soon, func(v view) bool {
		return strings.HasPrefix(v.Headline, "Probes are being lost now: ")
	})
	t.Logf("the page shows the loss after %s", time.Since(begun).Round(time.Second))
	page.until("where probes were lost", soon, func(v view) bool {
		_, loss, found := strings.Cut(v.Timeline, "lost probe")
		where, _, during := strings.Cut(loss, "Switch "+node+" to iptables")
		return found && during && strings.Contains(where, node+"/") && strings.Contains(where, "began during ")
	})
	page.click(node)
	page.until("the paths of the node", soon, func(v view) bool {
		return strings.HasPrefix(v.Dialog, node) && strings.Contains(v.Dialog, node+"/old>")
	})
	page.escape()
	undone := "undone: Switch " + node + " to iptables"
	page.until("the gate that failed", limit, func(v view) bool {
		return strings.Contains(v.Summary, "rolling-back") && strings.Contains(v.Step, "stop, because of "+node) &&
			strings.Contains(v.Timeline, "stop, because of "+node)
	})
	link("--clear")
	page.until("the node undone", limit, func(v view) bool {
		return v.Cells[node] == "undone" && strings.Contains(v.Timeline, undone)
	})
	page.until("the end of the rollback", limit, func(v view) bool {
		return strings.Contains(v.Summary, "rolled-back") && v.Headline == "The run has ended; there were losses" &&
			v.Cells[node] == "undone"
	})
	change.Ends(4, "stop, because of "+node, undone, "error: rolled-back: the gate of step ")
	web.Kill()
	file := filepath.Join(rig.Dir, "lossy.json")
	if _, err := rig.Run(t.Context(), "report", "-o", file); err != nil {
		t.Fatal(err)
	}
	prometheus.Agrees(file, false)
	prometheus.Alerts([]string{"TheseusProbesLost"}, "TheseusLongGap")
	for _, query := range []string{`theseus_gate_duration_seconds_count{result="failed"}`,
		`theseus_step_duration_seconds_count{result="undone"}`} {
		if len(prometheus.Ask("max_over_time("+query+"[10m]) > 0")) != 1 {
			t.Errorf("%s was 0 during the rollback", query)
		}
	}
}
