package loss

import (
	"math"
	"slices"
)

// The rates of lost probes that are weighed grow by a fourth root of two, from a millionth to all. The bursts are how
// many times the variance of a count is its mean: 1 if probes are lost one by one, and about the number of probes that
// one burst takes otherwise.
const (
	rateSteps = 80
	rateStep  = 4 // to twice the rate
	leastRate = 1e-6
)

var bursts = [...]float64{1, 2, 5, 12, 30, 80, 200, 500}

// rates and parts are the rates of a grid, and how much less likely a clean slot is, for each burst, for each probe
// that is expected to be lost.
var rates, parts = func() (rates [rateSteps]float64, parts [len(bursts)]float64) {
	for i := range rates {
		rates[i] = leastRate * math.Exp2(float64(i)/rateStep)
	}
	for b, burst := range bursts {
		if parts[b] = 1; burst > 1 {
			parts[b] = math.Log(burst) / (burst - 1)
		}
	}
	return rates, parts
}()

// grid has a number for each burst and rate.
type grid [len(bursts)][rateSteps]float64

// slots sums up what was counted in slots of time: how likely it is at each rate and burst. The count of a slot has a
// negative binomial distribution whose variance is a multiple of its mean. So a slot of two seconds is as likely as
// both of its seconds together, however the counts are spread over them, and slots may have any length.
type slots struct {
	sent, lost int64
	bad        int        // slots that lost probes
	clean      int64      // probes of the other slots
	seen       [][2]int64 // the bad slots, as long as a baseline is taken
	logs       *grid      // of the bad slots; nil if there are none
}

// add adds a slot.
func (s *slots) add(sent, lost int64) {
	if lost = min(lost, sent); sent <= 0 {
		return
	}
	s.sent += sent
	if lost <= 0 {
		s.clean += sent
		return
	}
	s.lost += lost
	s.bad++
	if s.logs == nil {
		s.logs = &grid{}
	}
	n, k := float64(sent), float64(lost)
	fact, _ := math.Lgamma(k + 1)
	for b, burst := range bursts {
		for i := range rateSteps {
			mean := n * rates[i]
			if burst == 1 {
				s.logs[b][i] += k*math.Log(mean) - mean - fact
				continue
			}
			size := mean / (burst - 1)
			s.logs[b][i] += rising(size, lost) - fact + k*math.Log((burst-1)/burst) - size*math.Log(burst)
		}
	}
}

// rising is the logarithm of size (size+1) ... of so many factors.
func rising(size float64, factors int64) float64 {
	const few = 8
	if factors > few {
		more, _ := math.Lgamma(size + float64(factors))
		less, _ := math.Lgamma(size)
		return more - less
	}
	product := size
	for n := int64(1); n < factors; n++ {
		product *= size + float64(n)
	}
	return math.Log(product)
}

// join adds what other slots have counted.
func (s *slots) join(o *slots) {
	s.sent, s.lost, s.bad, s.clean = s.sent+o.sent, s.lost+o.lost, s.bad+o.bad, s.clean+o.clean
	if o.logs == nil {
		return
	}
	if s.logs == nil {
		s.logs = &grid{}
	}
	for b := range bursts {
		for i := range rateSteps {
			s.logs[b][i] += o.logs[b][i]
		}
	}
}

// likely is the log-likelihood, as if all had been seen so many times.
func (s *slots) likely(times float64) *grid {
	var all grid
	for b := range bursts {
		for i := range rateSteps {
			all[b][i] = -float64(s.clean) * rates[i] * parts[b]
			if s.logs != nil {
				all[b][i] += s.logs[b][i]
			}
			all[b][i] *= times
		}
	}
	return &all
}

const (
	// harmTimes, and harmAll or harmPart, are the harm that a good result excludes: the rate of lost probes is twice
	// what it was before, and higher by a tenth of a percentage point at least, or by one in a part of the network. A
	// part sends few probes: to see less there would take hours.
	harmTimes, harmAll, harmPart = 2, 0.001, 0.01
	// steadyUp is how many steps of rate are no proof of a loss: up to 1.7 times.
	steadyUp = 3
)

// worse is the evidence against "the rate is at most 1.7 times that of before", harmless that against "the harm is
// there" (logarithms). Both are e-values, however often and whenever one looks (universal inference: the likelihood of
// a mixture that does not depend on later counts, divided by the largest likelihood under the claim). The claim of
// worse includes that bursts are as before. That of harmless does not.
func worse(before, since *grid) float64 {
	was, least := before.shares()
	now, most := since.shares()
	const last = rateSteps - steadyUp - 1
	var up [len(bursts)][last]float64 // for each burst and rate, the mean of since over clearly higher rates
	var all [last]float64             // and over all bursts
	for b := range bursts {
		sum := 0.0
		for i := last - 1; i >= 0; i-- {
			sum += now[b][i+steadyUp+1]
			up[b][i] = sum / float64(last-i)
			all[i] += up[b][i] / float64(len(bursts))
		}
	}
	mixed, claim := 0.0, math.Inf(-1)
	for b := range bursts {
		top := slices.Max(since[b][:steadyUp])
		for i := range rateSteps {
			if j := i + steadyUp; j < rateSteps {
				top = max(top, since[b][j])
			}
			claim = max(claim, before[b][i]+top)
			if i < last {
				mixed += was[b][i] * (up[b][i] + all[i]) / 2
			}
		}
	}
	return math.Log(mixed/float64(len(bursts)*last)) + least + most - claim
}

func harmless(before, since *grid, more float64) float64 {
	was, least := before.shares()
	now, most := since.shares()
	var former, latter [rateSteps]float64 // the largest of all bursts
	mixed := 0.0
	for b := range bursts {
		down := 0.0
		for i := range rateSteps {
			down += now[b][i]
			mixed += was[b][i] * (now[b][i] + down/float64(i+1)) / 2
			if b == 0 {
				former[i], latter[i] = before[b][i], since[b][i]
				continue
			}
			former[i], latter[i] = max(former[i], before[b][i]), max(latter[i], since[b][i])
		}
	}
	for i := rateSteps - 2; i >= 0; i-- {
		latter[i] = max(latter[i], latter[i+1])
	}
	claim := math.Inf(-1)
	for i, j := 0, 0; i < rateSteps; i++ {
		rate := rates[i]
		for j < rateSteps-1 && rates[j]*1.02 < max(harmTimes*rate, rate+more) {
			j++
		}
		claim = max(claim, former[i]+latter[j])
	}
	return math.Log(mixed/float64(len(bursts)*rateSteps)) + least + most - claim
}

// shares are likelihoods, as shares of the largest, whose logarithm is most.
func (g *grid) shares() (shares *grid, most float64) {
	most = math.Inf(-1)
	for b := range bursts {
		most = max(most, slices.Max(g[b][:]))
	}
	shares = &grid{}
	for b := range bursts {
		for i := range rateSteps {
			shares[b][i] = math.Exp(g[b][i] - most)
		}
	}
	return shares, most
}

const (
	// blockSlots are the slots of a block: evidence is weighed for the last 1, 2, 4 and 8 blocks too, since a loss that
	// lasts for some seconds would be lost in the mean of hours.
	blockSlots = 5
	mostBlocks = 8
)

// rate compares the slots of one part of the network with those of the baseline.
type rate struct {
	before  *grid
	more    float64 // harmAll or harmPart
	all     slots
	blocks  []slots // the last ones, the newest last
	filled  int     // slots of the newest
	ended   int     // blocks
	windows float64 // the evidence of all windows that have ended
}

func newRate(name string, before *slots) *rate {
	return &rate{before: before.likely(1), more: harmOf(name)}
}

// harmOf is how many more probes a part loses in the harm, as a share.
func harmOf(name string) float64 {
	if name == "" {
		return harmAll
	}
	return harmPart
}

// add adds a slot.
func (r *rate) add(sent, lost int64) {
	if sent <= 0 {
		return
	}
	var slot slots
	slot.add(sent, lost)
	r.all.join(&slot)
	if r.filled == 0 {
		if len(r.blocks) == mostBlocks {
			r.blocks = append(r.blocks[:0], r.blocks[1:]...)
		}
		r.blocks = append(r.blocks, slots{})
	}
	r.blocks[len(r.blocks)-1].join(&slot)
	if r.filled++; r.filled < blockSlots {
		return
	}
	r.filled = 0
	weight := 1 / float64(r.ended+1) / float64(r.ended+2) / 4 // of all blocks and windows together: 1
	r.ended++
	var window slots
	for n, at := 1, len(r.blocks)-1; at >= 0; n, at = n+1, at-1 {
		window.join(&r.blocks[at])
		if n&(n-1) == 0 && window.lost > 0 && r.blocks[len(r.blocks)-1].lost > 0 {
			r.windows += weight * math.Exp(min(600, worse(r.before, window.likely(1))))
		}
	}
}

// worse is the evidence that more is lost than before.
func (r *rate) worse() float64 {
	if r.all.lost == 0 {
		return r.windows / 2
	}
	return (math.Exp(min(600, worse(r.before, r.all.likely(1)))) + r.windows) / 2
}

// harmless reports whether the harm is excluded. Where nothing was lost, there is none, as without a lossy baseline.
func (r *rate) harmless() bool {
	return r.all.lost == 0 || harmless(r.before, r.all.likely(1), r.more) >= math.Log(1/harmAlpha)
}

// harmAlpha is the probability that a comparison passes a change that does the harm.
const harmAlpha = 0.005
