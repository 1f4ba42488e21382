package web_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestNewPods: the page of a guard says what became of new pods, and that one which failed is bad news.
func TestNewPods(t *testing.T) {
	p := &plan.Plan{Guarded: &kind.Guard{NewPods: step.Duration(time.Minute)}, Strategy: guard.Name, Steps: []step.Step{
		{ID: guard.StepCommand, Actions: []step.Action{{ID: "c", Do: step.Command{}}}},
		{ID: guard.StepWatch, Actions: []step.Action{{ID: "w", Do: step.Watch{}}}, Gate: &step.Gate{Result: true}}}}
	at := time.Date(2026, 3, 14, 2, 10, 0, 0, time.UTC)
	shown := func(made result.NewPods) web.Now {
		data, err := json.Marshal(result.Ran{NewPods: &made})
		if err != nil {
			t.Fatal(err)
		}
		feed := web.NewFeed(p)
		feed.Publish(web.About{Held: true}, at, func(b *web.Board) {
			b.Record(engine.State{}, engine.Record{Seq: 1, At: at, Event: engine.StepBegan, Step: guard.StepCommand},
				engine.Record{Seq: 2, At: at, Event: engine.Acted, Step: guard.StepCommand, Action: "c",
					Result: engine.ResultDone, Data: data})
		})
		return feed.State().Now
	}
	var made result.NewPods
	made.Reached(time.Second, 2*time.Second)
	now := shown(made)
	if now.Tone == "bad" || !slices.Contains(now.Remarks,
		"New pods: 1 made, 1 reachable after 2.0 s (median), 2.0 s at most.") {
		t.Errorf("reachable: %s, %q", now.Tone, now.Remarks)
	}
	made.Fail(result.NewPod{Node: "b", At: at, Why: "no plugin"})
	if now = shown(made); now.Tone != "bad" || !strings.Contains(now.Loss, "b at 02:10:00 UTC: no plugin") {
		t.Errorf("failed: %s, %q", now.Tone, now.Loss)
	}
}
