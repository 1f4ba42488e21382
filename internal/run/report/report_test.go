package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/change/rollout"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares with a file of testdata, or rewrites it with -update.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; rewrite with -update):\n%s", file, diff)
	}
}

func TestText(t *testing.T) {
	for name, s := range samples() {
		t.Run(name, func(t *testing.T) {
			text := Text(Build(s.input()))
			golden(t, name+".txt", []byte(text))
			if lines := strings.Count(text, "\n"); lines > 24 {
				t.Errorf("%d lines are too many for a summary", lines)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	for _, name := range []string{"gaps", "rolled-back", "no-data"} {
		t.Run(name, func(t *testing.T) {
			data, err := JSON(Build(samples()[name].input()))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".json", data)
			if bytes.Contains(data, []byte("not for readers")) {
				t.Error("states of objects must not reach the report")
			}
		})
	}
}

// TestUndoing: a gap in a rollback says which step was rolled back, and no other gap does.
func TestUndoing(t *testing.T) {
	undoing := 0
	for _, gap := range Build(samples()["rolled-back"].input()).Gaps {
		if want := "rollback of " + gap.Undoing; (gap.Undoing != "") != strings.HasPrefix(gap.Step, "rollback of ") ||
			gap.Undoing != "" && gap.Step != want {
			t.Errorf("a gap in %q is of the rollback of %q", gap.Step, gap.Undoing)
		}
		if gap.Undoing != "" {
			undoing++
		}
	}
	if undoing == 0 {
		t.Error("no gap is of a rollback")
	}
}

func TestBuildIsDeterministic(t *testing.T) {
	in := samples()["gaps"].input()
	first, _ := JSON(Build(in))
	for range 5 {
		if again, _ := JSON(Build(in)); !bytes.Equal(first, again) {
			t.Fatal("two builds from one input differ")
		}
	}
}

func TestLevels(t *testing.T) {
	want := map[string]Level{"good": Good, "gaps": Bad, "small-gaps": Fair, "rolled-back": Bad, "no-data": Unknown,
		"large": Bad, "large-good": Good, "adopted": Fair, "half-back": Stopped}
	for name, s := range samples() {
		if got := Build(s.input()).Verdict.Level; got != want[name] {
			t.Errorf("%s: level %s, want %s", name, got, want[name])
		}
	}
}

// TestMoves: every pod that was moved has a row, whichever way, and pods that were found moved have none.
func TestMoves(t *testing.T) {
	m := Build(samples()["adopted"].input())
	if a := m.Adopted; len(m.Moves) != 6 || a.Pods != 6 || a.Back != 0 || a.Measured != 3 ||
		a.Sent != 1920 || a.Lost != 6 ||
		a.FlipMicros != [3]int64{41, 1260, 1260} || a.FlipGapMillis != [3]float64{2.5, 2.5, 2.5} ||
		a.ControlMillis[2] != 3.25 {
		t.Errorf("%d moves, %+v", len(m.Moves), m.Adopted)
	}
	page, err := HTML(m)
	if err != nil {
		t.Fatal(err)
	}
	if rows := bytes.Count(page, []byte("<td>calico</td>")); rows != 6 || !bytes.Contains(page, []byte(">41 µs</td>")) {
		t.Errorf("%d rows on the page", rows)
	}
	if a := Build(samples()["half-back"].input()).Adopted; a.Pods != 4 || a.Back != 4 {
		t.Errorf("of a rollback: %+v", a)
	}
	if m := Build(samples()["good"].input()); m.Adopted != nil || m.Moves != nil {
		t.Errorf("of another strategy: %+v", m.Adopted)
	}
}

// TestMovesOfTheseus: of the pods that were moved, Theseus' own and those that the plan does not have are told apart.
func TestMovesOfTheseus(t *testing.T) {
	p := &plan.Plan{Workloads: []plan.Workload{{Namespace: "shop", Name: "web",
		Pods: map[string][]string{"wave-1": {"web-1"}, "wave-2": {"web-2"}}}}}
	all := []Move{{Namespace: "shop", Name: "web-1"}, {Namespace: "shop", Name: "web-2"},
		{Namespace: "kube-system", Name: "controllers-1"},
		{Namespace: v1alpha1.Namespace, Name: "theseus-probe-old-a"},
		{Namespace: v1alpha1.Namespace, Name: "theseus-probe-old-a", Back: true}}
	a := adopted(p, all)
	if a.Pods != 4 || a.Own != 1 || a.Later != 1 || a.Back != 1 {
		t.Errorf("%+v", a)
	}
	if text := movesText(Model{Adopted: a}); !strings.HasPrefix(text,
		"4 pods while they ran (1 of Theseus' own, 1 that started after the plan was made), 1 back;") {
		t.Error(text)
	}
}

// TestMovesInterrupted: a process was killed after it asked an agent to move pods, and the next one got "already" as
// the answer. Those pods were moved all the same, once. Pods that were there before an action are not its moves,
// interrupted or not.
func TestMovesInterrupted(t *testing.T) {
	move := func(id string) step.Action {
		return step.Action{ID: id, Do: step.Node{Verb: step.VerbAdopt, NodeName: "a"}}
	}
	p := &plan.Plan{
		Workloads: []plan.Workload{{Namespace: "shop", Name: "web",
			Pods: map[string][]string{"wave-1": {"web-1", "web-2"}}}},
		Steps: []step.Step{{ID: "adopt", Actions: []step.Action{move("adopt/1"), move("rest/1")}}},
	}
	answer := func(action string, state step.AdoptState) engine.Record {
		text, err := json.Marshal(step.AdoptResult{Node: "a", Pods: []step.AdoptOutcome{
			{Namespace: "shop", Name: "web-1", State: state}, {Namespace: "shop", Name: "web-2", State: state},
			{Namespace: v1alpha1.Namespace, Name: "theseus-probe-old-a", State: step.AdoptAlready}}})
		if err != nil {
			t.Fatal(err)
		}
		return engine.Record{Event: engine.Acted, Step: "adopt", Action: action, Data: text}
	}
	intended := func(action string) engine.Record {
		return engine.Record{Event: engine.Intended, Step: "adopt", Action: action}
	}
	resumed := engine.Record{Event: engine.Resumed}
	for _, test := range []struct {
		name    string
		records []engine.Record
		moved   int
	}{
		{"not interrupted", []engine.Record{intended("adopt/1"), answer("adopt/1", step.AdoptMoved), intended("rest/1"),
			answer("rest/1", step.AdoptAlready)}, 2},
		{"interrupted", []engine.Record{intended("adopt/1"), resumed, answer("adopt/1", step.AdoptAlready),
			intended("rest/1"), answer("rest/1", step.AdoptAlready)}, 2},
		{"interrupted after it", []engine.Record{intended("adopt/1"), answer("adopt/1", step.AdoptMoved),
			intended("rest/1"), resumed, answer("rest/1", step.AdoptAlready)}, 2},
		{"there before", []engine.Record{resumed, intended("adopt/1"), answer("adopt/1", step.AdoptAlready)}, 0},
	} {
		if all := moves(p, test.records); len(all) != test.moved {
			t.Errorf("%s: %d pods were moved, want %d", test.name, len(all), test.moved)
		}
	}
}

// An empty input is no pass: every output works and says that nothing is known.
func TestEmpty(t *testing.T) {
	m := Build(Input{})
	if m.Verdict.Level != Unknown || len(m.Verdict.Missing) < 3 {
		t.Errorf("verdict %+v", m.Verdict)
	}
	if _, err := JSON(m); err != nil {
		t.Error(err)
	}
	if _, err := HTML(m); err != nil {
		t.Error(err)
	}
	golden(t, "empty.txt", []byte(Text(m)))
}

// Where neither network enforces policies there is no denied path: that it was not measured is said, and spoils
// nothing.
func TestUnpoliced(t *testing.T) {
	for name, level := range map[string]Level{"neither": Good, "policy agent": Unknown} {
		in := samples()["good"].input()
		in.Plan.Source.Capabilities.Policy, in.Plan.Target.Capabilities.Policy = cni.PolicyNone, cni.PolicyNone
		if name == "policy agent" {
			in.Plan.Target.PolicyAgent = &step.Ref{Kind: "DaemonSet", Name: "kube-router"}
		}
		for _, path := range in.Paths {
			if path.Denied {
				dropPath(&in, path.ID)
			}
		}
		in.Paths = slices.DeleteFunc(in.Paths, func(p v1alpha1.Path) bool { return p.Denied })
		v := Build(in).Verdict
		said := slices.Contains(v.Uncovered, "paths that a policy denies: neither network enforces policies")
		if v.Level != level || said != (level == Good) {
			t.Errorf("%s: level %s, missing %q, uncovered %q", name, v.Level, v.Missing, v.Uncovered)
		}
	}
}

// One thing that is not measured must keep a good run from being called good.
func TestNoDataIsNoPass(t *testing.T) {
	tests := map[string]func(*Input){
		"no reports":       func(in *Input) { in.Reports = nil },
		"results not read": func(in *Input) { in.Unread = []string{"evidence.json.unread"} },
		"one node silent":  func(in *Input) { in.Reports = in.Reports[1:] },
		"a path without result": func(in *Input) {
			in.Paths = append(in.Paths, v1alpha1.Path{ID: "x>y/udp", Class: "pod-pod"})
		},
		"no workloads":          func(in *Input) { in.Workloads = nil },
		"no inventory":          func(in *Input) { in.InventoriesBefore, in.InventoriesAfter = nil, nil },
		"one inventory missing": func(in *Input) { delete(in.InventoriesAfter, "a-node-2") },
		"no denied path": func(in *Input) {
			for i := range in.Paths {
				if in.Paths[i].Denied {
					in.Paths[i].Denied = false
					dropPath(in, in.Paths[i].ID)
				}
			}
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			in := samples()["good"].input()
			spoil(&in)
			v := Build(in).Verdict
			if v.Level != Unknown || len(v.Missing) == 0 {
				t.Errorf("level %s, missing %q", v.Level, v.Missing)
			}
		})
	}
}

// A run whose paths all stay in the cluster is not good, however little it lost: that is what hid the loss of
// masqueraded connections.
func TestOutsideNotMeasured(t *testing.T) {
	in := samples()["good"].input()
	if v := Build(in).Verdict; v.Level != Good || v.Outside != "measured" {
		t.Errorf("measured: level %s, outside %q", v.Level, v.Outside)
	}
	for _, path := range slices.Clone(in.Paths) {
		if path.Class == "outside" {
			dropPath(&in, path.ID)
		}
	}
	in.Paths = slices.DeleteFunc(in.Paths, func(path v1alpha1.Path) bool { return path.Class == "outside" })
	m := Build(in)
	if v := m.Verdict; v.Level != Partial || v.Outside != "not measured" ||
		v.Title != "Nothing was lost inside the cluster; outside: not measured" ||
		!strings.Contains(v.Line, ", outside: not measured, ") {
		t.Errorf("level %s, outside %q: %s\n%s", v.Level, v.Outside, v.Title, v.Line)
	}
	if text := Text(m); !strings.Contains(text, "\noutside   not measured\n") {
		t.Error(text)
	}
}

// Where nothing was lost, no part of a report speaks of a gap: how long a client was without an answer is told as that.
func TestNoGapIsNoGap(t *testing.T) {
	in := samples()["good"].input()
	in.Traffic[0].LongestGapMillis = 763
	m := Build(in)
	if want := ", no gap on any path, clients at most 763 ms without an answer"; !strings.HasSuffix(m.Verdict.Line,
		want) {
		t.Errorf("%q does not end in %q", m.Verdict.Line, want)
	}
	text := Text(m)
	page, err := HTML(m)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text, "longest gap") || strings.Contains(string(page), "longest gap 763") ||
		strings.Contains(string(page), ">763 ms</dd>") {
		t.Error(text)
	}
	if !strings.Contains(text, "0 failed, at most 763 ms without an answer") {
		t.Error(text)
	}
}

func dropPath(in *Input, id string) {
	for i := range in.Reports {
		kept := in.Reports[i].Status.Paths[:0]
		for _, result := range in.Reports[i].Status.Paths {
			if result.ID != id {
				kept = append(kept, result)
			}
		}
		in.Reports[i].Status.Paths = kept
	}
}

// A series of reports of one growing count is that count once; a restarted prober's count is added to it.
func TestMergeSeries(t *testing.T) {
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	report := func(results ...v1alpha1.PathResult) v1alpha1.ProbeReport {
		return v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: "a"},
			Status: v1alpha1.ProbeReportStatus{Paths: results}}
	}
	early := v1alpha1.PathResult{ID: "a/old>b/new/udp", Sent: 100, Answered: 98, Since: at(0), Last: at(1000),
		Gaps: []v1alpha1.Gap{{From: at(300), Millis: 10, Probes: 1}},
		Open: &v1alpha1.Gap{From: at(990), Millis: 10, Probes: 1}}
	late := v1alpha1.PathResult{ID: "a/old>b/new/udp", Sent: 200, Answered: 196, Since: at(0),
		Last: at(2000), Dropped: 2, Gaps: []v1alpha1.Gap{{From: at(990), Millis: 30, Probes: 3}}}
	restarted := v1alpha1.PathResult{ID: "a/old>b/new/udp", Sent: 50, Answered: 49, Since: at(3000), Last: at(3500),
		Open: &v1alpha1.Gap{From: at(3400), Millis: 100, Probes: 1}}
	for _, reports := range [][]v1alpha1.ProbeReport{
		{report(early), report(late), report(restarted)},
		{report(restarted), report(late), report(early), report(late)},
	} {
		all := account(nil, reports)
		if len(all) != 1 {
			t.Fatalf("%d paths", len(all))
		}
		m := all[0]
		if m.Sent != 250 || m.Lost != 5 || len(m.Gaps) != 3 || m.Hidden != 1 ||
			len(measuredSpans(all)) != 1 || len(m.Results) != 2 {
			t.Errorf("sent %d, lost %d, gaps %+v, hidden %d, spans %v",
				m.Sent, m.Lost, m.Gaps, m.Hidden, measuredSpans(all))
		}
		if last := m.Gaps[2]; !last.Open || last.Millis != 100 {
			t.Errorf("the open gap lasts to the last probe: %+v", last)
		}
		if m.Source.Node != "a" || m.Target.Network != "new" {
			t.Errorf("ends are read from the id: %+v", m.Path)
		}
	}
}

// A prober that restarts costs no verdict where the second responder next to it answered meanwhile, and hides no loss
// where that was silent too.
func TestRestartedProber(t *testing.T) {
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	end := func(node string) v1alpha1.Endpoint { return v1alpha1.Endpoint{Node: node, Network: "host"} }
	for name, test := range map[string]struct {
		second        v1alpha1.Second
		lost, excused int64
	}{
		"the second responder answered": {v1alpha1.Second{Answered: 8, SilentMillis: 300}, 0, 20},
		"it did not":                    {v1alpha1.Second{}, 20, 0},
		"not all the time":              {v1alpha1.Second{Answered: 3, SilentMillis: 1400}, 20, 0},
	} {
		in := Input{
			Paths: []v1alpha1.Path{
				{ID: "a/host>b/host/udp", Source: end("a"), Target: end("b"), IntervalMillis: 100,
					Second: "192.0.2.2:7103"},
				{ID: "b/host>a/host/udp", Source: end("b"), Target: end("a"), IntervalMillis: 100,
					Second: "192.0.2.1:7103"},
			},
			Reports: []v1alpha1.ProbeReport{{ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Status: v1alpha1.ProbeReportStatus{
					Paths: []v1alpha1.PathResult{{ID: "a/host>b/host/udp", Sent: 300, Answered: 280,
						Since: at(0), Last: at(30000), Gaps: []v1alpha1.Gap{{From: at(10000), Millis: 2000, Probes: 20,
							Cause: "connection refused", Second: test.second}}}},
					Parts: []v1alpha1.Part{{Name: "host", Since: at(-1000)}},
				}}, {ObjectMeta: metav1.ObjectMeta{Name: "b"}, Status: v1alpha1.ProbeReportStatus{
				Paths: []v1alpha1.PathResult{
					{ID: "b/host>a/host/udp", Sent: 100, Answered: 100, Since: at(0), Last: at(9950)},
					{ID: "b/host>a/host/udp", Sent: 180, Answered: 180, Since: at(13200), Last: at(30000)}},
				Parts: []v1alpha1.Part{{Name: "host", Since: at(12000),
					Gone: []v1alpha1.Absence{{From: at(9950), To: at(12000)}}}},
			}}},
		}
		if m := Build(in); m.Totals.Lost != test.lost || m.Totals.Excused != test.excused {
			t.Errorf("%s: %d lost, %d excused", name, m.Totals.Lost, m.Totals.Excused)
		}
		in.Reports[1].Status.Parts[0].Gone = nil
		if m := Build(in); m.Totals.Lost != 20 {
			t.Errorf("%s, and no prober restarted: %d lost", name, m.Totals.Lost)
		}
	}
}

// Probes to a process that stood still, as its own paths tell, are no lost ones; the report says how many they were.
func TestExcusedNotLost(t *testing.T) {
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	end := func(node string) v1alpha1.Endpoint { return v1alpha1.Endpoint{Node: node, Network: "old"} }
	in := Input{
		Paths: []v1alpha1.Path{
			{ID: "a/old>b/old/udp", Source: end("a"), Target: end("b"), IntervalMillis: 100},
			{ID: "b/old>a/old/udp", Source: end("b"), Target: end("a"), IntervalMillis: 100},
		},
		Reports: []v1alpha1.ProbeReport{{Status: v1alpha1.ProbeReportStatus{Paths: []v1alpha1.PathResult{
			{ID: "a/old>b/old/udp", Sent: 300, Answered: 292, Since: at(0), Last: at(30000),
				Gaps: []v1alpha1.Gap{{From: at(10000), Millis: 700, Probes: 7},
					{From: at(20000), Millis: 100, Probes: 1}}},
			{ID: "b/old>a/old/udp", Sent: 276, Answered: 276, Since: at(0), Last: at(30000),
				Stalls: []v1alpha1.Gap{{From: at(10020), Millis: 2400, Probes: 24}}},
		}}}},
	}
	m := Build(in)
	if m.Totals.Lost != 1 || m.Totals.Excused != 7 || m.Totals.Gaps != 1 || m.Totals.ProbeGapMillis != 100 {
		t.Errorf("%+v", m.Totals)
	}
	if text := Text(m); !strings.Contains(text,
		"note      Not counted as lost: 7 probes that got no answer while all possible responders were stalled.") {
		t.Error(text)
	}
}

// What a missing description would have said is read from the id, so that a denied path is not taken for a lost one.
func TestDescribeFromID(t *testing.T) {
	tests := map[string]v1alpha1.Path{
		"a/old>b/new/udp": {Source: v1alpha1.Endpoint{Node: "a", Network: "old"},
			Target: v1alpha1.Endpoint{Node: "b", Network: "new"}},
		"a/old>b/old/udp/denied": {Source: v1alpha1.Endpoint{Node: "a", Network: "old"},
			Target: v1alpha1.Endpoint{Node: "b", Network: "old"}, Denied: true},
		"a/host>service/new/tcp": {Source: v1alpha1.Endpoint{Node: "a", Network: "host"},
			Target: v1alpha1.Endpoint{Network: "new"}},
		"a/new>dns":               {Source: v1alpha1.Endpoint{Node: "a", Network: "new"}},
		"made by somebody else\n": {},
	}
	for id, want := range tests {
		want.ID, want.Class = id, "undescribed"
		if diff := cmp.Diff(want, describe(nil, id)); diff != "" {
			t.Errorf("%q:\n%s", id, diff)
		}
	}
}

// Every gap is placed in exactly one step, or said to be outside.
func TestGapsArePlaced(t *testing.T) {
	in := samples()["good"].input()
	last := in.Records[len(in.Records)-1].At
	gap := func(at time.Time) v1alpha1.Gap { return v1alpha1.Gap{From: at, Millis: 20, Probes: 2} }
	begins := map[string]time.Time{}
	for _, r := range in.Records {
		if r.Event == "step-began" {
			begins[r.Step] = r.At
		}
	}
	in.Reports[0].Status.Paths[0].Gaps = []v1alpha1.Gap{gap(epoch.Add(-time.Second)),
		gap(begins["wave-1/a-node-1/move"].Add(time.Second)), gap(last.Add(time.Second))}
	var steps []string
	for _, g := range Build(in).Gaps {
		steps = append(steps, g.Step)
	}
	if diff := cmp.Diff([]string{beforeRun, "wave-1/a-node-1/move", afterRun}, steps); diff != "" {
		t.Error(diff)
	}
}

// A loss after the last record is placed where the run is by then: it is not over before it says so.
func TestGapsAfterTheLastRecord(t *testing.T) {
	const move = "wave-1/a-node-1/move"
	records := samples()["good"].input().Records
	find := func(event engine.Event) int {
		return slices.IndexFunc(records, func(r engine.Record) bool { return r.Event == event && r.Step == move })
	}
	begins, ends := find(engine.StepBegan), find(engine.StepDone)
	finished := engine.Record{Event: engine.Finished, Result: engine.ResultNeedsPerson}
	for name, test := range map[string]struct {
		n     int
		more  []engine.Record
		place string
	}{
		"a step is under way": {begins + 1, nil, move},
		"none is":             {ends + 1, nil, betweenRun},
		"paused":              {begins + 1, []engine.Record{{Event: engine.Paused}}, whilePause},
		"continued":           {begins + 1, []engine.Record{{Event: engine.Paused}, {Event: engine.Resumed}}, move},
		"rolling back":        {begins + 1, []engine.Record{{Event: engine.RollingBack}}, "rollback of " + move},
		"a step is taken back": {begins + 1, []engine.Record{{Event: engine.TakingBack, Step: move}},
			"rollback of " + move},
		"a person has to decide": {begins + 1, []engine.Record{finished}, afterRun},
	} {
		in := samples()["good"].input()
		in.Records = records[:test.n:test.n]
		for _, r := range test.more {
			before := in.Records[len(in.Records)-1]
			r.Seq, r.At = before.Seq+1, before.At.Add(time.Second)
			in.Records = append(in.Records, r)
		}
		at := in.Records[len(in.Records)-1].At.Add(time.Second)
		in.Reports[0].Status.Paths[0].Gaps = []v1alpha1.Gap{{From: at, Millis: 20, Probes: 2}}
		if gaps := Build(in).Gaps; len(gaps) != 1 || gaps[0].Step != test.place {
			t.Errorf("%s: %+v, want %s", name, gaps, test.place)
		}
	}
}

func TestWords(t *testing.T) {
	for ms, want := range map[float64]string{0: "0 ms", 0.44: "0.4 ms", 6: "6 ms", 380: "380 ms", 999.7: "1 s",
		1254: "1.25 s", 200_000: "3 min 20 s", 7_500_000: "2 h 5 min"} {
		if got := duration(ms); got != want {
			t.Errorf("duration(%v) = %q, want %q", ms, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 481203: "481,203",
		-1234567: "-1,234,567"} {
		if got := number(n); got != want {
			t.Errorf("number(%d) = %q, want %q", n, got, want)
		}
	}
}

// TestStalls: time in which a prober did not run is told, and so are the answers that it found late for that.
func TestStalls(t *testing.T) {
	s := sample{nodes: 3}
	input := s.input()
	for i := range input.Reports {
		for j := range input.Reports[i].Status.Paths {
			input.Reports[i].Status.Paths[j].Stalls = nil
		}
	}
	path := &input.Reports[len(input.Reports)-1].Status.Paths[0]
	path.Stalls = []v1alpha1.Gap{{From: path.Last.Add(-5 * time.Second), Millis: 3300}}
	path.Excused = 154
	const want = "Probers stalled once; the longest stall was 3.3 s on %s. A stalled prober sends nothing, so " +
		"nothing was measured in that time. 154 answers arrived during a stall and were read after their timeout; " +
		"they are not counted as lost."
	text := Text(Build(input))
	node, _, _ := strings.Cut(path.ID, "/")
	if !strings.Contains(text, strings.Replace(want, "%s", node, 1)) {
		t.Errorf("the note is not in\n%s", text)
	}
}

// TestPoolResidue: a change of the range of pods removes no network, so nothing is missing when it is done.
func TestPoolResidue(t *testing.T) {
	done := []engine.Record{{Event: engine.Finished, Result: engine.ResultDone}}
	for _, test := range []struct {
		plan  *plan.Plan
		wants bool
	}{{&plan.Plan{Strategy: "pool", Pools: &kind.Pools{}}, false}, {&plan.Plan{Strategy: "recreate"}, true}} {
		m := Build(Input{Plan: test.plan, Records: done})
		missing := slices.Contains(m.Verdict.Missing, "The residue of the old network was not inventoried.")
		if m.Run.Outcome != Done || missing != test.wants {
			t.Errorf("%s, %s: missing %q", test.plan.Strategy, m.Run.Outcome, m.Verdict.Missing)
		}
	}
}

// TestRolloutResidue: a report says that no rules were left only where rules were moved.
func TestRolloutResidue(t *testing.T) {
	moved := map[string]rollout.Turn{"a": {From: "iptables", To: "iptables"}, "b": {From: "iptables", To: "nftables"}}
	for want, flag := range map[string]*kind.Rollout{
		"every node proved":      {Flag: "nftablesMode", From: "iptables", To: "nftables"},
		"every node proved that": {Flag: "nftablesMode", Origin: &plan.Origin{Turns: moved}},
		"not inventoried":        {Flag: "bpf-lb-acceleration", Says: "'native'"},
		"not inventoried:":       {Flag: "iptablesRefreshInterval", From: "iptables", To: "iptables", Says: "1m0s"},
	} {
		m := Build(Input{Plan: &plan.Plan{Strategy: rollout.Name, Rollout: flag}})
		if got := residueText(m); !strings.HasPrefix(got, want) {
			t.Errorf("%+v: %q", flag, got)
		}
	}
}
