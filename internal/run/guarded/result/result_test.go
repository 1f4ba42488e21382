package result

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestSignals: a signal that failed since a baseline in which it held is a proof; one that is silent, or failed before,
// proves nothing.
func TestSignals(t *testing.T) {
	holds, fails, silent := signal.Answer{Signal: "a", State: signal.Holds, Says: "a is 0"},
		signal.Answer{Signal: "a", State: signal.Fails, Says: "a is 9"}, signal.Answer{Signal: "a",
			State: signal.Unknown, Says: "no answer to a"}
	other := signal.Answer{Signal: "b", State: signal.Fails, Says: "b is 9"}
	for name, test := range map[string]struct {
		before, ran, watched, after []signal.Answer
		lost                        int64
		code                        int
		interrupted                 bool
		proof                       Proof
		why                         string
	}{
		"holds":            {after: []signal.Answer{holds}, proof: Good},
		"fails at the end": {after: []signal.Answer{fails}, proof: Broken, why: "a is 9"},
		"failed during":    {ran: []signal.Answer{fails}, after: []signal.Answer{holds}, proof: Broken, why: "a is 9"},
		"failed while watched": {watched: []signal.Answer{fails}, after: []signal.Answer{fails},
			proof: Broken, why: "a is 9"},
		"silent during": {ran: []signal.Answer{silent}, after: []signal.Answer{holds},
			proof: Unproven, why: "no answer to a"},
		"silent, and another": {ran: []signal.Answer{silent}, after: []signal.Answer{other},
			proof: Broken, why: "b is 9"},
		"silent, then fails": {ran: []signal.Answer{silent}, after: []signal.Answer{fails},
			proof: Broken, why: "a is 9"},
		"failed before": {before: []signal.Answer{fails}, after: []signal.Answer{fails}, proof: Unproven,
			why: "already before the change"},
		"failed before, and other": {before: []signal.Answer{fails}, after: []signal.Answer{fails, other},
			proof: Broken, why: "b is 9"},
		"a loss, too":             {after: []signal.Answer{fails}, lost: 3, proof: Lost, why: "3 lost"},
		"the command failed, too": {after: []signal.Answer{fails}, code: 4, proof: Broken, why: "a is 9"},
		"the command failed":      {after: []signal.Answer{silent}, code: 4, proof: Failed, why: "exit code 4"},
		"interrupted": {after: []signal.Answer{silent}, interrupted: true,
			proof: Interrupted, why: "no answer to a"},
	} {
		before := test.before
		if before == nil {
			before = []signal.Answer{holds}
		}
		after := &engine.Verdict{Pass: test.lost == 0 && signal.Worst(test.after) == signal.Holds, Lost: test.lost,
			Reason: "3 lost", Signals: test.after}
		r := Result{Ran: &Ran{Code: test.code, Interrupted: test.interrupted, Signals: test.ran},
			Watched: &Watched{Quiet: true, Signals: test.watched},
			Before:  &engine.Verdict{Pass: true, Signals: before}, After: after}
		if proof, why := r.Judge(); proof != test.proof || !strings.Contains(why, test.why) {
			t.Errorf("%s: %s, %q", name, proof, why)
		}
	}
}

// TestSignalsWithoutResult: a failure that the journal has is proven, also if the result gate never answered.
func TestSignalsWithoutResult(t *testing.T) {
	fails, silent := signal.Answer{Signal: "a", State: signal.Fails, Says: "a is 9"},
		signal.Answer{Signal: "b", State: signal.Unknown, Says: "no answer to b"}
	before := &engine.Verdict{Pass: true, Signals: []signal.Answer{{Signal: "a", State: signal.Holds}}}
	for name, test := range map[string]struct {
		r     Result
		proof Proof
		why   string
	}{
		"during": {Result{Before: before, Ran: &Ran{Signals: []signal.Answer{fails}}}, Broken, "a is 9"},
		"watched": {Result{Before: before, Ran: &Ran{Code: 3},
			Watched: &Watched{Signals: []signal.Answer{silent, fails}}}, Broken, "a is 9"},
		"silent": {Result{Before: before, Ran: &Ran{Signals: []signal.Answer{silent}}}, Unproven,
			"does not have the result"},
		"nothing": {Result{}, Unproven, "does not have the result"},
	} {
		if proof, why := test.r.Judge(); proof != test.proof || !strings.Contains(why, test.why) {
			t.Errorf("%s: %s, %q", name, proof, why)
		}
	}
}

// TestShut: paths to some nodes' ports that are shut leave a good result, and name themselves. If no path is left of a
// class that every run measures, nothing is proven; a loss is.
func TestShut(t *testing.T) {
	shut := func(class string, paths, of int) path.Silence {
		return path.Silence{Class: class, Paths: paths, Of: of, Example: "a/old>b/host/udp", Shut: "UDP port 7101 of b"}
	}
	for name, test := range map[string]struct {
		silent []path.Silence
		joined []path.Silence // of nodes that joined
		lost   int64
		proof  Proof
		shut   int
	}{
		"none":        {nil, nil, 0, Good, 0},
		"one node":    {[]path.Silence{shut(path.ClassPodHost, 2, 6)}, nil, 0, Good, 1},
		"an optional": {[]path.Silence{shut(path.ClassHostPort, 3, 3)}, nil, 0, Good, 0},
		"all": {[]path.Silence{shut(path.ClassHostPort, 3, 3), shut(path.ClassPodHost, 6, 6)}, nil, 0,
			Unproven, 1},
		"a node that joined":     {nil, []path.Silence{shut(path.ClassPodHost, 1, 3)}, 0, Good, 1},
		"all of one that joined": {nil, []path.Silence{shut(path.ClassPodHost, 3, 3)}, 0, Unproven, 1},
		"its optional":           {nil, []path.Silence{shut(path.ClassHostPort, 3, 3)}, 0, Good, 0},
		"all, and a loss":        {[]path.Silence{shut(path.ClassPodHost, 6, 6)}, nil, 3, Lost, 1},
	} {
		r := Result{Ran: &Ran{JoinedSilent: test.joined}, Watched: &Watched{Quiet: true},
			Before: &engine.Verdict{Pass: true}, Silent: test.silent,
			After: &engine.Verdict{Pass: test.lost == 0, Lost: test.lost, Reason: "3 lost"}}
		proof, why := r.Judge()
		if proof != test.proof || len(r.Shut()) != test.shut || proof == Unproven &&
			(!strings.HasPrefix(why, "not covered") || !strings.HasSuffix(why, ": "+r.Shut()[0].String())) {
			t.Errorf("%s: %s, %q, %+v", name, proof, why, r.Shut())
		}
	}
}
