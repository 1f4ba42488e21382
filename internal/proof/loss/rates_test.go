package loss

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// TestSlotsAreADistribution: the chances of all counts of a slot add up to 1, their mean is that of the rate, and a
// slot is as likely as its parts together.
func TestSlotsAreADistribution(t *testing.T) {
	const sent, at = 100, 60 // 100 probes, 3 % of which are lost
	for b, burst := range bursts[:5] {
		sum, mean := 0.0, 0.0
		for lost := range int64(sent + 1) {
			var s slots
			s.add(sent, lost)
			likely := math.Exp(s.likely(1)[b][at])
			sum, mean = sum+likely, mean+likely*float64(lost)
		}
		if math.Abs(sum-1) > 0.01 || math.Abs(mean/sent/rates[at]-1) > 0.05 {
			t.Errorf("burst %g: the chances add up to %g, the mean is %g", burst, sum, mean)
		}
		var whole slots
		whole.add(2*sent, 7)
		parts := 0.0
		for lost := range int64(8) {
			var s slots
			s.add(sent, lost)
			s.add(sent, 7-lost)
			parts += math.Exp(s.likely(1)[b][at])
		}
		if got := math.Exp(whole.likely(1)[b][at]); math.Abs(got/parts-1) > 1e-6 {
			t.Errorf("burst %g: the whole has %g, the parts %g", burst, got, parts)
		}
	}
}

// The simulated network has four nodes, and a link from each node to each other. On a link there is one path that sends
// every 10 ms, and three that send every 100 ms.
const (
	simLinkNodes = 4
	simTick      = 100 // a second
	simPaths     = 4
)

// lossyLinks is what links lose. Rate is the share of probes. In bursts, a link is in a bad state for 200 ms at the
// mean and loses half of the probes then; shared bursts hit all links at once.
type lossyLinks struct {
	rate           float64
	bursts, shared bool
}

func (l lossyLinks) String() string {
	name := fmt.Sprintf("%g %%", 100*l.rate)
	switch {
	case l.shared:
		name += " in bursts on all links at once"
	case l.bursts:
		name += " in bursts"
	}
	return name
}

// harm is what a change does: from second 20 on, for some seconds (0: until the end), links lose so many times as
// before, and so much more.
type harm struct {
	name    string
	times   float64
	more    float64
	seconds int
	reaches func(from, to, path int) bool
}

func everywhere(int, int, int) bool { return true }

var harms = []harm{
	{"the same", 1, 0, 0, everywhere},
	{"2 times", 2, 0, 0, everywhere},
	{"5 times", 5, 0, 0, everywhere},
	{"5 % for 20 s", 1, 0.05, 20, everywhere},
	{"cut of 1 s, one path", 1, 1, 1, func(from, to, path int) bool { return from == 0 && to == 1 && path == 1 }},
	{"cut of 1 s, one node", 1, 1, 1, func(from, to, _ int) bool { return from == 0 || to == 0 }},
	{"cut of 1 s, all", 1, 1, 1, everywhere},
	{"cut of 5 s, one path", 1, 1, 5, func(from, to, path int) bool { return from == 0 && to == 1 && path == 1 }},
	{"cut of 5 s, one node", 1, 1, 5, func(from, to, _ int) bool { return from == 0 || to == 0 }},
	{"cut of 5 s, all", 1, 1, 5, everywhere},
}

// simGuard simulates a guard: a baseline, a command of 60 s, and the watching until the comparison is decided.
func simGuard(seed, n uint64, links lossyLinks, harm harm, baseline, most int) (end simEnd) {
	random := rand.New(rand.NewPCG(seed, n))
	c := NewContrast()
	const inBad, lasts = 0.5, 20 // ticks
	var bad [simLinkNodes * simLinkNodes]bool
	var run [simLinkNodes * simLinkNodes * simPaths]int64
	longest := 0.0
	leave := 1.0 / lasts
	for second := -baseline; second < most; second++ {
		harmed := second >= 20 && (harm.seconds == 0 || second < 20+harm.seconds)
		counts := map[string]nodeSum{}
		count := func(name string, sent, lost int64) {
			n := counts[name]
			counts[name] = nodeSum{n.sent + sent, n.lost + lost}
		}
		var sums [simLinkNodes * simLinkNodes]nodeSum
		for tick := range simTick {
			joint := -1.0
			for from := range simLinkNodes {
				for to := range simLinkNodes {
					if from == to {
						continue
					}
					link := from*simLinkNodes + to
					rate := links.rate
					if harmed && harm.reaches(from, to, 1) {
						rate *= harm.times
					}
					p := rate
					if links.bursts {
						share := rate / inBad
						toss := random.Float64()
						if links.shared {
							if joint < 0 {
								joint = toss
							}
							toss = joint
						}
						if bad[link] {
							bad[link] = toss >= leave
						} else {
							bad[link] = toss < leave*share/(1-share)
						}
						if p = 0; bad[link] {
							p = inBad
						}
					}
					for path := range simPaths {
						if path > 0 && tick%10 != (path*3+link)%10 {
							continue
						}
						chance := p
						if harmed && harm.more > 0 && harm.reaches(from, to, path) {
							chance = max(p, harm.more)
						}
						lost := chance > 0 && random.Float64() < chance
						sums[link].sent++
						every := 10.0
						if path > 0 {
							every = 100
						}
						at := &run[link*simPaths+path]
						if !lost {
							*at = 0
							continue
						}
						sums[link].lost++
						*at++
						longest = max(longest, float64(*at-1)*every)
					}
				}
			}
		}
		for link, n := range sums {
			if n.sent == 0 {
				continue
			}
			count("", n.sent, n.lost)
			count(fmt.Sprint("node ", link/simLinkNodes), n.sent, n.lost)
			count(fmt.Sprint("node ", link%simLinkNodes), n.sent, n.lost)
		}
		for name, n := range counts {
			c.add(name, n.sent, n.lost)
		}
		if second < 0 {
			c.quiet = longest
		} else {
			c.silence = longest
		}
		if second == -1 {
			c.begin()
			longest = 0
		}
		if second >= 0 {
			c.look()
		}
		if second < 89 {
			continue
		}
		if end = (simEnd{c.Answer(false), second, c.since[""].all.lost == 0}); end.Proven || end.Harmless {
			break
		}
	}
	return end
}

// simEnd is how a simulated guard ended; clean is true if nothing was lost since the baseline.
type simEnd struct {
	Against
	seconds int
	clean   bool
}

var simLinks = []lossyLinks{{0, false, false}, {0.0005, false, false}, {0.0005, true, false}, {0.0005, true, true},
	{0.005, false, false}, {0.005, true, false}, {0.005, true, true}, {0.02, false, false}, {0.02, true, false},
	{0.02, true, true}}

// simRates are the shares of simulated guards, in percent, and how long they take at the mean.
type simRates struct{ proven, good, clean, neither, seconds float64 }

// simMany simulates guards with another seed each.
func simMany(runs int, links lossyLinks, harm harm, baseline, most int) (r simRates) {
	for n := range runs {
		got := simGuard(7, uint64(n), links, harm, baseline, most)
		switch share := 100 / float64(runs); {
		case got.Proven:
			r.proven += share
		case got.Harmless && got.clean:
			r.clean += share
		case got.Harmless:
			r.good += share
		default:
			r.neither += share
		}
		r.seconds += float64(got.seconds) / float64(runs)
	}
	return r
}

// TestSimulatedGuards is a short form of the benchmark.
func TestSimulatedGuards(t *testing.T) {
	for _, test := range []struct {
		links          lossyLinks
		harm           harm
		baseline       int
		proven, good   float64 // at most, in percent
		proves, passes float64 // at least
	}{
		{simLinks[1], harms[0], 60, 0, 100, 0, 75},
		{simLinks[2], harms[0], 10, 0, 100, 0, 0},
		{simLinks[5], harms[0], 10, 0, 100, 0, 0},
		{simLinks[4], harms[1], 60, 100, 0, 0, 0},
		{simLinks[5], harms[2], 60, 100, 0, 0, 0},
		{simLinks[2], harms[3], 10, 100, 0, 100, 0},
		{simLinks[4], harms[4], 60, 100, 0, 0, 0},
		{simLinks[5], harms[7], 60, 100, 0, 75, 0},
	} {
		r := simMany(4, test.links, test.harm, test.baseline, 150)
		if r.proven > test.proven || r.good > test.good || r.proven < test.proves || r.good+r.clean < test.passes {
			t.Errorf("%s before, then %s: %+v", test.links, test.harm.name, r)
		}
	}
}

// TestSimulatedTwoPercent: on links that lose 2 %, one by one or in bursts, as much loss as before is never a proven
// loss, and twice as much is never good. With THESEUS_FULL=1 it prints the figures of the documentation: 100 guards
// each, and how often twice as much is proven if the watching may take 20 minutes.
func TestSimulatedTwoPercent(t *testing.T) {
	runs, lasts := 3, []int{150}
	if os.Getenv("THESEUS_FULL") == "1" {
		runs, lasts = 100, []int{240, 1200}
	}
	for _, links := range simLinks[7:] {
		t.Run(links.String(), func(t *testing.T) {
			for _, harm := range harms[:3] {
				for _, most := range lasts {
					r := simMany(runs, links, harm, 60, most)
					t.Logf("| %s | %s | %d s | %.0f | %.0f | %.0f | %.0f s |", links, harm.name, most, r.proven,
						r.good+r.clean, r.neither, r.seconds)
					if harm.times == 1 && r.proven > 0 || harm.times > 1 && r.good > 0 {
						t.Errorf("%s before, then %s: %+v", links, harm.name, r)
					}
				}
			}
		})
	}
}

// BenchmarkSimulatedGuards prints the shares of guards that end with each verdict, for the documentation.
func BenchmarkSimulatedGuards(b *testing.B) {
	for _, baseline := range []int{60, 10} {
		for _, links := range simLinks {
			b.Run(fmt.Sprintf("%ds %s", baseline, links), func(b *testing.B) {
				for i, harm := range harms {
					runs := 20
					if i < 3 {
						runs = 100
					}
					r := simMany(runs, links, harm, baseline, 240)
					fmt.Printf("| %s | %s | %.0f | %.0f | %.0f | %.0f | %.0f s |\n", links, harm.name, r.proven, r.good,
						r.clean, r.neither, r.seconds)
				}
			})
		}
	}
}
