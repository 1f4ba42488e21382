package path

import (
	"fmt"
	"math"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// Budgets are the names that Budget knows, the cheapest first.
const Budgets = "small, normal or fine"

// Budget is the interval of the fastest paths for a budget; 0 means the default. The intervals of all other paths
// within the cluster scale with it. No budget leaves paths out: without the second and the third ring, a node would
// measure one other node only, and a ninth of the probes would be saved.
//
// With small, hosts send every 250 ms, an eighth of the time that an answer may take. A longer interval would not show
// that a host's prober is stalled, and the probes sent to it would count as lost (loss.Stalls).
func Budget(name string) (fast time.Duration, known bool) {
	switch name {
	case "small":
		return 50 * time.Millisecond, true
	case "normal":
		return 0, true
	case "fine":
		return 5 * time.Millisecond, true
	}
	return 0, false
}

// perProbe is the processor time of one probe over UDP, there and back: docs/results.md, "What measuring costs".
const perProbe = 42 * time.Microsecond

// Rate is how often the sources of paths send.
type Rate struct {
	// All is the number of probes a second, and Most that of the node that sends most.
	All, Most float64
	// Finest and Coarsest are the shortest and the longest time between two probes, over the paths within the cluster
	// that should answer.
	Finest, Coarsest time.Duration
}

// RateOf adds up what paths send.
func RateOf(paths []v1alpha1.Path) Rate {
	var r Rate
	from := map[string]float64{}
	for _, one := range paths {
		if one.IntervalMillis <= 0 {
			continue // Build makes none
		}
		perSecond := 1000 / float64(one.IntervalMillis)
		r.All += perSecond
		from[one.Source.Node] += perSecond
		r.Most = max(r.Most, from[one.Source.Node])
		if interval := time.Duration(one.IntervalMillis) * time.Millisecond; !one.Denied && one.Class != ClassOutside {
			r.Coarsest = max(r.Coarsest, interval)
			if r.Finest == 0 || interval < r.Finest {
				r.Finest = interval
			}
		}
	}
	return r
}

// String says what the probes cost, and which gaps they see. A node answers about as many probes as it sends, so the
// time of a probe there and back counts once for each that it sends.
func (r Rate) String() string {
	text := fmt.Sprintf("up to %s probes a second in all and %s from one node, about %.1f %% of one CPU on a node "+
		"(%d µs a probe, measured over UDP: docs/results.md)", count(r.All), count(r.Most),
		100*r.Most*perProbe.Seconds(), perProbe.Microseconds())
	if r.Finest > 0 {
		text += fmt.Sprintf("; sees gaps from %d ms on the fastest paths, from %d ms on every path within the cluster",
			r.Finest.Milliseconds(), r.Coarsest.Milliseconds())
	}
	return text
}

func count(n float64) string { return cluster.Thousands(int64(math.Ceil(n - 1e-6))) }
