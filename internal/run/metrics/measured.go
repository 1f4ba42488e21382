package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

const (
	// settleAfter is how long a loss must have been in the account before it is counted: until then, the report of a stalled responder may
	// excuse it, and a counter must not decrease. It is counted at most twice as late.
	settleAfter = 10 * time.Second
	// mostNodes is how many nodes have series of their own; further ones share the name otherNode.
	mostNodes = 5000
	// mostHistograms is how many nodes have histograms of their own. With more, the histograms have no node, for all nodes.
	mostHistograms = 250
	// other is the class of paths, and the node, that have no series of their own.
	other = "other"
)

// The values of the label result. On a path that should answer, a probe is one of the first four; on a denied path, one of the others.
const (
	resultAnswered       = "answered"
	resultLate           = "late"
	resultExcused        = "excused"
	resultLost           = "lost"
	resultBlocked        = "blocked"
	resultDeniedAnswered = "denied_answered"
)

// gapBounds are the bounds of gaps, in seconds.
var gapBounds = []float64{0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// tripBounds are the bounds of round trips, in microseconds: ends of ranges of v1alpha1.PathResult.RTTCounts.
var tripBounds = []int64{128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576}

var (
	probesDesc = prometheus.NewDesc("theseus_path_probes_total",
		"Number of probes of the run by class of path, sending node and result: answered, late, excused or lost; of denied paths, blocked or denied_answered.",
		[]string{"class", "node", "result"}, nil)
	gapsDesc = prometheus.NewDesc("theseus_path_gap_duration_seconds",
		"Length of gaps that have ended, by class of path and sending node; of denied paths, of the time in which they were answered.", []string{"class", "node"}, nil)
	tripsDesc = prometheus.NewDesc("theseus_path_round_trip_seconds",
		"Round trips of answered probes by class of path and sending node. The sum is estimated from the buckets of the agents' reports.", []string{"class", "node"}, nil)
	pathsDesc  = prometheus.NewDesc("theseus_paths", "Number of paths of the run that were ever measured, by class.", []string{"class"}, nil)
	newestDesc = prometheus.NewDesc("theseus_newest_probe_timestamp_seconds", "When the newest probe in any report was sent, on its sender's clock.", nil, nil)
	runDesc    = prometheus.NewDesc("theseus_run_info", "1, with the migration whose probes are counted.", []string{"migration"}, nil)
)

// key is what a series is of.
type key struct{ class, node string }

// measured are the results of the probes of one run. It is a prometheus.Collector, which shows the numbers of the last call of add.
type measured struct {
	lock      sync.Mutex
	migration string
	nodes     map[string]bool
	probes    map[key]*probes
	gaps      map[key]*gaps
	trips     map[key]*loss.RoundTrips
	paths     map[string]int
	newest    time.Time
	counted   map[string]time.Time // by path, the begin of the last gap that is in gaps
	rotated   time.Time
}

// probes are the results of one class of paths and one node.
type probes struct {
	shown loss.Counts // no number decreases
	// denied is whether policy denies the paths.
	denied bool
	// lost are the losses in the account now, at the last rotation, and at the one before.
	lost, old, older int64
}

// gaps are a histogram.
type gaps struct {
	counts []uint64 // cumulative, by gapBounds
	total  uint64
	sum    float64 // seconds
}

func newMeasured() *measured {
	m := &measured{}
	m.begin("")
	return m
}

func (m *measured) begin(migration string) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.migration, m.nodes, m.probes, m.gaps, m.trips = migration, map[string]bool{}, map[key]*probes{}, map[key]*gaps{}, map[key]*loss.RoundTrips{}
	m.paths, m.counted, m.newest, m.rotated = map[string]int{}, map[string]time.Time{}, time.Time{}, time.Time{}
}

// add takes the account of all paths of the run, which has grown since the last call.
func (m *measured) add(account loss.Account, now time.Time) {
	m.lock.Lock()
	defer m.lock.Unlock()
	first := m.rotated.IsZero() // losses that earlier processes have seen are settled
	rotates := now.Sub(m.rotated) >= settleAfter
	sums := map[key]*loss.Counts{}
	clear(m.paths)
	m.trips = map[key]*loss.RoundTrips{}
	for _, p := range account {
		if p.Sent == 0 {
			continue
		}
		of := m.keyOf(p)
		if sums[of] == nil {
			sums[of] = &loss.Counts{}
		}
		sums[of].Add(p.Counts)
		m.paths[of.class]++
		if m.probes[of] == nil {
			m.probes[of] = &probes{denied: p.Denied}
		}
		m.roundTrips(of, p)
		m.ended(of, p, now)
	}
	for of, sum := range sums {
		m.probes[of].add(*sum, first, rotates)
	}
	if rotates {
		m.rotated = now
	}
}

// keyOf is the class and the node of a path. The plans of the agents are in the cluster, so their names are bounded here.
func (m *measured) keyOf(p *loss.PathAccount) key {
	of := key{p.Class, p.Source.Node}
	switch {
	case p.Denied:
		of.class = path.ClassDenied
	case of.class == path.ClassDenied || !slices.Contains(path.Classes(), of.class):
		of.class = other
	}
	if !m.nodes[of.node] && len(m.nodes) >= mostNodes {
		of.node = other
	}
	m.nodes[of.node] = true
	return of
}

func (m *measured) roundTrips(of key, p *loss.PathAccount) {
	if m.trips[of] == nil {
		m.trips[of] = &loss.RoundTrips{}
	}
	for _, result := range p.Results {
		m.trips[of].Add(result.RTTCounts)
		if result.Last.After(m.newest) {
			m.newest = result.Last
		}
	}
}

// ended counts the gaps of a path that ended long enough ago.
func (m *measured) ended(of key, p *loss.PathAccount, now time.Time) {
	if m.gaps[of] == nil {
		m.gaps[of] = &gaps{counts: make([]uint64, len(gapBounds))}
	}
	for _, gap := range p.Gaps {
		length := time.Duration(gap.Millis * float64(time.Millisecond))
		if gap.Open || now.Sub(gap.From.Add(length)) < settleAfter {
			break // gaps are in the order of their begins
		}
		if !gap.From.After(m.counted[p.ID]) {
			continue
		}
		m.counted[p.ID] = gap.From
		m.gaps[of].add(length.Seconds())
	}
}

func (g *gaps) add(seconds float64) {
	g.total++
	g.sum += seconds
	for i, bound := range gapBounds {
		if seconds <= bound {
			g.counts[i]++
		}
	}
}

func (p *probes) add(now loss.Counts, first, rotates bool) {
	p.lost = now.Lost
	if first {
		p.old, p.older = now.Lost, now.Lost
	}
	p.shown.Sent, p.shown.Answered = max(p.shown.Sent, now.Sent), max(p.shown.Answered, now.Answered)
	p.shown.Late, p.shown.Excused = max(p.shown.Late, now.Late), max(p.shown.Excused, now.Excused)
	p.shown.Leaked = max(p.shown.Leaked, now.Leaked)
	p.shown.Lost = max(p.shown.Lost, min(p.lost, p.older))
	if rotates {
		p.older, p.old = p.old, p.lost
	}
}

// Describe implements prometheus.Collector.
func (m *measured) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{probesDesc, gapsDesc, tripsDesc, pathsDesc, newestDesc, runDesc} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *measured) Collect(to chan<- prometheus.Metric) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.migration == "" {
		return
	}
	to <- prometheus.MustNewConstMetric(runDesc, prometheus.GaugeValue, 1, m.migration)
	if !m.newest.IsZero() {
		to <- prometheus.MustNewConstMetric(newestDesc, prometheus.GaugeValue, float64(m.newest.UnixMilli())/1000)
	}
	for class, n := range m.paths {
		to <- prometheus.MustNewConstMetric(pathsDesc, prometheus.GaugeValue, float64(n), class)
	}
	for of, p := range m.probes {
		p.show(func(n int64, result string) {
			to <- prometheus.MustNewConstMetric(probesDesc, prometheus.CounterValue, float64(n), of.class, of.node, result)
		})
	}
	for of, g := range byClass(m.gaps, m.wide(), func(a, b *gaps) {
		for i := range b.counts {
			a.counts[i] += b.counts[i]
		}
		a.total, a.sum = a.total+b.total, a.sum+b.sum
	}, func() *gaps { return &gaps{counts: make([]uint64, len(gapBounds))} }) {
		buckets := map[float64]uint64{}
		for i, bound := range gapBounds {
			buckets[bound] = g.counts[i]
		}
		to <- prometheus.MustNewConstHistogram(gapsDesc, g.total, g.sum, buckets, of.class, of.node)
	}
	for of, t := range byClass(m.trips, m.wide(), func(a, b *loss.RoundTrips) { a.Add(*b) }, func() *loss.RoundTrips { return &loss.RoundTrips{} }) {
		buckets := map[float64]uint64{}
		for _, bound := range tripBounds {
			buckets[float64(bound)/1e6] = uint64(t.Within(bound))
		}
		total, micros := t.Total()
		to <- prometheus.MustNewConstHistogram(tripsDesc, uint64(total), float64(micros)/1e6, buckets, of.class, of.node)
	}
}

// wide reports whether there are too many nodes for histograms of each.
func (m *measured) wide() bool { return len(m.nodes) > mostHistograms }

// byClass adds histograms up by class alone, if wide.
func byClass[T any](all map[key]*T, wide bool, add func(sum, one *T), empty func() *T) map[key]*T {
	if !wide {
		return all
	}
	sums := map[key]*T{}
	for of, one := range all {
		of.node = ""
		if sums[of] == nil {
			sums[of] = empty()
		}
		add(sums[of], one)
	}
	return sums
}

// show gives every result that a path of this kind can have. Late and excused probes are rare: they have no series while there are none.
func (p *probes) show(one func(n int64, result string)) {
	c := p.shown
	if p.denied {
		one(c.Sent-c.Leaked, resultBlocked)
		one(c.Leaked, resultDeniedAnswered)
		return
	}
	one(c.Answered-c.Late, resultAnswered)
	one(c.Lost, resultLost)
	if c.Late > 0 {
		one(c.Late, resultLate)
	}
	if c.Excused > 0 {
		one(c.Excused, resultExcused)
	}
}
