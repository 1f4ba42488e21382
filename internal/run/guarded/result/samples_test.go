package result

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

var (
	open, refused, silent = step.Try{Outcome: step.TryOpened}, step.Try{Outcome: step.TryRefused},
		step.Try{Outcome: step.TrySilent, Why: "no answer within 2s"}
	rejected, gone = step.Try{Outcome: step.TryRejected}, step.Try{Outcome: step.TryGone, Why: "x/b was replaced"}
	untried        = step.Try{Outcome: step.TryUntried, Why: "no agent"}
	target         = step.Pod{Namespace: "x", Name: "b"}
	allows         = step.Pair{From: step.Pod{Namespace: "x", Name: "a"}, To: target, Port: 80}
	denies         = step.Pair{From: step.Pod{Namespace: "x", Name: "c"}, To: target, Port: 80, Denied: true}
)

// TestTurns: a pair is compared with itself. One that gets through no more is lost, whatever policy says; one that is
// denied and gets through only now is leaked; a pod that is gone proves nothing.
func TestTurns(t *testing.T) {
	for name, test := range map[string]struct {
		pair        step.Pair
		before, now step.Try
		turn        Turn
		contradicts bool
	}{
		"stays open":                   {allows, open, open, "", false},
		"stays closed":                 {denies, silent, rejected, "", false},
		"no answer":                    {allows, open, silent, Cut, false},
		"rejected":                     {allows, open, rejected, Cut, false},
		"nothing listens, then silent": {allows, refused, silent, Cut, false},
		"the program stops":            {allows, open, refused, Refuses, false},
		"the program starts":           {allows, refused, open, "", false},
		"denied, and answers":          {denies, silent, open, Leaked, false},
		"denied, and refuses":          {denies, silent, refused, Leaked, false},
		"denied, rejected, answers":    {denies, rejected, open, Leaked, false},
		"never was open":               {allows, silent, silent, "", true},
		"mended":                       {allows, silent, open, Opens, true},
		"always leaked":                {denies, open, open, "", true},
		"leaked, and is cut":           {denies, open, silent, Cut, true},
		"the pod is gone":              {allows, open, gone, Left, false},
		"not tried now":                {allows, open, untried, Unknown, false},
		"not tried before":             {denies, untried, open, Unknown, false},
	} {
		if turn := TurnOf(test.pair, test.before, test.now); turn != test.turn {
			t.Errorf("%s: %q", name, turn)
		}
		if Contradicts(test.pair, test.before) != test.contradicts {
			t.Errorf("%s: it contradicts: %t", name, !test.contradicts)
		}
	}
}

// TestSamplesJudged: pairs that changed are a proven loss, also if they did so for a while; without samples after the
// change, or with none that can be compared, nothing is proven.
func TestSamplesJudged(t *testing.T) {
	both := func(a, d step.Try) *Samples { return &Samples{Rounds: 1, Last: []step.Try{a, d}} }
	for name, test := range map[string]struct {
		before, ran, watched *Samples
		interrupted          bool
		proof                Proof
		why                  string
	}{
		"as before": {both(open, silent), nil, both(open, silent), false, Good, ""},
		"lost": {both(open, silent), nil, both(silent, silent), false, Lost,
			"1 sampled connection changed, such as x/a to x/b, TCP 80 (allowed by policy): no answer within 2s; " +
				"before the change: the connection was opened"},
		"leaked": {both(open, silent), nil, both(open, open), false, Lost, "x/c to x/b, TCP 80 (denied by policy)"},
		"both":   {both(open, silent), nil, both(silent, open), false, Lost, "2 sampled connections changed"},
		"for a while": {both(open, silent), &Samples{Rounds: 3, Turned: []Sampled{{Pair: 1, Try: open}}},
			both(open, silent), false, Lost, "x/c to x/b"},
		"a pod went":      {both(open, silent), nil, both(gone, silent), false, Good, ""},
		"all pods went":   {both(open, silent), nil, both(gone, gone), false, Unproven, "could be compared"},
		"never as policy": {both(silent, open), nil, both(silent, open), false, Good, ""},
		"not before":      {nil, nil, both(open, silent), false, Unproven, "before the change"},
		"not after":       {both(open, silent), nil, nil, false, Unproven, "after the change"},
		"not all after": {both(open, silent), nil, &Samples{Rounds: 1, Lacks: "no agent"}, false, Unproven,
			"no agent"},
		"interrupted": {both(open, silent), nil, nil, true, Interrupted, "no loss is proven"},
		"a foreign number": {both(open, silent), &Samples{Turned: []Sampled{{Pair: 7}}}, both(open, silent), false,
			Good, ""},
	} {
		good := &engine.Verdict{Pass: true}
		r := Result{Ran: &Ran{Samples: test.ran}, Before: good, After: good, SampledBefore: test.before,
			Watched: &Watched{Quiet: true, Samples: test.watched, Interrupted: test.interrupted},
			pairs:   []step.Pair{allows, denies}}
		if proof, why := r.Judge(); proof != test.proof || !strings.Contains(why, test.why) {
			t.Errorf("%s: %s, %q", name, proof, why)
		}
	}
}
