package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

const (
	// settleAfter is how long a loss or a gap must have been in the account, by the clock of this process, before it is
	// counted: until then, the report of a stalled responder may excuse it, and a counter must not decrease. A loss is
	// counted at most twice as late.
	settleAfter = 10 * time.Second
	// silentAfter is how long a node's count of probes must not have grown for the node to be silent. Nodes report
	// every 10 s or more often, and with thousands of them the account is looked at once a minute.
	silentAfter = 2 * time.Minute
	// mostNodes is how many nodes have series of their own; further ones share the name otherNode.
	mostNodes = 5000
	// mostHistograms is how many nodes have histograms, and late and excused probes, of their own. With more, these
	// have no node, for all nodes.
	mostHistograms = 250
	// other is the class of paths, and the node, that have no series of their own.
	other = "other"
)

// The values of the label result. On a path that should answer, a probe is one of the first four; on a denied path, one
// of the others.
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
		"Number of probes of the run by class of path, sending node and result: answered, late, excused or lost; of "+
			"denied paths, blocked or denied_answered.",
		[]string{"class", "node", "result"}, nil)
	gapsDesc = prometheus.NewDesc("theseus_path_gap_duration_seconds",
		"Length of gaps that have ended, by class of path and sending node; of denied paths, of the time in which "+
			"they were answered.", []string{"class", "node"}, nil)
	tripsDesc = prometheus.NewDesc("theseus_path_round_trip_seconds",
		"Round trips of answered probes by class of path and sending node. The sum is estimated from the buckets of "+
			"the agents' reports.", []string{"class", "node"}, nil)
	pathsDesc = prometheus.NewDesc("theseus_paths", "Number of paths of the run that were ever measured, by class.",
		[]string{"class"}, nil)
	openDesc = prometheus.NewDesc("theseus_path_open_gap_seconds",
		"Length of the longest gap that has not ended, by class of path; of denied paths, of the time in which one "+
			"is answered. 0 if there is none.", []string{"class"}, nil)
	grewDesc = prometheus.NewDesc("theseus_probes_grew_timestamp_seconds",
		"When this process last saw the probes of a node grow, of the planned node for which that is longest ago.",
		nil, nil)
	silentDesc = prometheus.NewDesc("theseus_silent_nodes",
		"Number of nodes whose planned probes have not grown for two minutes.", nil, nil)
	runDesc = prometheus.NewDesc("theseus_run_info", "1, with the migration whose probes are counted.",
		[]string{"migration"}, nil)
)

// key is what a series is of.
type key struct{ class, node string }

// measured are the results of the probes of one run. It is a prometheus.Collector, which shows the numbers of the last
// call of add.
type measured struct {
	lock      sync.Mutex
	migration string
	nodes     map[string]bool
	probes    map[key]*probes
	gaps      map[key]*gaps
	trips     map[key]*loss.RoundTrips
	paths     map[string]int
	open      map[string]float64   // seconds, by class
	sending   map[string]*sending  // by node that has planned paths
	counted   map[string]time.Time // by path, the begin of the last gap that is in gaps
	seen      map[gapOf]time.Time  // when this process first saw the gaps that are not counted yet
	rotated   time.Time
	now       func() time.Time
}

// gapOf is a gap while it is open, or after it has ended.
type gapOf struct {
	path string
	from int64 // Unix time in ns
	open bool
}

// sending is what a node has sent.
type sending struct {
	sent int64
	grew time.Time // when this process saw it grow, or first saw that it is planned
}

// probes are the results of one class of paths and one node.
type probes struct {
	shown loss.Counts // no number decreases
	// denied is whether policy denies the paths.
	denied bool
	// lost are the losses in the account now, at the last rotation, and at the one before.
	lost, old, older int64
	settled          int64 // of the losses, at the last call
}

// gaps are a histogram.
type gaps struct {
	counts []uint64 // cumulative, by gapBounds
	total  uint64
	sum    float64 // seconds
}

func newMeasured() *measured {
	m := &measured{now: time.Now}
	m.begin("")
	return m
}

func (m *measured) begin(migration string) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.migration, m.nodes, m.probes, m.gaps, m.trips = migration, map[string]bool{}, map[key]*probes{},
		map[key]*gaps{}, map[key]*loss.RoundTrips{}
	m.paths, m.counted, m.seen, m.rotated = map[string]int{}, map[string]time.Time{}, map[gapOf]time.Time{}, time.Time{}
	m.open, m.sending = nil, nil
}

// end says that nothing is measured any more. The counts stay.
func (m *measured) end() {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.open, m.sending = nil, nil
}

// add takes the account of all paths of the run, which has grown since the last call, and those of them that are
// planned now.
func (m *measured) add(account loss.Account, planned []v1alpha1.Path, now time.Time) {
	asked := make(map[string]bool, len(planned))
	for i := range planned {
		asked[planned[i].ID] = true
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	first := m.rotated.IsZero() // losses that earlier processes have seen are settled
	rotates := now.Sub(m.rotated) >= settleAfter
	sums := map[key]*loss.Counts{}
	clear(m.paths)
	m.trips, m.open = map[key]*loss.RoundTrips{}, map[string]float64{}
	waiting := m.seen
	m.seen = map[gapOf]time.Time{}
	m.sent(account, asked, now)
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
		m.gapsOf(of, p, asked[p.ID], func(gap gapOf) bool {
			since, known := waiting[gap]
			if !known {
				since = now
			}
			m.seen[gap] = since
			return first || now.Sub(since) >= settleAfter
		})
	}
	for of, sum := range sums {
		m.probes[of].add(*sum, first, rotates)
	}
	if rotates {
		m.rotated = now
	}
}

// keyOf is the class and the node of a path. The plans of the agents are in the cluster, so their names are bounded
// here.
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

// sent notes which nodes with planned paths have sent probes since the last call.
func (m *measured) sent(account loss.Account, asked map[string]bool, now time.Time) {
	sums := map[string]int64{}
	for _, p := range account {
		if asked[p.ID] {
			sums[p.Source.Node] += p.Sent
		}
	}
	before := m.sending
	m.sending = make(map[string]*sending, len(sums))
	for node, sum := range sums {
		one := &sending{sum, now}
		if known := before[node]; known != nil && sum <= known.sent {
			one.grew = known.grew
		}
		m.sending[node] = one
	}
}

func (m *measured) roundTrips(of key, p *loss.PathAccount) {
	if m.trips[of] == nil {
		m.trips[of] = &loss.RoundTrips{}
	}
	for _, result := range p.Results {
		m.trips[of].Add(result.RTTCounts)
	}
}

// gapsOf counts the gaps of a path that have ended and are settled, and shows the longest one that is open. A gap is no
// longer open if its path is no longer planned, or if its sender has restarted.
func (m *measured) gapsOf(of key, p *loss.PathAccount, planned bool, settled func(gapOf) bool) {
	if m.gaps[of] == nil {
		m.gaps[of] = &gaps{counts: make([]uint64, len(gapBounds))}
	}
	if planned {
		m.open[of.class] = max(m.open[of.class], 0)
	}
	for _, gap := range p.Gaps { // in the order of their begins
		if !gap.From.After(m.counted[p.ID]) {
			continue
		}
		open := gap.Open && planned && !gap.From.Before(p.Results[len(p.Results)-1].Since)
		if !settled(gapOf{p.ID, gap.From.UnixNano(), open}) {
			return
		}
		if seconds := gap.Millis / 1000; open {
			m.open[of.class] = max(m.open[of.class], seconds)
		} else {
			m.counted[p.ID] = gap.From
			m.gaps[of].add(seconds)
		}
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
	settled := min(p.lost, p.older)
	// losses that are excused once they are counted stay, and hide no later ones
	p.shown.Lost += max(0, settled-p.settled)
	p.settled = settled
	if rotates {
		p.older, p.old = p.old, p.lost
	}
}

// Describe implements prometheus.Collector.
func (m *measured) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{probesDesc, gapsDesc, tripsDesc, pathsDesc, openDesc,
		grewDesc, silentDesc, runDesc} {
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
	if len(m.sending) > 0 {
		oldest, silent := time.Time{}, 0
		for _, one := range m.sending {
			if oldest.IsZero() || one.grew.Before(oldest) {
				oldest = one.grew
			}
			if m.now().Sub(one.grew) >= silentAfter {
				silent++
			}
		}
		to <- prometheus.MustNewConstMetric(grewDesc, prometheus.GaugeValue, float64(oldest.UnixMilli())/1000)
		to <- prometheus.MustNewConstMetric(silentDesc, prometheus.GaugeValue, float64(silent))
	}
	for class, seconds := range m.open {
		to <- prometheus.MustNewConstMetric(openDesc, prometheus.GaugeValue, seconds, class)
	}
	for class, n := range m.paths {
		to <- prometheus.MustNewConstMetric(pathsDesc, prometheus.GaugeValue, float64(n), class)
	}
	rare := map[key]map[string]int64{} // late and excused
	for of, p := range m.probes {
		p.show(func(n int64, result string) {
			to <- prometheus.MustNewConstMetric(probesDesc, prometheus.CounterValue,
				float64(n), of.class, of.node, result)
		}, func(n int64, result string) {
			if m.wide() {
				of.node = ""
			}
			if rare[of] == nil {
				rare[of] = map[string]int64{}
			}
			rare[of][result] += n
		})
	}
	for of, results := range rare {
		for result, n := range results {
			to <- prometheus.MustNewConstMetric(probesDesc, prometheus.CounterValue,
				float64(n), of.class, of.node, result)
		}
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
	for of, t := range byClass(m.trips, m.wide(), func(a, b *loss.RoundTrips) { a.Add(*b) },
		func() *loss.RoundTrips { return &loss.RoundTrips{} }) {
		buckets := map[float64]uint64{}
		for _, bound := range tripBounds {
			buckets[float64(bound)/1e6] = uint64(t.Within(bound))
		}
		total, micros := t.Total()
		to <- prometheus.MustNewConstHistogram(tripsDesc, uint64(total), float64(micros)/1e6,
			buckets, of.class, of.node)
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

// show gives every result that a path of this kind can have. Late and excused probes are rare: they have no series
// while there are none.
func (p *probes) show(one, rare func(n int64, result string)) {
	c := p.shown
	if p.denied {
		one(c.Sent-c.Leaked, resultBlocked)
		one(c.Leaked, resultDeniedAnswered)
		return
	}
	one(c.Answered-c.Late, resultAnswered)
	one(c.Lost, resultLost)
	if c.Late > 0 {
		rare(c.Late, resultLate)
	}
	if c.Excused > 0 {
		rare(c.Excused, resultExcused)
	}
}
