package main

import (
	"cmp"
	"io/fs"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/node/agent"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/proof/probe"
)

var _ agent.Probers = (*probers)(nil)

// probers are the model of a node's probers: no packet is sent. A probe is answered when its target runs, unless its
// node or the target's loses packets. What is looked at is the state at each report: a shorter one is not seen.
type probers struct {
	machine *machine
	mu      sync.Mutex
	of      map[string]*prober // by network
}

// prober measures the paths that start in one network of the node.
type prober struct {
	pod        string // UID of its pod; empty while none runs
	since      time.Time
	ordered    bool
	generation int64
	paths      map[string]*measured
	last       probe.ResultsFile // what it left when it ended
}

// measured is a path.
type measured struct {
	path   v1alpha1.Path
	begun  time.Time
	until  time.Time // no longer measured since then; zero while it is
	result v1alpha1.PathResult
	debt   float64 // share of the next lost probe
}

func (p *probers) in(network string) *prober {
	if p.of[network] == nil {
		p.of[network] = &prober{paths: map[string]*measured{}}
	}
	return p.of[network]
}

// begin and end are called when the pod of a network's prober begins and ends.
func (p *probers) begin(network string, pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.in(network)
	one.pod, one.since = string(pod), time.Now()
	for _, m := range one.paths {
		m.restart()
	}
}

func (p *probers) end(network string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.in(network)
	one.last = p.results(one)
	one.pod = ""
}

// Forget implements agent.Probers. A prober that runs goes on counting, as a real one does.
func (p *probers) Forget(networks []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, network := range networks {
		p.in(network).last = probe.ResultsFile{}
	}
	return nil
}

// Order implements agent.Probers.
func (p *probers) Order(network string, file probe.PathsFile) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	one, wanted := p.in(network), map[string]bool{}
	one.ordered, one.generation = true, file.Generation
	for _, path := range file.Paths {
		wanted[path.ID] = true
		known := one.paths[path.ID]
		if known == nil || known.path.IntervalMillis != path.IntervalMillis || known.path.Denied != path.Denied {
			known = &measured{path: path}
			known.restart()
			one.paths[path.ID] = known
		}
		known.path, known.until = path, time.Time{}
	}
	for id, m := range one.paths {
		if !wanted[id] && m.until.IsZero() {
			p.count(m, time.Now())
			m.until = time.Now()
		}
	}
	return nil
}

// Results implements agent.Probers.
func (p *probers) Results(network string) (probe.ResultsFile, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.in(network)
	if one.pod != "" && one.ordered {
		return p.results(one), nil
	}
	if one.last.Pod == "" {
		return one.last, fs.ErrNotExist
	}
	return one.last, nil
}

// results counts until now. The lock is held.
func (p *probers) results(one *prober) probe.ResultsFile {
	file := probe.ResultsFile{Generation: one.generation, At: time.Now(), Pod: one.pod, Since: one.since}
	for _, m := range one.paths {
		if m.until.IsZero() {
			p.count(m, file.At)
		}
		result := m.result
		result.Gaps = slices.Clone(result.Gaps)
		file.Paths = append(file.Paths, result)
	}
	slices.SortFunc(file.Paths, func(x, y v1alpha1.PathResult) int { return cmp.Compare(x.ID, y.ID) })
	return file
}

// restart begins to count again.
func (m *measured) restart() {
	m.begun, m.debt = time.Now(), 0
	m.result = v1alpha1.PathResult{ID: m.path.ID, RTTMicros: [3]int64{310, 900, 4200}}
}

// maxGaps is how many gaps of a path are kept.
const maxGaps = 20

// count counts the probes that were decided since the last look.
func (p *probers) count(m *measured, now time.Time) {
	every := time.Duration(m.path.IntervalMillis) * time.Millisecond
	if every <= 0 {
		every = probe.DefaultInterval
	}
	decided := now.Sub(m.begun) - time.Millisecond
	if m.path.Denied {
		decided -= loss.DefaultTimeout // until then an answer may come
	}
	fresh := int64(decided/every) - m.result.Sent
	if fresh <= 0 {
		return
	}
	from := m.begun.Add(time.Duration(m.result.Sent) * every)
	if m.result.Sent == 0 {
		m.result.Since = m.begun
	}
	m.result.Sent += fresh
	m.result.Last = m.begun.Add(time.Duration(m.result.Sent-1) * every)
	if m.path.Denied {
		return // nothing leaks in the model
	}
	share := p.share(&m.path)
	first := (1 - m.debt) / share // the probe with which the first one is lost
	m.debt += float64(fresh) * share
	lost := min(int64(m.debt), fresh)
	m.debt -= float64(lost)
	m.result.Answered += fresh - lost
	m.result.RTTCounts = spread(m.result.Answered)
	m.gaps(from, every, fresh, lost, func(i int64) int64 {
		return min(max(int64(math.Ceil(first+float64(i)/share-1e-6)), 1), fresh) - 1
	})
}

// gaps adds the lost probes of a look: all in one gap, or each for itself. at is the place of each among the fresh
// ones.
func (m *measured) gaps(from time.Time, every time.Duration, fresh, lost int64, at func(int64) int64) {
	millis := float64(every) / float64(time.Millisecond)
	if open := m.result.Open; open != nil && lost < fresh {
		m.keep(*open)
		m.result.Open = nil
	}
	switch {
	case lost == 0:
	case lost == fresh && m.result.Open != nil:
		m.result.Open.Probes += lost
		m.result.Open.Millis += float64(lost) * millis
	case lost == fresh:
		m.result.Open = &v1alpha1.Gap{From: from, Millis: float64(lost) * millis, Probes: lost}
	default:
		for i := range lost {
			m.keep(v1alpha1.Gap{From: from.Add(time.Duration(at(i)) * every), Millis: millis, Probes: 1})
		}
	}
}

func (m *measured) keep(gap v1alpha1.Gap) {
	if len(m.result.Gaps) == maxGaps {
		m.result.Dropped++
		return
	}
	m.result.Gaps = append(m.result.Gaps, gap)
}

// share is the share of a path's probes that is lost now.
func (p *probers) share(one *v1alpha1.Path) float64 {
	lost := p.machine.losing()
	if target := p.machine.swarm.machines[one.Target.Node]; target != nil && target != p.machine {
		lost = 1 - (1-lost)*(1-target.losing())
	}
	host, _, err := net.SplitHostPort(one.Target.Address)
	if err == nil && one.Target.Node != "" && (one.Target.Network == path.Old || one.Target.Network == path.New) &&
		one.Class == "pod-pod" && !p.machine.swarm.addresses.has(host) {
		return 1 // no pod has the address
	}
	return lost
}

// spread is a histogram of round-trip times, of which most are in four buckets.
func spread(answered int64) []int64 {
	counts := make([]int64, 12)
	left := answered
	for i, share := range []int64{8, 4, 3, 2} {
		counts[4+i] = left / share
		left -= left / share
	}
	counts[8] = left
	return counts
}
