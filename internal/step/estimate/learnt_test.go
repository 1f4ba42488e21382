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
	gate, adopt := estimate.Part{Kind: "gate", N: 3}, estimate.Part{Kind: "node/adopt", N: 1, Most: 20}
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
	once.Add("c", []estimate.Timed{{Part: gate, Took: time.Minute}})
	once.Steps(steps, 3, nil)
	if got := time.Duration(steps[0].Estimate); got <= gate.Takes() || got > time.Minute {
		t.Errorf("a step with a gate takes %s", got)
	}
}
