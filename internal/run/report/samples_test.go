package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestForeignSamples: a connection that changed is a proven loss in all forms of the report, with its pods; one that
// never was as the policies have it, and one whose pod is gone, are told.
func TestForeignSamples(t *testing.T) {
	opened, silent := step.Try{Outcome: step.TryOpened}, step.Try{Outcome: step.TrySilent, Why: "no answer within 2s"}
	pair := func(from string, denied bool) step.Pair {
		return step.Pair{Node: "n", From: step.Pod{Namespace: "shop", Name: from},
			To: step.Pod{Namespace: "shop", Name: "vault"}, Port: 8080, Denied: denied}
	}
	good := engine.Verdict{Pass: true, Sent: 9000}
	made := func(now ...step.Try) Input {
		in := guarded(t, kind.Guard{NewPods: step.Duration(time.Minute), SamplePolicies: 3,
			Unevaluated: []string{"AdminNetworkPolicy/a: x"},
			Pairs:       []step.Pair{pair("drive", false), pair("intruder", true), pair("old", true)}}, good,
			result.Ran{}, result.Watched{Quiet: true, Samples: &result.Samples{Rounds: 2, Last: now},
				NewPods: &result.NewPods{Made: 1, Ready: 1, Took: []int64{1}}}, &good, 0)
		data, err := json.Marshal(result.Samples{Rounds: 1, Last: []step.Try{opened, silent, opened}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range in.Plan.Steps {
			if s := &in.Plan.Steps[i]; s.ID == guard.StepProbes {
				s.Actions = append(s.Actions, step.Action{ID: "s", Do: step.Sample{}})
			}
		}
		at := slices.IndexFunc(in.Records, func(r engine.Record) bool { return r.Step == guard.StepProbes })
		in.Records = slices.Insert(in.Records, at+1, engine.Record{Event: engine.Acted, Step: guard.StepProbes,
			Action: "s", Result: engine.ResultDone, Data: data, At: in.Records[at].At})
		return in
	}
	m := Build(made(opened, silent, step.Try{Outcome: step.TryGone, Why: "shop/old is ending"}))
	if m.Verdict.Level != Good || !strings.Contains(Text(m), "samples   3 connections (1 allowed, 2 denied by "+
		"policy), opened 2 times since the baseline; 1 not compared") ||
		!strings.Contains(Text(m), "because a pod is gone: shop/old") ||
		!slices.Contains(m.Verdict.Notes, "No connection was sampled about which these may decide: "+
			"AdminNetworkPolicy/a: x") ||
		!strings.Contains(strings.Join(m.Verdict.Notes, "\n"), "Before the change, the model of the policies says "+
			"that shop/old to shop/vault, TCP 8080 is denied, and the network did something else: the connection was") {
		t.Errorf("good: %+v\n%s", m.Verdict, Text(m))
	}
	m = Build(made(silent, opened, opened))
	if m.Verdict.Level != Bad || m.Verdict.Title !=
		"A loss is proven: 1 sampled connection lost, 1 denied connection let through" ||
		!strings.Contains(m.Verdict.Why, "2 sampled connections changed, such as shop/drive to shop/vault, TCP 8080") {
		t.Errorf("changed: %+v", m.Verdict)
	}
	page, err := HTML(m)
	if err != nil || !strings.Contains(string(page), "Sampled connections changed") ||
		!strings.Contains(string(page), "Denied connection let through: shop/intruder to shop/vault") {
		t.Errorf("the page: %v", err)
	}
	text, err := JSON(m)
	if err != nil || !strings.Contains(string(text), `"samples": {`) ||
		!strings.Contains(string(text), `"change": "leaked"`) || !strings.Contains(string(text), `"contradicting": [`) {
		t.Errorf("JSON: %v\n%s", err, text)
	}
	none := Build(guarded(t, kind.Guard{}, good, result.Ran{}, result.Watched{Quiet: true}, &good, 0))
	if none.Samples != nil || strings.Contains(Text(none), "samples") {
		t.Errorf("of a plan without: %+v", none.Samples)
	}
}
