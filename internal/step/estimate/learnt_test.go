package estimate_test

import (
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// TestLearnt: parts of a kind differ from the table as those of earlier runs did, the more the longer those took; other
// kinds do not.
func TestLearnt(t *testing.T) {
	gate, adopt := estimate.Part{Kind: "gate", N: 3}, estimate.Part{Kind: "node/adopt", N: 1, Most: 20, Turns: 5}
	said := adopt.Takes()
	var none *estimate.Learnt
	if none.Takes(adopt) != said {
		t.Error("nothing was learnt, and the estimate differs")
	}
	var once, often estimate.Learnt
	twice := func(n int) (parts []estimate.Timed) {
		for range n {
			parts = append(parts, estimate.Timed{Part: adopt, Took: 2 * said})
		}
		return parts
	}
	once.Add("a", twice(1))
	often.Add("a", twice(50))
	often.Add("b", twice(50))
	if once.Takes(gate) != gate.Takes() || len(often.Runs) != 2 {
		t.Errorf("gates take %s, not %s; runs %v", once.Takes(gate), gate.Takes(), often.Runs)
	}
	few, many := once.Takes(adopt), often.Takes(adopt)
	if few <= said || many <= few || many > 2*said || many < 2*said-said/50 {
		t.Errorf("of %s: after one %s, after many %s", said, few, many)
	}
	steps := []step.Step{{Gate: &step.Gate{}}}
	once.Add("c", []estimate.Timed{{Part: gate, Took: 3 * gate.Takes()}})
	once.Steps(steps, 3, nil)
	if got := time.Duration(steps[0].Estimate); got <= gate.Takes() || got > 3*gate.Takes() {
		t.Errorf("a step with a gate takes %s", got)
	}
}

// TestLearntBake: what a gate takes besides its bake is learnt and scaled, whatever the bakes of both runs.
func TestLearntBake(t *testing.T) {
	gate := func(bake time.Duration) estimate.Part {
		return estimate.Part{Kind: "gate", N: 3, Bake: step.Duration(bake)}
	}
	short, long := gate(time.Minute), gate(time.Hour)
	over := short.Takes() - time.Minute
	var learnt estimate.Learnt
	for range 1000 {
		learnt.Add("a", []estimate.Timed{{Part: short, Took: time.Minute + 3*over}})
	}
	if got := learnt.Takes(long) - time.Hour; got < 2*over || got > 3*over {
		t.Errorf("besides its bake a gate takes %s, and took 3 times %s", got, over)
	}
	learnt = estimate.Learnt{}
	learnt.Add("a", []estimate.Timed{{Part: long, Took: time.Second}}) // its clock was set
	if got := learnt.Takes(short); got < time.Minute || got > short.Takes() {
		t.Errorf("a gate takes %s", got)
	}
}

// TestLearntBounds: a factor is between a quarter and 4, and a part that an outage has held up does not count.
func TestLearntBounds(t *testing.T) {
	adopt := estimate.Part{Kind: "node/adopt", N: 1, Most: 20, Turns: 5}
	said := adopt.Takes()
	for name, test := range map[string]struct{ took, want time.Duration }{
		"slower": {9 * said, 4 * said}, "faster": {said / 100, said / 4}, "an outage": {11 * said, said},
	} {
		var learnt estimate.Learnt
		for range 1000 {
			learnt.Add("a", []estimate.Timed{{Part: adopt, Took: test.took}})
		}
		if got := learnt.Takes(adopt); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
