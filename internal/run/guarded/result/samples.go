package result

import (
	"fmt"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Samples is what became of the sampled pairs of pods, for the journal.
type Samples struct {
	// Rounds counts how often all pairs were connected.
	Rounds int `json:"rounds"`
	// Last are the tries of the last round, in the order of the plan's pairs.
	Last []step.Try `json:"last,omitempty"`
	// Turned are the pairs that were not as before the change, each with the first try of each kind.
	Turned []Sampled `json:"turned,omitempty"`
	// Lacks says why a pair was not tried; empty if all were.
	Lacks string `json:"lacks,omitempty"`
}

// Sampled is one try of a pair, which is the plan's pair of that index.
type Sampled struct {
	Pair int       `json:"pair"`
	At   time.Time `json:"at"`
	Try  step.Try  `json:"try"`
}

// Turn is how a pair differs from what it was before the change; empty if it does not.
type Turn string

// The turns, the worst first.
const (
	// Cut: the connection does not get through any more. Leaked: policy denies it, and it gets through now.
	Cut    Turn = "lost"
	Leaked Turn = "leaked"
	// Opens: policy allows it, and it gets through only now. Refuses: the other pod refuses what it accepted.
	Opens   Turn = "opened"
	Refuses Turn = "refused"
	// Left: one of the pods is gone. Unknown: it was not tried, before or now.
	Left    Turn = "gone"
	Unknown Turn = "unknown"
)

var turns = []Turn{Cut, Leaked, Opens, Refuses, Left, Unknown}

// Bad reports whether a turn is a proven loss.
func (t Turn) Bad() bool { return t == Cut || t == Leaked }

// TurnOf compares a pair with itself before the change. What policy says of it decides only whether an answer that
// is new is a leak.
func TurnOf(pair step.Pair, before, now step.Try) Turn {
	switch {
	case now.Outcome == step.TryGone:
		return Left
	case !before.Known() || !now.Known():
		return Unknown
	case before.Reached() && !now.Reached():
		return Cut
	case !before.Reached() && now.Reached() && pair.Denied:
		return Leaked
	case !before.Reached() && now.Reached():
		return Opens
	case before.Outcome == step.TryOpened && now.Outcome == step.TryRefused:
		return Refuses
	}
	return ""
}

// Contradicts reports whether the network does something else than the policies say.
func Contradicts(pair step.Pair, try step.Try) bool {
	return try.Known() && try.Reached() == pair.Denied
}

// Contradiction says what the policies say, and what the network did.
func Contradiction(pair step.Pair, try step.Try) string {
	return fmt.Sprintf("the model of the policies says that %s is %s, and the network did something else: %s", pair,
		pair.Verdict(), try)
}

// PairTurn is a pair that is not as before the change.
type PairTurn struct {
	step.Pair
	Turn        Turn
	Before, Now step.Try
	At          time.Time // when it was first seen
}

// String says what the pair does now, and what it did before.
func (p PairTurn) String() string {
	text := fmt.Sprintf("%s (%s by policy)", p.Pair, p.Verdict())
	if !p.At.IsZero() {
		text += " at " + p.At.UTC().Format(time.TimeOnly) + " UTC"
	}
	text += ": " + p.Now.String()
	if p.Before.Known() {
		text += "; before the change: " + p.Before.String()
	}
	return text
}

// SampleAction is the ID of the action that connects the pairs before the change; empty if the plan has none.
func SampleAction(steps []step.Step) string { return actionOf(steps, step.OpSample) }

// Turns are the pairs that are not as before the change, each by its worst turn.
func (r Result) Turns() []PairTurn {
	before := r.SampledBefore
	if before == nil || len(before.Last) != len(r.pairs) {
		return nil
	}
	var tries []Sampled
	for _, one := range r.sampled() {
		tries = append(tries, one.Turned...)
		for i, try := range one.Last {
			tries = append(tries, Sampled{Pair: i, Try: try})
		}
	}
	worst := map[int]PairTurn{}
	for _, one := range tries {
		if one.Pair < 0 || one.Pair >= len(r.pairs) {
			continue
		}
		pair, was := r.pairs[one.Pair], before.Last[one.Pair]
		turn := TurnOf(pair, was, one.Try)
		last, has := worst[one.Pair]
		if turn != "" && (!has || slices.Index(turns, turn) < slices.Index(turns, last.Turn)) {
			worst[one.Pair] = PairTurn{pair, turn, was, one.Try, one.At}
		}
	}
	var all []PairTurn
	for i := range r.pairs {
		if turn, has := worst[i]; has {
			all = append(all, turn)
		}
	}
	return all
}

// sampled are the samples since the baseline.
func (r Result) sampled() []*Samples {
	var all []*Samples
	if r.Ran != nil && r.Ran.Samples != nil {
		all = append(all, r.Ran.Samples)
	}
	if r.Watched != nil && r.Watched.Samples != nil {
		all = append(all, r.Watched.Samples)
	}
	return all
}

// SampleRounds is how often all pairs were connected since the baseline.
func (r Result) SampleRounds() int {
	rounds := 0
	for _, one := range r.sampled() {
		rounds += one.Rounds
	}
	return rounds
}

// samples says which pairs are worse than before the change, and else why they prove nothing; both are empty if they
// are as before, or the plan has none.
func (r Result) samples() (worse, unproven string) {
	if len(r.pairs) == 0 {
		return "", ""
	}
	all := r.Turns()
	bad := slices.DeleteFunc(slices.Clone(all), func(p PairTurn) bool { return !p.Turn.Bad() })
	if len(bad) > 0 {
		return fmt.Sprintf("%s changed, such as %s", cluster.Count(len(bad), "sampled connection"), bad[0]), ""
	}
	if r.Watched == nil || r.Watched.Interrupted {
		return "", ""
	}
	unknown := 0
	for _, p := range all {
		if p.Turn == Unknown || p.Turn == Left {
			unknown++
		}
	}
	switch last := r.Watched.Samples; {
	case r.SampledBefore == nil || len(r.SampledBefore.Last) == 0:
		return "", "no pair of pods was connected before the change"
	case last == nil || last.Rounds == 0:
		return "", "no pair of pods was connected after the change"
	case last.Lacks != "":
		return "", "pairs of pods could not be connected after the change: " + last.Lacks
	case unknown == len(r.pairs):
		return "", "no sampled pair of pods could be compared, such as " + all[0].String()
	}
	return "", ""
}
