package estimate_test

import (
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// TestPace: what is left is said by what the same took before, on other nodes of this run.
func TestPace(t *testing.T) {
	said := func(group, does, wave string, seconds int) *step.Step {
		return &step.Step{ID: group + "/" + does + " of " + wave, Group: group, Does: does, Wave: wave,
			Estimate: step.Duration(time.Duration(seconds) * time.Second)}
	}
	var pace estimate.Pace
	next := said("wave-2", "move", "wave-2", 30)
	if got := pace.Takes(next); got != 30*time.Second {
		t.Errorf("before anything is known it takes %s", got)
	}
	pace.Learn(said("wave-1", "move", "wave-1", 10), 40*time.Second)
	pace.Learn(said("wave-1", "move", "wave-1", 10), 20*time.Second)
	pace.Learn(said("joint", "agents", "wave-1", 10), 5*time.Second)
	pace.Learn(said("wave-1", "renew", "wave-1", 10), 20*time.Second)
	pace.Learn(said("remove", "source", "", 10), 10*time.Second)
	for _, c := range []struct {
		step *step.Step
		want time.Duration
	}{
		{next, 90 * time.Second},
		{said("joint", "agents", "wave-2", 8), 4 * time.Second},
		{said("wave-3", "renew", "wave-3", 10), 20 * time.Second},
		{said("wave-2", "switch", "wave-2", 7), 7 * time.Second},
		{said("finish", "tidy", "", 6), 6 * time.Second},
	} {
		if got := pace.Takes(c.step); got != c.want {
			t.Errorf("%s takes %s, want %s", c.step.ID, got, c.want)
		}
	}
}
