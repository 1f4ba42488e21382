package loss

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSlotIsADistribution: the likelihoods of all splits add up to 1, and a fair bet is expected not to grow.
func TestSlotIsADistribution(t *testing.T) {
	for _, s := range []struct{ changed, control, bad int }{{1, 2, 1}, {1, 99, 3},
		{50, 50, 20}, {3, 1, 2}, {7, 5, 11}} {
		for _, exposure := range []float64{1, 0.3, 4} {
			sum, grows := 0.0, 0.0
			for x := max(0, s.bad-s.control); x <= min(s.bad, s.changed); x++ {
				slot := Slot{Changed: s.changed, ChangedBad: x, Control: s.control,
					ControlBad: s.bad - x, Exposure: exposure}
				likely := math.Exp(slot.logLikelihood(tolerated * exposure))
				var p Process
				p.Add(slot)
				sum += likely
				grows += likely * p.Value()
			}
			if math.Abs(sum-1) > 1e-9 || math.Abs(grows-1) > 1e-9 {
				t.Errorf("%+v, exposure %g: the chances add up to %g, the stake is expected to become %g",
					s, exposure, sum, grows)
			}
		}
	}
}

func TestProcess(t *testing.T) {
	repeat := func(n int, s Slot) float64 {
		var p Process
		for range n {
			p.Add(s)
		}
		return p.Value()
	}
	for _, test := range []struct {
		name     string
		n        int
		slot     Slot
		from, to float64
	}{
		{"nothing is lost", 1000, Slot{Changed: 1, Control: 99}, 1, 1},
		{"all are bad", 1000, Slot{Changed: 1, ChangedBad: 1, Control: 2, ControlBad: 2}, 1, 1},
		{"no controls", 1000, Slot{Changed: 3, ChangedBad: 2}, 1, 1},
		{"one bad canary of 100 nodes, once", 1, Slot{Changed: 1, ChangedBad: 1, Control: 99}, 20, 999},
		{"twice", 2, Slot{Changed: 1, ChangedBad: 1, Control: 99}, 1000, 1e5},
		{"only others are bad", 50, Slot{Changed: 10, Control: 90, ControlBad: 1}, 0, 0.1},
		{"a little worse is no fault", 50, Slot{Changed: 50, ChangedBad: 6, Control: 50, ControlBad: 4}, 0, 1},
		{"one of three nodes, ten times", 10, Slot{Changed: 1, ChangedBad: 1, Control: 2}, 1000, 1e6},
	} {
		if got := repeat(test.n, test.slot); got < test.from || got > test.to {
			t.Errorf("%s: %g, want %g to %g", test.name, got, test.from, test.to)
		}
	}
}

func TestWorst(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   int
	}{
		{nil, 0}, {[]float64{999}, 0}, {[]float64{1000}, 1}, {[]float64{1999, 1}, 0}, {[]float64{2000, 1}, 1},
		{[]float64{1500, 1200}, 2}, {[]float64{5000, 1000, 1}, 1},
	} {
		if got := worst(test.values, 0.001); got != test.want {
			t.Errorf("%v: %d, want %d", test.values, got, test.want)
		}
	}
}

// The simulated fleet is that of the notes on which the choice of the gate rests: 100 nodes, one changed each minute,
// 20 probes a second and node, one in 100,000 lost, and every 20 minutes or so a burst of 5 s that hits half of all
// nodes alike with 5 % loss.
const (
	simNodes, simRate, simSlot = 100, 20, 5 // nodes; probes/s; s
	simNoise                   = 1e-5
	simMinutes                 = simNodes
)

// judge looks at every slot: lost counts per node, changed nodes first, and how many are changed.
type judge interface {
	look(lost *[simNodes]int, changed int) (stop bool)
}

// rollout simulates one rollout and says after how many changed nodes it was stopped; 0 when it was not. fault is what
// the change makes a node lose.
func simulate(random *rand.Rand, j judge, fault float64) (stopped int) {
	for minute := range simMinutes {
		for range 60 / simSlot {
			burst := random.Float64() < float64(simSlot)/(20*60)
			var lost [simNodes]int
			for i := range lost {
				p := simNoise
				if i <= minute {
					p += fault
				}
				if burst && random.IntN(2) == 0 {
					p += 0.05
				}
				lost[i] = poisson(random, p*simRate*simSlot)
			}
			if j.look(&lost, minute+1) {
				return minute + 1
			}
		}
	}
	return 0
}

func poisson(random *rand.Rand, mean float64) int {
	limit, product := math.Exp(-mean), random.Float64()
	n := 0
	for ; product > limit; n++ {
		product *= random.Float64()
	}
	return n
}

// ours is the gate that is used.
type ours struct{ pooled Process }

func (o *ours) look(lost *[simNodes]int, changed int) bool {
	slot := Slot{Changed: changed, Control: simNodes - changed}
	for i, n := range lost {
		if i < changed {
			slot.ChangedBad += one(n > 0)
		} else {
			slot.ControlBad += one(n > 0)
		}
	}
	o.pooled.Add(slot)
	return o.pooled.Value() >= 1/Alpha
}

// threshold is a rule as delivery tools have it: less than 99 % success in three windows of 60 s in a row.
type threshold struct{ slots, lost, sent, below int }

func (r *threshold) look(lost *[simNodes]int, changed int) bool {
	for _, n := range lost[:changed] {
		r.lost += n
	}
	r.sent += changed * simRate * simSlot
	if r.slots++; r.slots < 60/simSlot {
		return false
	}
	if float64(r.lost) > 0.01*float64(r.sent) {
		r.below++
	} else {
		r.below = 0
	}
	r.slots, r.lost, r.sent = 0, 0, 0
	return r.below >= 3
}

// peeking is a test of two proportions at the level of 1 %, looked at in every slot.
type peeking struct{ lostA, sentA, lostB, sentB float64 }

func (z *peeking) look(lost *[simNodes]int, changed int) bool {
	for i, n := range lost {
		if i < changed {
			z.lostA += float64(n)
		} else {
			z.lostB += float64(n)
		}
	}
	z.sentA += float64(changed * simRate * simSlot)
	z.sentB += float64((simNodes - changed) * simRate * simSlot)
	if z.sentB == 0 {
		return false
	}
	p := (z.lostA + z.lostB) / (z.sentA + z.sentB)
	if p == 0 {
		return false
	}
	return (z.lostA/z.sentA-z.lostB/z.sentB)/math.Sqrt(p*(1-p)*(1/z.sentA+1/z.sentB)) > 2.326
}

// run simulates rollouts and returns how many were stopped, and the nodes changed by then at the median and at 95 %.
func run(seed uint64, rollouts int, fault float64, make func() judge) (stops int, median, most float64) {
	at := []int{}
	for i := range rollouts {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		if n := simulate(random, make(), fault); n > 0 {
			at = append(at, n)
		}
	}
	slices.Sort(at)
	if len(at) == 0 {
		return 0, math.Inf(1), math.Inf(1)
	}
	quantile := func(q float64) float64 {
		if i := int(math.Ceil(q*float64(rollouts))) - 1; i < len(at) {
			return float64(at[i])
		}
		return math.Inf(1)
	}
	return len(at), quantile(0.5), quantile(0.95)
}

// TestGateOfARollout is a short form of the benchmark.
func TestGateOfARollout(t *testing.T) {
	gate := func() judge { return &ours{} }
	if stops, _, _ := run(1, 60, 0, gate); stops > 0 {
		t.Errorf("%d of 60 rollouts that lose nothing were stopped", stops)
	}
	if stops, median, most := run(2, 200, 0.002, gate); stops < 200 || median > 1 || most > 3 {
		t.Errorf("0.2 %% loss: %d of 200 were stopped, half by node %g, 95 %% by node %g", stops, median, most)
	}
}

// BenchmarkGateOfARollout puts the gate beside a threshold rule and a test of two proportions that is looked at again
// and again: how often a good rollout is stopped, and after how many nodes a bad one.
func BenchmarkGateOfARollout(b *testing.B) {
	for _, gate := range []struct {
		name string
		make func() judge
	}{
		{"e-process", func() judge { return &ours{} }},
		{"threshold", func() judge { return &threshold{} }},
		{"z-test", func() judge { return &peeking{} }},
	} {
		b.Run(gate.name, func(b *testing.B) {
			for b.Loop() {
				stops, _, _ := run(3, 1000, 0, gate.make)
				b.ReportMetric(float64(stops), "false-stops/1000")
				stops, median, most := run(4, 1000, 0.002, gate.make)
				b.ReportMetric(float64(stops), "stops-at-0.2%/1000")
				b.ReportMetric(median, "nodes-p50")
				b.ReportMetric(most, "nodes-p95")
			}
		})
	}
}
