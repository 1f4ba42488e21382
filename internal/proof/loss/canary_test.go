package loss

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// fleet is nodes that measure the next one and themselves, and a Service.
type fleet struct {
	nodes   []string
	paths   []v1alpha1.Path
	results map[string]*v1alpha1.PathResult
	second  int
	random  *rand.Rand
	// takes is how long an answer takes, in microseconds; nil where that does not matter.
	takes func(v1alpha1.Path) float64
}

func newFleet(seed uint64, nodes ...string) *fleet {
	f := &fleet{nodes: nodes, results: map[string]*v1alpha1.PathResult{}, random: rand.New(rand.NewPCG(seed, 0))}
	for i, name := range nodes {
		for _, target := range []string{nodes[(i+1)%len(nodes)], name, ""} {
			path := v1alpha1.Path{ID: name + ">" + target, Source: v1alpha1.Endpoint{Node: name},
				Target: v1alpha1.Endpoint{Node: target}}
			f.paths = append(f.paths, path)
			f.results[path.ID] = &v1alpha1.PathResult{ID: path.ID, Since: start}
		}
	}
	return f
}

// seconds pass, in which a path loses a share of its probes; c looks after each.
func (f *fleet) seconds(n int, c *Canary, changed []string, loses func(path v1alpha1.Path) float64) {
	for range n {
		for _, path := range f.paths {
			for range 20 {
				f.results[path.ID].Sent++
				if f.random.Float64() >= loses(path) {
					f.results[path.ID].Answered++
				}
			}
			f.answers(path, 20)
		}
		f.second++
		var reports []v1alpha1.ProbeReport
		for _, result := range f.results {
			reports = append(reports, report("", 1, f.second*1000, *result))
		}
		c.Look(f.paths, reports, changed, after(f.second*1000))
	}
}

// answers come at the times that are usual for a path, give or take a half.
func (f *fleet) answers(path v1alpha1.Path, n int) {
	if f.takes == nil {
		return
	}
	counts := append(slices.Clone(f.results[path.ID].RTTCounts), make([]int64, 40)...)[:40]
	for range n {
		counts[rangeOf(int64(f.takes(path)*math.Exp(f.random.NormFloat64()/2)))]++
	}
	f.results[path.ID].RTTCounts = counts
}

func at(node string, share float64) func(v1alpha1.Path) float64 {
	return func(path v1alpha1.Path) float64 {
		if path.Source.Node == node || path.Target.Node == node {
			return share
		}
		return 0
	}
}

func all(share float64) func(v1alpha1.Path) float64 {
	return func(v1alpha1.Path) float64 { return share }
}

func TestCanary(t *testing.T) {
	abc := []string{"a", "b", "c"}
	for _, test := range []struct {
		name  string
		play  func(*fleet, *Canary)
		stops bool
		words string
	}{
		{"nothing was seen", func(*fleet, *Canary) {}, false,
			"0 of 0 probes lost on changed nodes, 0 of 0 on the others"},
		{"a fleet of three loses nothing", func(f *fleet, c *Canary) {
			f.seconds(11, c, nil, all(0))
			for i := range abc {
				f.seconds(10, c, abc[:i+1], all(0))
			}
		}, false, "0 of 4,000 probes lost on changed nodes, 0 of 2,600 on the others"},
		{"the canary loses", func(f *fleet, c *Canary) {
			f.seconds(11, c, nil, all(0))
			f.seconds(10, c, abc[:1], at("a", 0.1))
		}, true, "stop, because of a (evidence "},
		{"the second loses, and what the first loses is from and to it", func(f *fleet, c *Canary) {
			f.seconds(11, c, nil, all(0))
			f.seconds(10, c, abc[:1], all(0))
			f.seconds(10, c, abc[:2], at("b", 0.1))
		}, true, "stop, because of b (evidence "},
		{"the last loses, and nobody is left to compare with", func(f *fleet, c *Canary) {
			f.seconds(16, c, nil, all(0))
			f.seconds(5, c, abc[:1], all(0))
			f.seconds(5, c, abc[:2], all(0))
			f.seconds(12, c, abc, at("c", 0.1))
		}, true, "stop, because of c (evidence "},
		{"all lose alike", func(f *fleet, c *Canary) {
			f.seconds(11, c, nil, all(0))
			f.seconds(60, c, abc[:1], all(0.02))
		}, false, ""},
		{"all lost before", func(f *fleet, c *Canary) {
			f.seconds(30, c, nil, all(0.02))
			f.seconds(30, c, abc[:1], all(0.02))
			f.seconds(30, c, abc, all(0.02))
		}, false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c Canary
			test.play(newFleet(1, abc...), &c)
			stops, words := c.Stop()
			if stops != test.stops || !strings.Contains(words, test.words) {
				t.Errorf("%t: %s", stops, words)
			}
		})
	}
}

// TestCanaryIsNotAfraid: small fleets with noise are not stopped for nothing.
func TestCanaryIsNotAfraid(t *testing.T) {
	stopped := 0
	for seed := range uint64(100) {
		f := newFleet(seed, "a", "b", "c", "d")
		var c Canary
		f.seconds(12, &c, nil, all(0.0005))
		for i := range f.nodes {
			f.seconds(12, &c, f.nodes[:i+1], all(0.0005))
		}
		if stop, why := c.Stop(); stop {
			stopped++
			t.Log(why)
		}
	}
	if stopped > 1 { // 0.1 are expected at most
		t.Errorf("%d of 100 were stopped", stopped)
	}
}

// TestCanaryCountsOnlyFreshLooks: two looks within a second are one, and a counter that began anew says nothing.
func TestCanaryCountsOnlyFreshLooks(t *testing.T) {
	f := newFleet(1, "a", "b")
	var c Canary
	f.seconds(2, &c, nil, all(0))
	before, at := c.others, c.at
	for _, result := range f.results {
		result.Sent += 100
	}
	c.Look(f.paths, []v1alpha1.ProbeReport{report("", 1, 0, *f.results["a>b"])}, nil, at.Add(slotLength/2))
	*f.results["a>b"] = v1alpha1.PathResult{ID: "a>b", Sent: 5, Since: after(99000)}
	c.Look(f.paths, []v1alpha1.ProbeReport{report("", 1, 0, *f.results["a>b"])}, nil, at.Add(slotLength))
	if c.others != before {
		t.Errorf("%+v, was %+v", c.others, before)
	}
}
