package loss

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestRanges: ranges follow each other without a gap, and buckets fall into them whole.
func TestRanges(t *testing.T) {
	for i := range 40 {
		if end := rangeEnd(i); rangeOf(end-1) != i || rangeOf(end) != i+1 {
			t.Errorf("range %d ends at %d, which is in %d", i, end, rangeOf(end))
		}
	}
	var h histogram
	for _, micros := range []int64{0, 63, 64, 95, 96, 1 << 20} {
		h.add(micros)
	}
	counts := h.ranges()
	if len(counts) != 30 || counts[0] != 2 || counts[1] != 2 || counts[2] != 1 || counts[29] != 1 {
		t.Errorf("%v", counts)
	}
	for i := range subBuckets*octaves - 1 {
		if first := upperBound(i) + 1; rangeOf(first) != rangeOf(upperBound(i+1)) {
			t.Fatalf("the bucket from %d to %d is in two ranges", first, upperBound(i+1))
		}
	}
}

// pace is usual everywhere but on one node, from and to which it is times slower, for a share of the answers.
func (f *fleet) pace(usual float64, node string, times, share float64) {
	f.takes = func(path v1alpha1.Path) float64 {
		if (path.Source.Node == node || path.Target.Node == node) && f.random.Float64() < share {
			return usual * times
		}
		return usual
	}
}

func TestSlowness(t *testing.T) {
	nodes := []string{"a", "b", "c", "d"}
	for _, test := range []struct {
		name  string
		play  func(*fleet, *Canary)
		stops bool
		words string
	}{
		{"half of the answers", func(f *fleet, c *Canary) {
			f.pace(1000, "a", 4, 1)
			f.seconds(80, c, nodes[:1], all(0))
		}, true, "half of the answers take up to "},
		{"a tenth of them", func(f *fleet, c *Canary) {
			f.pace(1000, "a", 20, 0.15)
			f.seconds(80, c, nodes[:1], all(0))
		}, true, "on the others: stop, because of a (evidence "},
		{"the last node, with nobody left to compare with", func(f *fleet, c *Canary) {
			f.seconds(30, c, nodes[:3], all(0))
			f.pace(1000, "d", 4, 1)
			f.seconds(120, c, nodes, all(0))
		}, true, "stop, because of d (evidence "},
		{"all at once are slow", func(f *fleet, c *Canary) {
			f.takes = func(v1alpha1.Path) float64 { return 8000 }
			f.seconds(60, c, nodes[:2], all(0))
		}, false, ""},
		{"what nobody notices", func(f *fleet, c *Canary) {
			f.pace(1000, "a", 1.3, 1)
			f.seconds(100, c, nodes[:1], all(0))
		}, false, ""},
		{"one slot of it", func(f *fleet, c *Canary) {
			f.pace(1000, "a", 10, 1)
			f.seconds(10, c, nodes[:1], all(0))
			f.pace(1000, "", 1, 0)
			f.seconds(40, c, nodes[:1], all(0))
		}, false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var c Canary
			f := newFleet(1, nodes...)
			f.pace(1000, "", 1, 0)
			f.seconds(21, &c, nil, all(0))
			test.play(f, &c)
			stops, words := c.Stop()
			if stops != test.stops || !strings.Contains(words, test.words) {
				t.Errorf("%t: %s", stops, words)
			}
		})
	}
}

// TestDoubt: evidence that does not repeat itself makes a gate watch on, and fades.
func TestDoubt(t *testing.T) {
	f := newFleet(1, "a", "b", "c")
	var c Canary
	f.seconds(20, &c, nil, all(0))
	f.seconds(2, &c, f.nodes[:1], at("a", 0.1))
	if stop, why := c.Stop(); stop || !c.Doubt() {
		t.Errorf("two seconds of losses are doubted: %t, %s", c.Doubt(), why)
	}
	f.seconds(30, &c, f.nodes[:1], all(0))
	if c.Doubt() {
		t.Errorf("half a minute later it is still doubted: %g", c.lost.most())
	}
}

// TestDoubtWhileLosing: a gate does not pass in the middle of a loss, be it its first second; not so when others lose
// too, or a node that was changed before.
func TestDoubtWhileLosing(t *testing.T) {
	for name, test := range map[string]struct {
		loses  func(v1alpha1.Path) float64
		doubts bool
	}{"the last": {at("b", 0.1), true}, "all": {all(0.1), false}, "another": {at("d", 0.1), false}} {
		f := newFleet(1, "a", "b", "c", "d")
		var c Canary
		f.seconds(20, &c, nil, all(0))
		f.seconds(5, &c, f.nodes[:2], all(0))
		f.seconds(1, &c, f.nodes[:2], test.loses)
		if c.Doubt() != test.doubts {
			t.Errorf("%s: doubted: %t", name, c.Doubt())
		}
	}
}

// rolloutSlow changes ten nodes, one every 12 s; now and then half of all nodes are slow for 10 s, or one. It says by
// how many changed nodes it was stopped; 0 when it was not.
func rolloutSlow(seed uint64, times float64) int {
	nodes := strings.Split("abcdefghij", "")
	f := newFleet(seed, nodes...)
	noise := rand.New(rand.NewPCG(seed, 1))
	hit := map[string]bool{}
	changed := 0
	f.takes = func(path v1alpha1.Path) float64 {
		usual := 1500.0
		if hit[path.Source.Node] {
			usual *= 10
		}
		for _, node := range nodes[:changed] {
			if path.Source.Node == node {
				return usual * times
			}
		}
		return usual
	}
	var c Canary
	f.seconds(21, &c, nil, all(0))
	for changed = 1; changed <= len(nodes); changed++ {
		clear(hit)
		if noise.IntN(8) == 0 {
			for _, node := range nodes {
				hit[node] = noise.IntN(2) == 0
			}
		}
		hit[nodes[noise.IntN(10)]] = noise.IntN(20) == 0
		f.seconds(12, &c, nodes[:changed], all(0))
		if stop, _ := c.Stop(); stop {
			return changed
		}
	}
	return 0
}

func slowRollouts(n int, times float64) (stops, nodes int) {
	for seed := range uint64(n) {
		if at := rolloutSlow(seed, times); at > 0 {
			stops, nodes = stops+1, nodes+at
		}
	}
	return stops, nodes
}

// TestSlownessOfARollout is a short form of the benchmark.
func TestSlownessOfARollout(t *testing.T) {
	if stops, _ := slowRollouts(15, 1); stops > 0 {
		t.Errorf("%d of 15 rollouts that slow nothing down were stopped", stops)
	}
	if stops, nodes := slowRollouts(15, 4); stops < 15 || nodes > 6*15 {
		t.Errorf("four times as slow: %d of 15 were stopped, after %d nodes in all", stops, nodes)
	}
}

// BenchmarkSlownessOfARollout: how often a rollout that slows nothing down is stopped, and after how many nodes one
// that does.
func BenchmarkSlownessOfARollout(b *testing.B) {
	for b.Loop() {
		stops, _ := slowRollouts(1000, 1)
		b.ReportMetric(float64(stops), "false-stops/1000")
		stops, nodes := slowRollouts(1000, 4)
		b.ReportMetric(float64(stops), "stops-at-4x/1000")
		b.ReportMetric(float64(nodes)/float64(max(stops, 1)), "nodes-mean")
	}
}
