package rehearse

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestLearnt: steps that do the same on other nodes take as long as those of the copy did; others as long as their
// estimate.
func TestLearnt(t *testing.T) {
	of := func(wave, id string) step.Step {
		return step.Step{ID: id, Wave: wave, Group: wave, Does: "move pods", Estimate: step.Duration(10 * time.Second)}
	}
	original := &plan.Plan{Steps: []step.Step{of("", "install"), of("", "check"), of("wave-1", "a"),
		of("wave-2", "b"), of("wave-3", "c")}}
	copied := &plan.Plan{Steps: []step.Step{of("", "install"), of("wave-1", "a")}}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	records := []engine.Record{
		{Event: engine.StepBegan, Step: "install", At: at},
		{Event: engine.StepDone, Step: "install", At: at.Add(5 * time.Second)},
		{Event: engine.StepBegan, Step: "a", At: at.Add(5 * time.Second)},
		{Event: engine.StepDone, Step: "a", At: at.Add(25 * time.Second)},
	}
	if got, want := time.Duration(learnt(original, copied, records)), (5+10+3*20)*time.Second; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestShow: a rehearsal that did not pass is an error, whatever the run returned, and the run's own error stays.
func TestShow(t *testing.T) {
	for name, test := range map[string]struct {
		level report.Level
		end   error
		code  int
		says  string
		not   []string // covered
	}{
		"good": {report.Good, nil, exit.Done, "REHEARSAL PASSED: flannel -> calico by adopt on a copy: title", nil},
		"in part": {report.Good, nil, exit.Done, "REHEARSAL PASSED IN PART: flannel -> calico",
			[]string{"settings differ: MTU"}},
		"fair": {report.Fair, nil, exit.Done, "REHEARSAL PASSED:", nil},
		"bad": {report.Bad, nil, exit.Failed,
			"REHEARSAL DID NOT PASS: flannel -> calico by adopt on a copy: title: why", nil},
		"unknown": {report.Unknown, nil, exit.Failed, "error: the change did not pass on the copy: title: why", nil},
		"rolled back": {report.Stopped, exit.Fail(4, "h", "rolled-back: a gate failed"), 4,
			"error: rolled-back: a gate failed", nil},
	} {
		r := &result{From: "flannel", To: "calico", Strategy: "adopt", Migration: "m", Covered: len(test.not) == 0,
			Uncovered: test.not, Copy: &rehearsal.Copy{Lacks: make([]rehearsal.Lack, 2)},
			Coverage: []rehearsal.Coverage{{Area: "checks", Alike: 3, All: 4,
				Not: []string{"a: warn on the original, nothing on the copy"}}}}
		r.Passed, r.Why = passed(&report.Model{Verdict: report.Verdict{Level: test.level, Title: "title", Why: "why"}})
		var out bytes.Buffer
		code := exit.Code(&out, r.show(&app.App{Streams: app.Streams{Out: &out, Err: &out}}, test.end))
		for _, says := range []string{test.says, "not rehearsed: 2 things that the copy cannot have",
			"checks  3 of 4", "not alike: a: warn on the original"} {
			if !strings.Contains(out.String(), says) {
				t.Errorf("%s: %q is missing:\n%s", name, says, out.String())
			}
		}
		if code != test.code {
			t.Errorf("%s: exit %d, want %d", name, code, test.code)
		}
	}
}

// TestBeforeTheRun: a change that does not begin on the copy did not pass, and the file says why.
func TestBeforeTheRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rehearsal.json")
	r := &result{From: "flannel", To: "calico", Strategy: "adopt", Why: "the copy is not ready after 1m0s",
		Copy: &rehearsal.Copy{}}
	var out bytes.Buffer
	code := exit.Code(&out, r.show(&app.App{Streams: app.Streams{Out: &out, Err: &out}, Output: file},
		exit.Fail(exit.Blocked, "h", "findings block this change: 1")))
	data, err := os.ReadFile(file)
	if err != nil || code != exit.Blocked || !strings.Contains(out.String(),
		"REHEARSAL DID NOT PASS: flannel -> calico by adopt on a copy: the copy is not ready") ||
		strings.Contains(out.String(), "theseus report") || !strings.Contains(string(data), `"passed": false`) ||
		strings.Contains(string(data), "learnt") {
		t.Errorf("%v: exit %d:\n%s%s", err, code, out.String(), data)
	}
}

// TestPage: the page says first what was rehearsed and what was not, and then has the report of the run, if there was
// one. What comes from the cluster is text in it.
func TestPage(t *testing.T) {
	run := report.Model{Verdict: report.Verdict{Level: report.Good, Word: "passed", Title: "Nothing was lost"}}
	for name, test := range map[string]struct {
		run  *report.Model
		says string
	}{"a run": {&run, "<h2>Nothing was lost</h2>"}, "none": {nil, "There is no journal"}} {
		file := filepath.Join(t.TempDir(), "rehearsal.html")
		r := &result{From: "flannel", To: "calico", Strategy: "adopt", Passed: test.run != nil, Why: "why",
			Report: test.run, Back: &back{Migration: "m-1", Why: "undone"},
			Uncovered: []string{"settings differ: MTU"},
			Copy: &rehearsal.Copy{Lacks: []rehearsal.Lack{{What: "your <b>programs</b>", Follows: "stand-ins answer"}},
				Workloads: []rehearsal.Workload{{Kind: "Deployment", Namespace: "shop", Name: "web", Copy: 2}}},
			Coverage: []rehearsal.Coverage{{Area: "checks", Alike: 3, All: 4, Not: []string{"cidr/overlap: warn"}}}}
		if err := r.write(file); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		page, at := string(data), 0
		for _, says := range []string{"<h1>flannel -&gt; calico by adopt on a copy: why</h1>",
			"the rollback halfway: undone",
			"not covered: settings differ: MTU", "your &lt;b&gt;programs&lt;/b&gt;", "Deployment shop/web", "3 of 4",
			"cidr/overlap: warn", "The run on the copy", test.says} {
			i := strings.Index(page[at:], says)
			if i < 0 {
				t.Errorf("%s: %q is missing, or in another place", name, says)
				continue
			}
			at += i
		}
		if strings.Count(page, "<h1>") != 1 {
			t.Errorf("%s: %d titles", name, strings.Count(page, "<h1>"))
		}
	}
}

// TestUncovered: what the change of the original meets and that of the copy does not is named; nothing is if there is
// no such thing.
func TestUncovered(t *testing.T) {
	of := func(operations ...step.Operation) *plan.Plan {
		p := &plan.Plan{Steps: make([]step.Step, 1)}
		for _, do := range operations {
			p.Steps[0].Actions = append(p.Steps[0].Actions, step.Action{Do: do})
		}
		return p
	}
	made := &rehearsal.Copy{Workloads: make([]rehearsal.Workload, 1)}
	alike := []rehearsal.Coverage{{Area: "settings", Alike: 2, All: 2}, {Area: "checks", Alike: 1, All: 2}}
	if got := append(uncovered(made, nil, alike), unlikePlans(of(step.Apply{}),
		of(step.Apply{}, step.Evict{}))...); got != nil {
		t.Errorf("all is covered: %q", got)
	}
	bare := &rehearsal.Copy{Unbounded: []string{"ResourceQuotas (forbidden)"},
		Quotas: []rehearsal.Quota{{Unlike: []string{"ResourceQuota shop/q: pods: no bound"}}}}
	got := strings.Join(append(uncovered(bare, []string{"Deployment shop/web: 0/2 nodes"},
		[]rehearsal.Coverage{{Area: "settings", All: 1, Not: []string{"MTU"}},
			{Area: "policy verdicts", Unevaluated: []string{"AdminNetworkPolicy/a", "EgressFirewall/shop/b"}}}),
		unlikePlans(of(step.Apply{}, step.Evict{}), of(step.Apply{}))...), "\n")
	for _, want := range []string{"no workloads", "1 workload found no node: Deployment shop/web",
		"settings differ: MTU",
		"policies that are not evaluated are not in the copy: AdminNetworkPolicy/a, EgressFirewall/shop/b",
		"differ from those of the original: ResourceQuotas (forbidden), ResourceQuota shop/q: pods: no bound",
		"steps that the copy's lacks: evict"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing: %s", want, got)
		}
	}
}

// TestAfter: workloads that are not ready after the change are a change that did not pass, unless they found no node
// before.
func TestAfter(t *testing.T) {
	before := []string{"Deployment shop/gpu: no node"}
	for name, test := range map[string]struct {
		now    []string
		err    error
		passed bool
	}{
		"all ready": {nil, nil, true}, "as before": {[]string{"Deployment shop/gpu: another reason"}, nil, true},
		"no node":   {[]string{"Deployment shop/web: cordoned"}, nil, false},
		"not ready": {nil, errors.New("web is not ready"), false},
	} {
		r := &result{Passed: true}
		if r.after(before, test.now, test.err); r.Passed != test.passed || (r.Why == "") != test.passed {
			t.Errorf("%s: %v, %s", name, r.Passed, r.Why)
		}
	}
}

// TestTurn: a change is rolled back when half of the waves before its point of no return are done; one without such a
// wave is not.
func TestTurn(t *testing.T) {
	for _, c := range []struct {
		waves string // a step each: - is in no wave, ! is the point of no return
		want  int
		why   string
	}{
		{"---11-22-33--!-", 8, "three waves: with the second"},
		{"--11-22-!33", 4, "waves after the point of no return do not count"},
		{"-1-", 2, "one wave, and no point of no return"},
		{"-1!-", 0, "nothing between the wave and the point of no return"},
		{"---!1", 0, "no wave before"},
		{"", 0, "no steps"},
	} {
		p := &plan.Plan{}
		for _, one := range c.waves {
			switch one {
			case '-':
				p.Steps = append(p.Steps, step.Step{})
			case '!':
				p.Steps = append(p.Steps, step.Step{NoReturn: true})
			default:
				p.Steps = append(p.Steps, step.Step{Wave: string(one)})
			}
		}
		if got := turn(p); got != c.want {
			t.Errorf("%s: after %d steps, want %d", c.why, got, c.want)
		}
	}
}

// TestDecide: only a rollback that was asked for, that lost no more than the change allows, and that was measured,
// passes.
func TestDecide(t *testing.T) {
	p := &plan.Plan{Steps: []step.Step{{ID: "a", Title: "A"}, {ID: "b", Title: "B"}, {ID: "c", Title: "C"}}}
	steps := []engine.StepState{{ID: "a", Done: true, Undone: true}, {ID: "b", Done: true, Undone: true},
		{ID: "c", Undone: true}}
	model := func(level report.Level, sent int64, restarts int, missing ...string) *report.Model {
		return &report.Model{Verdict: report.Verdict{Level: level, Title: "title", Why: "why", Missing: missing},
			Totals: report.Totals{Sent: sent, Restarts: restarts}}
	}
	for name, c := range map[string]struct {
		state  engine.State
		model  *report.Model
		passed bool
		why    string
	}{
		"asked": {engine.State{Phase: engine.PhaseRolledBack, Asked: true},
			model(report.Stopped, 1, 0), true, "title"},
		"failed": {engine.State{Phase: engine.PhaseRolledBack}, model(report.Stopped, 1, 0), false, "title: why"},
		"lost":   {engine.State{Phase: engine.PhaseRolledBack, Asked: true}, model(report.Bad, 1, 0), false, "title"},
		"not measured": {engine.State{Phase: engine.PhaseRolledBack, Asked: true},
			model(report.Stopped, 1, 0, "node-1"), false, "title; not measured: node-1"},
		"nothing sent": {engine.State{Phase: engine.PhaseRolledBack, Asked: true}, model(report.Stopped, 0, 0),
			false, "title; not measured: "},
		"restarts": {engine.State{Phase: engine.PhaseRolledBack, Asked: true},
			model(report.Stopped, 1, 2), false, "title"},
		"stuck": {engine.State{Phase: engine.PhaseNeedsPerson, Asked: true},
			model(report.Bad, 1, 0), false, "title: why"},
		"too late": {engine.State{Phase: engine.PhaseDone}, model(report.Good, 1, 0), false,
			"the change was done before it could be rolled back: title"},
	} {
		c.state.Steps = steps
		b := &back{Migration: "m", Steps: 3}
		b.decide(p, c.state, c.model)
		if b.Passed != c.passed || b.Why != c.why || b.Done != 2 || b.From != "B" {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// TestStill: workloads that find no node after the rollback, and did before, are its fault.
func TestStill(t *testing.T) {
	b := &back{Passed: true}
	now := []string{"Deployment shop/web: no node", "Deployment shop/db: no node"}
	if err := b.still(now, func() ([]string, error) { return now, nil }); err != nil || !b.Passed {
		t.Errorf("%v, %+v", err, b)
	}
	if err := b.still(now[:1], func() ([]string, error) { return now, nil }); err == nil || b.Passed ||
		b.Why != "after the rollback: no node fits these: Deployment shop/db" {
		t.Errorf("%v, %+v", err, b)
	}
}

// TestBackText: the way back is a line of the result.
func TestBackText(t *testing.T) {
	var out strings.Builder
	r := &result{From: "flannel", To: "calico", Strategy: "adopt", Passed: true, Covered: true,
		Why: "Nothing was lost", Copy: &rehearsal.Copy{},
		Back: &back{Migration: "first", From: "Move pods of node-1", Done: 10, Steps: 27, Passed: true,
			Why: "Rolled back; nothing was lost", asked: true}}
	if err := r.text(&out); err != nil {
		t.Fatal(err)
	}
	if want := "rolled back after step 10 of 27 (Move pods of node-1): Rolled back; nothing was lost; `theseus " +
		"report first` shows that run\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%s", out.String())
	}
}
