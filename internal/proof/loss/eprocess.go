package loss

import "math"

// Alpha is the probability that a comparison stops a change that loses nothing, over all looks together.
const Alpha = 0.001

// tolerated is the odds ratio up to which changed nodes may be worse than the others: a difference between
// two nodes that has other reasons is not the fault of the change.
const tolerated = 1.5

// suspected are the odds ratios that the evidence is weighed for; all are equally likely a priori.
var suspected = [...]float64{5, 20, 100, 1000}

// Slot is the result of one interval of time: how many nodes of each kind lost something. Counting a
// node once per slot, however much it lost, prevents one hiccup from counting as many events.
type Slot struct {
	Changed, ChangedBad int
	Control, ControlBad int
	// Exposure is how many probes a changed node sent for each of a control; 0 means 1.
	Exposure float64
}

// Process is an e-process: evidence against "changed nodes lose no more than the others", as a bet that a
// sceptic makes again in every slot. If the claim holds, the stake is expected not to grow, so it exceeds
// 1/alpha with a chance of alpha at most, and that however often one looks and whenever one stops (Ville's
// inequality). Within a slot only the split of the bad nodes into changed and control counts (Fisher's
// noncentral hypergeometric distribution), so trouble that hits all alike is no evidence. The zero value has
// seen nothing.
type Process struct {
	logs [len(suspected)]float64
}

// Add bets on one slot. A slot in which no node or every node was bad, or with one kind of nodes only, says
// nothing.
func (p *Process) Add(s Slot) {
	bad, all := s.ChangedBad+s.ControlBad, s.Changed+s.Control
	if s.Changed == 0 || s.Control == 0 || bad == 0 || bad == all {
		return
	}
	exposure := s.Exposure
	if exposure <= 0 {
		exposure = 1
	}
	null := s.logLikelihood(tolerated * exposure)
	for i, ratio := range suspected {
		p.logs[i] += s.logLikelihood(ratio*exposure) - null
	}
}

// AddKnown bets on one node alone, of which the odds of being bad are known if the claim holds.
func (p *Process) AddKnown(odds float64, bad bool) {
	likely := func(ratio float64) float64 {
		if bad {
			return math.Log(ratio*odds) - math.Log1p(ratio*odds)
		}
		return -math.Log1p(ratio * odds)
	}
	for i, ratio := range suspected {
		p.logs[i] += likely(ratio) - likely(tolerated)
	}
}

// Value is the evidence: the current value of one unit of stake.
func (p *Process) Value() float64 {
	sum := 0.0
	for _, log := range p.logs {
		sum += math.Exp(log)
	}
	return sum / float64(len(suspected))
}

// logLikelihood of the split of the bad nodes, for a ratio of odds.
func (s Slot) logLikelihood(ratio float64) float64 {
	bad, log := s.ChangedBad+s.ControlBad, math.Log(ratio)
	total := math.Inf(-1)
	for x := max(0, bad-s.Control); x <= min(bad, s.Changed); x++ {
		total = logAdd(total, choose(s.Changed, x)+choose(s.Control, bad-x)+float64(x)*log)
	}
	return choose(s.Changed, s.ChangedBad) + choose(s.Control, s.ControlBad) + float64(s.ChangedBad)*log - total
}

// choose is the logarithm of the number of ways to take k of n.
func choose(n, k int) float64 {
	all, _ := math.Lgamma(float64(n + 1))
	taken, _ := math.Lgamma(float64(k + 1))
	left, _ := math.Lgamma(float64(n - k + 1))
	return all - taken - left
}

func logAdd(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	return a + math.Log1p(math.Exp(b-a))
}

// worst counts, of the evidence against each of several nodes, those that are worse than the others at a rate
// of false discoveries of alpha (e-BH: the k largest values, for the largest k of which all exceed n/(k*alpha)).
// Values are in descending order.
func worst(values []float64, alpha float64) int {
	for k := len(values); k > 0; k-- {
		if values[k-1] >= float64(len(values))/(float64(k)*alpha) {
			return k
		}
	}
	return 0
}

// Tally counts probes sent and lost on paths of one kind.
type Tally struct{ Sent, Lost int64 }

func (t *Tally) add(sent, lost int64) { t.Sent += sent; t.Lost += lost }
