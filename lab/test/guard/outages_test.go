package guard

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// outageFlags are those of the guards of TestGuardOutages.
var outageFlags = []string{"--agent-image", scenario.AgentImage, "--probe-interval", fastest.String(),
	"--max-lost", "3", "--baseline", "5s", "--quiet", "6s", "--watch-at-most", "1m"}

// TestGuardOutages: what a guard needs itself is away for a while: the API server while the command runs, and probers,
// or a whole node, between the start and the stop, when no process of Theseus runs.
func TestGuardOutages(t *testing.T) {
	rigtest.Full(t, "guards during which the API server is away for 30 s, probers are killed, or a node has no power: "+
		"seven minutes")
	rig := rigtest.New(t, bin, "gt", 2, "flannel")
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Run("api", func(t *testing.T) { apiAway(t, rig) })
	t.Run("probers-between", func(t *testing.T) { probersBetween(t, rig) })
	t.Run("reboot-between", func(t *testing.T) { rebootBetween(t, rig) })
}

// away is how long the API server answers nothing, while connections to it still open; then it is killed, and they do
// not.
const away = 30 * time.Second

// apiAway: the API server goes away while new pods of the guard are being made. The command runs on to its end, and the
// agents count on: right after the outage they have sent what they send in that time. Nothing is lost, so the guard is
// good.
func apiAway(t *testing.T, rig *scenario.Rig) {
	file := filepath.Join(rig.Dir, "api.json")
	p := rigtest.Start(t, rig, "here", slices.Concat([]string{"guard"}, outageFlags, []string{"-o", file, "--",
		"sh", "-c", "sleep 80; echo the command ran on"})...)
	p.Until("Run the command: ")
	rate := rateOf(t, rig)
	if rate < 50 { // of the fastest paths alone: 2 x 4 probes of 60 ms
		t.Fatalf("the plans have %.0f probes a second", rate)
	}
	before := look(t, rig)
	rigtest.HoldAPIServer(t, rig, away)
	time.Sleep(away)
	rigtest.Until(t, "the API server answers", func() bool {
		_, err := rig.Kubectl(t.Context(), nil, "get", "--raw", "/readyz")
		return err == nil
	})
	after := look(t, rig)
	took := after.at.Sub(before.at)
	t.Logf("%.0f probes a second; %d probes before the outage, %d after it, %s later", rate, before.Evidence.Sent,
		after.Evidence.Sent, took)
	// Each node publishes its counts every second or so, and a busy machine sends some probes late.
	if least := 0.85 * rate * (took - 2*time.Second).Seconds(); took < away ||
		float64(after.Evidence.Sent-before.Evidence.Sent) < least {
		t.Errorf("%d probes were sent in %s, want at least %.0f", after.Evidence.Sent-before.Evidence.Sent, took, least)
	}
	if strings.Contains(p.Said(), "| the command ran on") {
		t.Error("the command had ended before the API server was back")
	}
	rigtest.KillAPIServer(t, rig)
	p.Ends(0, "| the command ran on", "good: the command succeeded, and nothing was lost", "the report is "+file)
	if said := p.Said(); strings.Contains(said, "LOSS: ") || strings.Contains(said, "NEW POD FAILED: ") {
		t.Errorf("a loss was said, and the guard is good:\n%s", said)
	}
	rigtest.NothingLost(t, rig, time.Minute, "after the outage of the API server")
	removed(t, rig)

	got := outageReportOf(t, file)
	if len(got.Run.Measured) != 1 || len(got.PartRestarts) > 0 || got.Totals.Lost > 3 || got.Totals.Unmeasured > 0 {
		t.Errorf("the report: %+v", got)
		return
	}
	measured := got.Run.Measured[0]
	if least := 0.85 * rate * measured.To.Sub(measured.From).Seconds(); float64(got.Totals.Sent) < least ||
		got.Totals.Sent <= after.Evidence.Sent || measured.From.After(before.at) || measured.To.Before(after.at) {
		t.Errorf("%d probes from %s to %s, want at least %.0f", got.Totals.Sent, clock(measured.From),
			clock(measured.To), least)
	}
	for _, node := range rig.NodeNames() {
		if i := slices.IndexFunc(got.Nodes, func(n outageNode) bool { return n.Name == node }); i < 0 ||
			!got.Nodes[i].Reported {
			t.Errorf("%s did not report: %+v", node, got.Nodes)
		}
	}
	if n := got.NewPods; n.Since.Ready == 0 || n.Since.Failures > 0 || len(n.Failed) > 0 {
		t.Errorf("new pods: %+v", n)
	}
}

// probersBetween: the probers of a node are killed between the start and the stop of a guard, and begin new counts. The
// second responders answered for them, so nothing is lost; but their own paths were not measured for a moment, and the
// guard is not good.
func probersBetween(t *testing.T, rig *scenario.Rig) {
	node := rig.NodeNames()[1]
	begin(t, rig)
	rigtest.Run(t, rig, "here", 0, []string{" 0 lost"}, "guard", "status")
	killed := time.Now()
	out, err := rig.OnNode(t.Context(), node, "pkill", "-KILL", "-c", "-f",
		"^[^ ]*theseus-agent probe --network (old|host)")
	if err != nil || strings.TrimSpace(out) != "2" {
		t.Fatalf("%v: %s", err, out)
	}
	rigtest.Until(t, "the status says that the probers restarted", func() bool {
		said, err := rig.Run(t.Context(), "guard", "status")
		return err == nil && strings.Contains(said, "The prober of the host of "+node+" restarted at ") &&
			strings.Contains(said, "The probe pod of "+node+" on the old network restarted at ")
	})
	file := filepath.Join(rig.Dir, "probers.json")
	p := rigtest.Start(t, rig, "here", "guard", "stop", "-o", file)
	p.Ends(8, "error: not proven: ", "a prober restarted, so ", "\nhint: ", "the report is "+file)
	if strings.Contains(p.Said(), "good: ") {
		t.Errorf("paths were not measured, and the guard is good:\n%s", p.Said())
	}
	removed(t, rig)
	got := outageReportOf(t, file)
	t.Logf("restarts %+v; %+v; gaps %+v; notes %q", got.PartRestarts, got.Totals, got.Gaps, got.Verdict.Notes)
	for _, part := range []string{"old", "host"} {
		if !got.restarted(node, part, killed) {
			t.Errorf("no restart of the prober %s of %s: %+v", part, node, got.PartRestarts)
		}
	}
	if got.Verdict.Level != "unknown" || got.Totals.Sent == 0 || got.Totals.Lost > 3 {
		t.Errorf("verdict %+v, totals %+v", got.Verdict, got.Totals)
	}
}

// begin starts a guard of what others change.
func begin(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	rigtest.Run(t, rig, "here", 0, []string{"measures until `theseus guard stop`"},
		slices.Concat([]string{"guard", "start"}, outageFlags)...)
}

// rebootBetween: a node has no power between the start and the stop of a guard, until the cluster knows it. What the
// other node lost on its paths to it is a loss; its own counts began anew, and those that a look had seen before are
// not forgotten. A look after the reboot leads the paths to the new address of its probe pod.
func rebootBetween(t *testing.T, rig *scenario.Rig) {
	other, node := rig.NodeNames()[0], rig.NodeNames()[1]
	begin(t, rig)
	time.Sleep(20 * time.Second) // longer than what is measured from the reboot until the next look
	rigtest.Run(t, rig, "here", 0, []string{" 0 lost", "next: `theseus guard stop`"}, "guard", "status")
	file := filepath.Join(rig.Dir, "before.json")
	rigtest.Run(t, rig, "here", 0, nil, "guard", "report", "-o", file)
	before := outageReportOf(t, file)

	off := time.Now()
	power(t, rig, "kill", node)
	kubectl(t, rig, "wait", "--for=condition=Ready=Unknown", "node/"+node, "--timeout=150s")
	power(t, rig, "start", node)
	on := time.Now()
	kubectl(t, rig, "wait", "--for=condition=Ready", "node/"+node, "--timeout=120s")
	kubectl(t, rig, "-n", "theseus-system", "wait", "--for=condition=Ready", "pods", "--all", "--timeout=120s")
	rigtest.Run(t, rig, "here", 0, []string{"gap: ", "note: the probe pod of " + node + " has another address",
		"node " + node + " is not Ready", "node " + node + " is Ready again", "next: `theseus guard stop`"},
		"guard", "status")
	file = filepath.Join(rig.Dir, "after.json")
	rigtest.Run(t, rig, "here", 0, nil, "guard", "report", "-o", file)
	after := outageReportOf(t, file)
	was, is := before.sent(node, other), after.sent(node, other)
	t.Logf("%s to %s: %d probes before the reboot, %d after it", node, other, was, is)
	if was == 0 || is <= was {
		t.Errorf("%d probes from %s to %s before the reboot, and %d after it", was, node, other, is)
	}

	file = filepath.Join(rig.Dir, "reboot.json")
	p := rigtest.Start(t, rig, "here", "guard", "stop", "-o", file)
	p.Ends(7, "error: a loss is proven: ", "\nhint: ", node+"/", "the report is "+file)
	if strings.Contains(p.Said(), "good: ") {
		t.Errorf("a node had no power, and the guard is good:\n%s", p.Said())
	}
	removed(t, rig)
	got := outageReportOf(t, file)
	t.Logf("restarts %+v; notes %q", got.PartRestarts, got.Verdict.Notes)
	for _, part := range []string{"old", "host"} {
		if !got.restarted(node, part, off) {
			t.Errorf("no restart of the prober %s of %s: %+v", part, node, got.PartRestarts)
		}
	}
	if now := got.sent(node, other); now <= is {
		t.Errorf("%d probes from %s to %s, and before the stop %d", now, node, other, is)
	}
	// The paths to the node, to its probe pod and to its own network, are lost from the moment on at which it lost its
	// power, and not until the end.
	for _, end := range []string{"old", "host"} {
		gap := got.longest(other + "/old>" + node + "/" + end + "/udp")
		t.Logf("the node was off from %s to %s; %+v", clock(off), clock(on), gap)
		if gap.Probes == 0 || gap.Open || gap.From.Sub(off).Abs() > 5*time.Second || gap.to().Before(on) {
			t.Errorf("%s to the network %s of %s: %+v", other, end, node, gap)
		}
	}
	for _, gap := range got.Gaps {
		if gap.Open {
			t.Errorf("the node is back, and a path is lost until the end: %+v", gap)
		}
	}
	got.says(t, "node "+node+" is not Ready")
	if got.Verdict.Level != "bad" || before.Verdict.Level == "bad" || got.Totals.Lost <= 3 || before.Totals.Lost > 3 {
		t.Errorf("verdict %+v, before the reboot %+v; lost %d and %d", got.Verdict, before.Verdict, got.Totals.Lost,
			before.Totals.Lost)
	}
}

// removed demands that all is gone that a guard installs, in its namespace and in the cluster.
func removed(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	nothingLeft(t, rig)
	if left := kubectl(t, rig, "-n", "theseus-system", "get", "--ignore-not-found", "-o", "name",
		"customresourcedefinition/probeplans.theseus.dev", "customresourcedefinition/probereports.theseus.dev",
		"validatingadmissionpolicy/theseus-agent", "validatingadmissionpolicybinding/theseus-agent",
		"role/theseus-agent", "rolebinding/theseus-agent", "serviceaccount/theseus-agent"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// power switches a node off ("kill") or on ("start").
func power(t *testing.T, rig *scenario.Rig, verb, node string) {
	t.Helper()
	if out, err := rig.InLab(t.Context(), "node", verb, node); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// rateOf is how many probes a second the plans of all nodes have, on paths that have to answer.
func rateOf(t *testing.T, rig *scenario.Rig) (rate float64) {
	t.Helper()
	var plans struct {
		Items []struct {
			Spec struct {
				Paths []struct {
					Denied         bool
					IntervalMillis float64
				}
			}
		}
	}
	text := kubectl(t, rig, "-n", "theseus-system", "get", "probeplans", "-o", "json")
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	for _, plan := range plans.Items {
		for _, path := range plan.Spec.Paths {
			if !path.Denied {
				rate += 1000 / path.IntervalMillis
			}
		}
	}
	return rate
}

// looked is what theseus guard status says, and when.
type looked struct {
	at       time.Time
	Evidence struct{ Sent, Lost int64 }
}

// look asks for the state of the guard on a machine that does not run it.
func look(t *testing.T, rig *scenario.Rig) (got looked) {
	t.Helper()
	p := rigtest.Start(t, rig, "there", "guard", "status", "-o", "json")
	p.Ends(0)
	got.at = time.Now()
	said := p.Said()
	err := json.NewDecoder(strings.NewReader(said[max(strings.Index(said, "{"), 0):])).Decode(&got)
	if err != nil || got.Evidence.Sent == 0 {
		t.Fatalf("%v: %s", err, said)
	}
	return got
}

// outageReport is what TestGuardOutages reads of a report.
type outageReport struct {
	report
	Totals struct{ Sent, Lost, Unmeasured int64 }
	Run    struct {
		Measured []struct{ From, To time.Time }
	}
	Nodes []outageNode
	Cells []struct {
		Source, Target struct{ Node string }
		Sent           int64
	}
	PartRestarts []partRestart
	NewPods      struct {
		Since  struct{ Ready, Failures int }
		Failed []struct{ Node, Why string }
	}
	Verdict struct {
		Level, Line string
		Notes       []string
	}
}

type outageNode struct {
	Name     string
	Reported bool
}

type partRestart struct {
	Node, Part string
	At         time.Time
}

// sent is how many probes a node sent to another one.
func (r outageReport) sent(from, to string) (n int64) {
	for _, cell := range r.Cells {
		if cell.Source.Node == from && cell.Target.Node == to {
			n += cell.Sent
		}
	}
	return n
}

// restarted reports whether a prober of a node restarted after a moment.
func (r outageReport) restarted(node, part string, after time.Time) bool {
	return slices.ContainsFunc(r.PartRestarts, func(p partRestart) bool {
		return p.Node == node && p.Part == part && p.At.After(after)
	})
}

func outageReportOf(t *testing.T, file string) (got outageReport) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	return got
}
