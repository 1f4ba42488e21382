package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/step"
)

// guarded is the input of a report on a guard: its journal, up to the removal if after is nil, and a path that lost
// probes in one gap.
func guarded(t *testing.T, g kind.Guard, before engine.Verdict, ran result.Ran, watched result.Watched,
	after *engine.Verdict, lost int64) Input {
	t.Helper()
	raw := func(value any) json.RawMessage {
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	change := step.Step{ID: guard.StepCommand, Actions: []step.Action{{ID: "c", Do: step.Command{}}}}
	if g.Others {
		change = step.Step{ID: guard.StepChange, Actions: []step.Action{{ID: "c", Do: step.Await{}}}}
	}
	in := Input{At: epoch.Add(time.Hour), Plan: &plan.Plan{Guarded: &g, Strategy: guard.Name, Steps: []step.Step{
		{ID: guard.StepProbes, Gate: &step.Gate{Baseline: true, MaxGap: step.Duration(time.Second)}}, change,
		{ID: guard.StepWatch, Actions: []step.Action{{ID: "w", Do: step.Watch{}}},
			Gate: &step.Gate{Result: true, MaxGap: step.Duration(time.Second)}}}}}
	w := &writer{at: epoch}
	for _, r := range []engine.Record{{Event: engine.Started, Data: raw(engine.Start{})},
		{Event: engine.StepBegan, Step: guard.StepProbes}, {Event: engine.GateAsked, Step: guard.StepProbes},
		{Event: engine.GateAnswer, Step: guard.StepProbes, Verdict: &before},
		{Event: engine.StepDone, Step: guard.StepProbes}} {
		w.add(time.Second, r)
	}
	switch {
	case after == nil && g.Others:
		w.add(time.Second, engine.Record{Event: engine.Paused, Result: engine.ResultMeasuring, Error: "measures"})
	case after == nil:
		w.add(time.Second, engine.Record{Event: engine.StepBegan, Step: change.ID})
		if len(ran.Signals) > 0 {
			w.add(time.Second, engine.Record{Event: engine.Intended, Step: change.ID, Action: "c"})
			w.add(time.Second, engine.Record{Event: engine.Acted, Step: change.ID, Action: "c",
				Result: engine.ResultDone, Data: raw(ran)})
		}
	default:
		for _, r := range []engine.Record{{Event: engine.StepBegan, Step: change.ID},
			{Event: engine.Intended, Step: change.ID, Action: "c"},
			{Event: engine.Acted, Step: change.ID, Action: "c", Result: engine.ResultDone, Data: raw(ran)},
			{Event: engine.StepDone, Step: change.ID}, {Event: engine.StepBegan, Step: guard.StepWatch},
			{Event: engine.Intended, Step: guard.StepWatch, Action: "w"},
			{Event: engine.Acted, Step: guard.StepWatch, Action: "w", Result: engine.ResultDone, Data: raw(watched)},
			{Event: engine.GateAsked, Step: guard.StepWatch},
			{Event: engine.GateAnswer, Step: guard.StepWatch, Verdict: after},
			{Event: engine.StepDone, Step: guard.StepWatch},
			{Event: engine.Finished, Result: engine.ResultDone}} {
			w.add(time.Second, r)
		}
	}
	in.Records = w.records
	path := v1alpha1.Path{ID: "a/old>outside/tcp:192.0.2.1:443", Class: "outside",
		Source: v1alpha1.Endpoint{Node: "a", Network: "old"}, Target: v1alpha1.Endpoint{Address: "192.0.2.1:443"},
		Protocol: v1alpha1.TCPConnect, IntervalMillis: 10}
	measured := v1alpha1.PathResult{ID: path.ID, Sent: 9000, Answered: 9000 - lost, Since: epoch,
		Last: epoch.Add(90 * time.Second)}
	if lost > 0 {
		measured.Gaps = []v1alpha1.Gap{{From: epoch.Add(time.Minute), Millis: 30, Probes: lost}}
	}
	in.Paths = []v1alpha1.Path{path}
	in.Reports = byNode(in.Paths, []v1alpha1.PathResult{measured}, epoch.Add(90*time.Second))
	return in
}

// TestForeign: the report of a guard says what its exit code says, whatever the lengths of the gaps.
func TestForeign(t *testing.T) {
	good, quiet := engine.Verdict{Pass: true, Sent: 9000}, result.Watched{Quiet: true}
	one := engine.Verdict{Sent: 9000, Lost: 1, LongestGapMillis: 30, Reason: "1 of 9,000 probes lost"}
	noisy := engine.Verdict{Pass: true, Sent: 9000, Lost: 7, LongestGapMillis: 30}
	for name, test := range map[string]struct {
		guard       kind.Guard
		before      engine.Verdict
		ran         result.Ran
		watched     result.Watched
		after       *engine.Verdict
		lost        int64
		maxLost     int64
		level       Level
		word, title string
		missing     string
	}{
		"good": {before: good, watched: quiet, after: &good, level: Good, word: "passed", title: "Nothing was lost"},
		"allowed": {before: good, watched: quiet, after: &engine.Verdict{Pass: true, Lost: 1},
			lost: 1, maxLost: 1, level: Fair, word: "passed, with losses within the limit", title: "1 probe lost"},
		"one lost probe in a short gap": {before: good, watched: quiet, after: &one, lost: 1, level: Bad,
			word: "failed", title: "A loss is proven: 1 probe lost"},
		"a prober restarted": {before: good, watched: quiet,
			after: &engine.Verdict{Reason: "a prober restarted, so 1 path was not measured for a moment"},
			level: Unknown, word: "not proven", title: "Not proven; no loss was seen", missing: "a prober restarted"},
		"a signal failed": {before: good, watched: quiet, after: &engine.Verdict{Reason: "errors is 9",
			Signals: []signal.Answer{{Signal: "s", State: signal.Fails, Says: "errors is 9"}}},
			level: Bad, word: "failed", title: "A signal failed since the baseline; no loss was seen"},
		"a silent signal": {before: good, watched: quiet, after: &engine.Verdict{
			Signals: []signal.Answer{{Signal: "s", State: signal.Unknown, Says: "no answer to errors"}}},
			level: Unknown, word: "not proven", title: "Not proven; no loss was seen", missing: "no answer to errors"},
		"not quiet": {before: good, watched: result.Watched{Why: "b was silent"}, after: &good, level: Unknown,
			word: "not proven", title: "Not proven; no loss was seen", missing: "b was silent"},
		"interrupted": {before: good, watched: result.Watched{Interrupted: true}, after: &good, level: Unknown,
			word: "not proven", title: "Interrupted; until then no loss was seen"},
		"failed": {before: good, ran: result.Ran{Code: 3}, watched: quiet, after: &good, level: Bad,
			word: "failed", title: "The command failed; no loss was seen"},
		"lossy before": {guard: kind.Guard{LossyBefore: true}, before: noisy, watched: quiet, after: &one, lost: 8,
			level: Unknown, word: "not proven", title: "Not proven; 8 probes lost",
			missing: "7 of 9000 probes lost before the change"},
		"lossy, no more": {guard: kind.Guard{LossyBefore: true}, before: noisy, watched: quiet,
			after: &engine.Verdict{Pass: true, Lost: 1, Against: &loss.Against{Harmless: true, Why: "0.1 %"}},
			lost:  8, level: Fair, word: "passed, compared with a baseline that lost probes",
			title: "The network lost probes before, and no more since; 8 probes lost"},
		"lossy, more": {guard: kind.Guard{LossyBefore: true}, before: noisy, watched: quiet,
			after: &engine.Verdict{Pass: true, Lost: 90, Against: &loss.Against{Proven: true, Why: "1 %"}}, lost: 97,
			level: Bad, word: "failed", title: "A loss is proven: 97 probes lost"},
		"lossy, undecided": {guard: kind.Guard{LossyBefore: true}, before: noisy, watched: quiet,
			after: &engine.Verdict{Pass: true, Lost: 9, Against: &loss.Against{Needs: "30s more of watching"}},
			lost:  16, level: Unknown, word: "not proven",
			title: "Not proven; 16 probes lost", missing: "30s more of watching"},
		"measuring": {guard: kind.Guard{Others: true}, before: good, level: Stopped,
			word: "until now: no loss beyond the limit", title: "Measuring; until now no loss was seen"},
		"measuring, a loss": {guard: kind.Guard{Others: true}, before: good, lost: 1, level: Bad,
			word: "until now: a loss beyond the limit", title: "Measuring; until now 1 probe lost"},
		"measuring, allowed": {guard: kind.Guard{Others: true}, before: good, lost: 1, maxLost: 1, level: Stopped,
			word: "until now: no loss beyond the limit", title: "Measuring; until now 1 probe lost"},
		"measuring, a signal": {ran: result.Ran{
			Signals: []signal.Answer{{Signal: "s", State: signal.Fails, Says: "errors is 9"}}}, before: good,
			level: Bad, word: "until now: a signal failed", title: "Not finished; until now no loss was seen"},
		"the command runs": {before: good, level: Stopped, word: "until now: no loss beyond the limit",
			title: "Not finished; until now no loss was seen"},
		"measuring, as before": {guard: kind.Guard{Others: true, LossyBefore: true}, before: noisy, lost: 90,
			level: Stopped, word: "until now: no loss beyond the limit", title: "Measuring; until now 90 probes lost"},
	} {
		in := guarded(t, test.guard, test.before, test.ran, test.watched, test.after, test.lost)
		in.Plan.Change.MaxLost = test.maxLost
		m := Build(in)
		v := m.Verdict
		if v.Level != test.level || v.Word != test.word || v.Title != test.title ||
			!strings.Contains(strings.Join(v.Missing, "\n"), test.missing) ||
			(len(v.Missing) > 0) != (test.missing != "") {
			t.Errorf("%s: %s, %q, %q, missing %q, why %q", name, v.Level, v.Word, v.Title, v.Missing, v.Why)
		}
		cost := "What measuring cost: up to 100 probes a second in all and 100 from one node, about "
		if !strings.Contains(strings.Join(v.Notes, "\n"), cost) {
			t.Errorf("%s: the notes %q", name, v.Notes)
		}
		page, err := HTML(m)
		if err != nil || !strings.Contains(string(page), `<div class="word">`+test.word+"</div>") {
			t.Errorf("%s: the page does not say %q: %v", name, test.word, err)
		}
	}
}

// TestForeignWithoutResult: a journal that is done and lacks the answer of the gate proves nothing.
func TestForeignWithoutResult(t *testing.T) {
	good := engine.Verdict{Pass: true, Sent: 9000}
	in := guarded(t, kind.Guard{}, good, result.Ran{}, result.Watched{Quiet: true}, &good, 0)
	for i := range in.Records {
		if in.Records[i].Step == guard.StepWatch {
			in.Records[i].Verdict = nil
		}
	}
	if v := Build(in).Verdict; v.Level != Unknown ||
		!strings.Contains(strings.Join(v.Missing, "\n"), "the journal does not have the result") {
		t.Errorf("%+v", v)
	}
}

// TestForeignNewPods: a new pod that failed since the baseline is a proven loss in all forms of the report, with its
// reason; what was not measured is told.
func TestForeignNewPods(t *testing.T) {
	good, since := engine.Verdict{Pass: true, Sent: 9000}, &result.NewPods{}
	for i := range 5 {
		since.Reached(time.Second, time.Duration(i+1)*time.Second)
	}
	since.Leave(result.NewPod{Node: "c", Why: "it was not admitted: exceeded quota"})
	made := func() Input {
		in := guarded(t, kind.Guard{NewPods: step.Duration(time.Minute)}, good, result.Ran{},
			result.Watched{Quiet: true, NewPods: since}, &good, 0)
		return in
	}
	m := Build(made())
	if m.Verdict.Level != Good || !strings.Contains(Text(m), "new pods  5 made, 5 reachable after 3.0 s (median), "+
		"5.0 s at most, 1 more not measured") || !strings.Contains(Text(m), "exceeded quota") {
		t.Errorf("good: %+v\n%s", m.Verdict, Text(m))
	}
	since.Fail(result.NewPod{Node: "b", At: epoch, Why: `no address: plugin "flannel" is missing`})
	m = Build(made())
	if m.Verdict.Level != Bad || m.Verdict.Title != "A loss is proven: 1 new pod failed" ||
		!strings.Contains(m.Verdict.Why, `"flannel" is missing`) {
		t.Errorf("failed: %+v", m.Verdict)
	}
	page, err := HTML(m)
	if err != nil || !strings.Contains(string(page), "New pods failed") ||
		!strings.Contains(string(page), "of 6 new pods, reachable after 3 s (median) to 5 s") {
		t.Errorf("the page: %v", err)
	}
	text, err := JSON(m)
	if err != nil || !strings.Contains(string(text), `"newPods": {`) ||
		!strings.Contains(string(text), `"failures": 1`) {
		t.Errorf("JSON: %v", err)
	}
	none := Build(guarded(t, kind.Guard{}, good, result.Ran{}, result.Watched{Quiet: true}, &good, 0))
	if none.NewPods != nil || strings.Contains(Text(none), "new pods") {
		t.Errorf("of a plan without: %+v", none.NewPods)
	}
}

// TestForeignLeftOut: only paths that a cluster may lack are no missing results, however many were left out.
func TestForeignLeftOut(t *testing.T) {
	good := engine.Verdict{Pass: true, Sent: 9000}
	shut := path.Silence{Class: path.ClassPodHost, Paths: 1, Of: 3, Example: "c/old>b/host/udp"}
	in := guarded(t, kind.Guard{}, good, result.Ran{JoinedSilent: []path.Silence{shut, shut}},
		result.Watched{Quiet: true}, &good, 0)
	end := func(node, network, address string) v1alpha1.Endpoint {
		return v1alpha1.Endpoint{Node: node, Network: network, Address: address}
	}
	in.Paths = append(in.Paths,
		v1alpha1.Path{ID: "c/old>b/host/udp", Class: path.ClassPodHost, Protocol: v1alpha1.UDP,
			Source: end("c", "old", ""), Target: end("b", "host", "198.18.0.2:7101")},
		v1alpha1.Path{ID: "c/old>b/old/udp", Class: path.ClassPodPod, Protocol: v1alpha1.UDP,
			Source: end("c", "old", ""), Target: end("b", "old", "10.244.2.2:7101")})
	if m := Build(in); m.Totals.Unmeasured != 1 {
		t.Errorf("%+v", m.Totals)
	}
	// Of two paths of the class, one was left out, for both nodes that it joins.
	shut.Joined = true
	again := shut
	again.Shared = 1
	in = guarded(t, kind.Guard{}, good, result.Ran{JoinedSilent: []path.Silence{shut, again}},
		result.Watched{Quiet: true}, &good, 0)
	for _, id := range []string{"c/old>b/host/udp", "b/old>c/host/udp"} {
		in.Paths = append(in.Paths, v1alpha1.Path{ID: id, Class: path.ClassPodHost, Protocol: v1alpha1.UDP,
			Source: end(id[:1], "old", ""), Target: end(id[6:7], "host", "198.18.0."+id[6:7]+":7101")})
	}
	m := Build(in)
	if notes := strings.Join(m.Verdict.Notes, "\n"); m.Totals.Unmeasured != 1 ||
		!strings.Contains(notes, "which have had no answer since the node joined") ||
		strings.Contains(notes, "before the change") {
		t.Errorf("%+v: %s", m.Totals, notes)
	}
}

// TestForeignLeft: the report says what was lost on the paths of a node that left, and what other nodes lost on open
// connections through Services because of that. Neither counts.
func TestForeignLeft(t *testing.T) {
	good := engine.Verdict{Pass: true, Sent: 9000}
	in := guarded(t, kind.Guard{}, good, result.Ran{}, result.Watched{Quiet: true}, &good, 0)
	leaves := epoch.Add(30 * time.Second)
	in.Left = map[string]time.Time{"b": leaves}
	results := []v1alpha1.PathResult{}
	for id, lost := range map[string]int64{"a/old>b/old/udp": 40, "a/old>service/old/udp": 5} {
		one := v1alpha1.Path{ID: id, Class: path.ClassPodService, Protocol: v1alpha1.UDP, IntervalMillis: 100,
			Source: v1alpha1.Endpoint{Node: "a", Network: "old"}, Target: v1alpha1.Endpoint{Address: "10.96.0.9:7101"}}
		if lost == 40 {
			one.Class, one.Target = path.ClassPodPod, v1alpha1.Endpoint{Node: "b", Network: "old"}
		}
		in.Paths = append(in.Paths, one)
		results = append(results, v1alpha1.PathResult{ID: id, Sent: 900, Answered: 900 - lost, Since: epoch,
			Last: epoch.Add(90 * time.Second),
			Gaps: []v1alpha1.Gap{{From: leaves.Add(time.Second), Millis: float64(100 * lost), Probes: lost}}})
	}
	in.Reports = byNode(in.Paths, append(results, v1alpha1.PathResult{ID: in.Paths[0].ID, Sent: 9000, Answered: 9000,
		Since: epoch, Last: epoch.Add(90 * time.Second)}), epoch.Add(90*time.Second))
	m := Build(in)
	notes := strings.Join(m.Verdict.Notes, "\n")
	if m.Totals.Lost != 0 || !strings.Contains(notes, "Node b left the cluster. Not counted as lost: 40 probes") ||
		!strings.Contains(notes, "Not counted as lost: 5 probes that other nodes sent over open connections") {
		t.Errorf("%+v: %s", m.Totals, notes)
	}
	in.Left = nil
	m = Build(in)
	if notes := strings.Join(m.Verdict.Notes, "\n"); m.Totals.Lost != 45 || strings.Contains(notes, "Not counted") {
		t.Errorf("nobody left: %+v: %s", m.Totals, notes)
	}
}

// TestForeignShut: paths that were left out since a node's firewall shuts their port are told, and are no missing
// results. A path without a result that was not left out is one.
func TestForeignShut(t *testing.T) {
	for _, more := range []int{0, 1} {
		good := engine.Verdict{Pass: true, Sent: 9000}
		in := guarded(t, kind.Guard{}, good, result.Ran{}, result.Watched{Quiet: true}, &good, 0)
		in.Plan.Steps[0].Actions = []step.Action{{ID: "p", Do: step.Probe{}}}
		in.Records = slices.Insert(in.Records, 2, engine.Record{At: in.Records[1].At, Event: engine.Acted,
			Step: guard.StepProbes, Action: "p", Data: json.RawMessage(`{"silent":[{"class":"pod-host","paths":1,` +
				`"of":4,"example":"a/old>b/host/udp","shut":"UDP port 7101 of b"}]}`)})
		for i := range 1 + more {
			in.Paths = append(in.Paths, v1alpha1.Path{ID: "a/old>b/host/udp" + strings.Repeat("2", i),
				Class: path.ClassPodHost, Source: v1alpha1.Endpoint{Node: "a", Network: "old"},
				Target: v1alpha1.Endpoint{Node: "b", Network: "host", Address: "198.18.0.2:7101"}})
		}
		m := Build(in)
		if m.Totals.Unmeasured != more || !strings.Contains(strings.Join(m.Verdict.Notes, "\n"),
			"drops UDP port 7101 of b: allow it") {
			t.Errorf("%d more: %+v, %q", more, m.Totals, m.Verdict)
		}
		if says := "; some ports of nodes are shut, and were not measured"; !strings.HasSuffix(m.Verdict.Title, says) {
			t.Error(m.Verdict.Title)
		}
	}
}
