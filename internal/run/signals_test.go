package run

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestSignalsRun: the programs of signals are needed to go forward, and not to go back, or when no gate is left.
func TestSignalsRun(t *testing.T) {
	p := &plan.Plan{Change: v1alpha1.ChangeSpec{SLO: []string{"command: /no/such/program"}},
		Steps: []step.Step{{ID: "a", Gate: &step.Gate{}}, {ID: "b"}}}
	started := engine.Record{Seq: 1, Event: engine.Started, Data: []byte("{}")}
	begun := engine.Record{Seq: 2, Event: engine.StepBegan, Step: "a"}
	for name, test := range map[string]struct {
		desire v1alpha1.Desire
		past   []engine.Record
		needed bool
	}{
		"forward":  {v1alpha1.DesireRun, nil, true},
		"begun":    {v1alpha1.DesireRun, []engine.Record{started, begun}, true},
		"rollback": {v1alpha1.DesireRollback, []engine.Record{started, begun}, false},
		"resumed rollback": {v1alpha1.DesireRun,
			[]engine.Record{started, begun, {Seq: 3, Event: engine.RollingBack}}, false},
		"no gate is left": {v1alpha1.DesireRun,
			[]engine.Record{started, begun, {Seq: 3, Event: engine.GateAsked, Step: "a"},
				{Seq: 4, Event: engine.GateAnswer, Step: "a", Verdict: &engine.Verdict{Pass: true}},
				{Seq: 5, Event: engine.StepDone, Step: "a"}}, false},
	} {
		err := SignalsRun(p, test.desire, test.past)
		if (err != nil) != test.needed ||
			err != nil && (engine.HintOf(err) == "" || !strings.Contains(err.Error(), "/no/such/program")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := HooksRun(p); err != nil {
		t.Error(err)
	}
	p.Change.SLO = []string{"command: ./check.sh"}
	if err := SignalsRun(p, v1alpha1.DesireRun, nil); err == nil {
		t.Error("a relative program is accepted")
	}
}

// TestWatchResumed: a guard that another process has watched before, without keeping what its signals said, does not
// prove that they held.
func TestWatchResumed(t *testing.T) {
	p := &plan.Plan{Guarded: &kind.Guard{}, Strategy: "guard",
		Change: v1alpha1.ChangeSpec{SLO: []string{"http://p a < 1"}},
		Steps: []step.Step{{ID: "probes", Gate: &step.Gate{Baseline: true}},
			{ID: "watch", Gate: &step.Gate{Result: true}}}}
	intended, acted := engine.Record{Event: engine.Intended, Step: "watch"},
		engine.Record{Event: engine.Acted, Step: "watch"}
	asked := engine.Record{Event: engine.GateAsked, Step: "watch"}
	for name, test := range map[string]struct {
		past []engine.Record
		open bool
	}{
		"new":             {},
		"in the baseline": {past: []engine.Record{{Event: engine.GateAsked, Step: "probes"}}},
		"watching":        {past: []engine.Record{intended}, open: true},
		"has watched":     {past: []engine.Record{intended, acted}},
		"at the result":   {past: []engine.Record{intended, acted, asked}, open: true},
		"has the result":  {past: []engine.Record{intended, acted, asked, {Event: engine.GateAnswer, Step: "watch"}}},
	} {
		watch, err := Watch(t.Context(), p, test.past)
		if err != nil {
			t.Fatal(err)
		}
		if got := watch.Broken(); (len(got) == 1 && got[0].State == signal.Unknown) != test.open || len(got) > 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if watch, err := Watch(t.Context(), &plan.Plan{}, nil); watch != nil || err != nil {
		t.Errorf("no signals: %v, %v", watch, err)
	}
}

// passes is a gate that passes.
type passes struct{}

func (passes) Ask(ctx context.Context, _ step.Gate, heed func(context.Context) error) (engine.Verdict, error) {
	return engine.Verdict{Pass: true, Reason: "none lost"}, heed(ctx)
}

// TestAskingInRollback: a signal that fails keeps no name at the mirror.
func TestAskingInRollback(t *testing.T) {
	var rounds atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		rounds.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	p := &plan.Plan{Mirror: &mirror.Setup{}, Change: v1alpha1.ChangeSpec{SLO: []string{server.URL}},
		Steps: []step.Step{{ID: "over/1", Group: "over", Gate: &step.Gate{}},
			{ID: "home/1", Group: "home", Gate: &step.Gate{}}}}
	watch, err := Watch(t.Context(), p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if how := plan.SignalsAt(p, &step.Step{ID: "change", Group: "change"}); how != kind.SignalsWait {
		t.Errorf("while the original is changed: %d", how)
	}
	gate := Asking(passes{}, p, watch)
	heed := func(context.Context) error { return nil }
	if got, err := gate.Ask(t.Context(), step.Gate{Step: "home/1"}, heed); err != nil ||
		!got.Pass || rounds.Load() != 0 {
		t.Errorf("home, in %d rounds: %+v, %v", rounds.Load(), got, err)
	}
	if got, err := gate.Ask(t.Context(), step.Gate{Step: "over/1"}, heed); err != nil ||
		got.Pass || rounds.Load() == 0 {
		t.Errorf("over, in %d rounds: %+v, %v", rounds.Load(), got, err)
	}
	for i := range p.Steps {
		if needed := SignalsRun(&plan.Plan{Mirror: p.Mirror,
			Change: v1alpha1.ChangeSpec{SLO: []string{"command: /no/such/program"}}, Steps: p.Steps[i : i+1]},
			v1alpha1.DesireRun, nil) != nil; needed != (i == 0) {
			t.Errorf("%s needs the program: %t", p.Steps[i].ID, needed)
		}
	}
}
