package rigtest

import (
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/workload/serve"
	"github.com/theseus-cni/theseus/lab/internal/workload/tally"
)

// TestHeldUp excuses only the requests that waited while their server answered nobody.
func TestHeldUp(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	lost := []tally.Error{{At: at(10), After: 5000}}
	for _, held := range []struct {
		name    string
		slow    []serve.Span
		excused uint64
	}{
		{"the server answered itself", nil, 0},
		{"it was held up all the time", []serve.Span{{From: at(10.05), To: at(15.2)}}, 1},
		{"it was held up before", []serve.Span{{From: at(4), To: at(10.5)}}, 0},
		{"it was held up for a part of the time",
			[]serve.Span{{From: at(10), To: at(12)}, {From: at(12), To: at(15)}}, 0},
		{"it was held up for longer", []serve.Span{{From: at(4), To: at(5)}, {From: at(8), To: at(18)}}, 1},
	} {
		if n := heldUp(lost, held.slow); n != held.excused {
			t.Errorf("%s: %d of 1 requests are excused, want %d", held.name, n, held.excused)
		}
	}
}
