// Package result says what the journal of a plan that measures foreign changes proves. The exit code of the command
// line and the report both say it, and so they say the same. It is pure.
package result

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// Ran is how a command ended, for the journal. It does not have the command's output, which may hold credentials.
type Ran struct {
	// Code is the exit code; -1 if a signal ended the command, which Signal names.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// Unknown is true if the process that ran the command ended before it.
	Unknown bool `json:"unknown,omitempty"`
	// Interrupted is true if the user ended it, and Killed if a loss did (--on-loss kill).
	Interrupted bool `json:"interrupted,omitempty"`
	Killed      bool `json:"killed,omitempty"`
	// OnLoss is how the command ended that ran because of a loss; nil if none did.
	OnLoss *Ran `json:"onLoss,omitempty"`
	// Error says why the command could not be started.
	Error string `json:"error,omitempty"`
	// Signals are the user's signals that did not hold while the command ran.
	Signals []signal.Answer `json:"signals,omitempty"`
	// NewPods are those that were made while the command ran; nil if none were.
	NewPods *NewPods `json:"newPods,omitempty"`
	// Samples are the pairs of pods that were connected while the command ran; nil if none were.
	Samples *Samples `json:"samples,omitempty"`
	// Joined are the nodes that joined while the command ran.
	Joined []Joined `json:"joined,omitempty"`
	// JoinedSilent are paths of such nodes that a cluster may lack: they did not answer, and are not measured.
	JoinedSilent []path.Silence `json:"joinedSilent,omitempty"`
}

// Joined is a node that joined the cluster, and is measured from a moment on.
type Joined struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"`
}

// Failed says how a command failed; empty if it did not.
func (r Ran) Failed() string {
	switch {
	case r.Error != "":
		return r.Error
	case r.Unknown:
		return "its result is unknown: theseus was stopped while it ran"
	case r.Signal != "":
		return "it was ended by a signal (" + r.Signal + ")"
	case r.Code != 0:
		return fmt.Sprintf("it ended with exit code %d", r.Code)
	}
	return ""
}

// Watched is how the watching after the command ended, for the journal.
type Watched struct {
	// Quiet is true if no probe was lost for as long as asked.
	Quiet bool `json:"quiet"`
	// Interrupted is true if the user ended the watching.
	Interrupted bool `json:"interrupted,omitempty"`
	// Why says what was not quiet.
	Why    string `json:"why,omitempty"`
	OnLoss *Ran   `json:"onLoss,omitempty"`
	// Signals are the user's signals that did not hold while the network was watched.
	Signals []signal.Answer `json:"signals,omitempty"`
	// NewPods are those that were made after the change; nil if none were.
	NewPods *NewPods `json:"newPods,omitempty"`
	// Samples are the pairs of pods that were connected after the change; nil if none were.
	Samples *Samples `json:"samples,omitempty"`
	// Joined are the nodes that joined after the change, or that were seen only then.
	Joined []Joined `json:"joined,omitempty"`
	// JoinedSilent are paths of such nodes that a cluster may lack: they did not answer, and are not measured.
	JoinedSilent []path.Silence `json:"joinedSilent,omitempty"`
}

// Result is what the journal says of a guarded change. A field is nil while the journal does not have it.
type Result struct {
	// Ran is how the command ended; where others made the change, that of a command that succeeded.
	Ran     *Ran
	Watched *Watched
	// Before and After are the last answers of the gates: of the baseline, and of the result.
	Before, After *engine.Verdict
	// NewPodsBefore are the new pods that were made before the change.
	NewPodsBefore *NewPods
	// SampledBefore is what became of the sampled pairs of pods before the change.
	SampledBefore *Samples
	// Silent are paths that a cluster may lack: they did not answer before the change, and are not measured.
	Silent []path.Silence

	maxLost      int64
	lossyBefore  bool
	newPodsEvery time.Duration
	pairs        []step.Pair
}

// Of reads the journal of a plan that measures foreign changes.
func Of(p *plan.Plan, records []engine.Record) Result {
	r := Result{maxLost: p.Change.MaxLost, lossyBefore: p.LossyBefore(), pairs: p.Pairs()}
	r.newPodsEvery, _ = p.NewPods()
	tried, sampled := NewPodsAction(p.Steps), SampleAction(p.Steps)
	var before, after, ran string
	measures := map[string]bool{} // the actions that set paths
	for i := range p.Steps {
		one := &p.Steps[i]
		for j := range one.Actions {
			measures[one.Actions[j].ID] = one.Actions[j].Op() == step.OpProbe
		}
		switch {
		case one.Gate != nil && one.Gate.Baseline:
			before = one.ID
		case one.Gate != nil && one.Gate.Result:
			after = one.ID
		case one.Awaits() || len(one.Actions) > 0 && one.Actions[0].Op() == step.OpCommand:
			ran = one.ID
		}
	}
	for i := range records {
		record := &records[i]
		switch done := record.Event == engine.Acted && !record.Undo; {
		case record.Step == "":
		case done && tried != "" && record.Action == tried:
			r.NewPodsBefore = decoded[NewPods](record.Data)
		case done && sampled != "" && record.Action == sampled:
			r.SampledBefore = decoded[Samples](record.Data)
		case done && record.Action != "" && measures[record.Action]:
			if set := decoded[struct{ Silent []path.Silence }](record.Data); set != nil {
				r.Silent = append(r.Silent, set.Silent...)
			}
		case record.Event == engine.GateAnswer && record.Step == before:
			r.Before = record.Verdict
		case record.Event == engine.GateAnswer && record.Step == after:
			r.After = record.Verdict
		case done && record.Step == ran:
			r.Ran = decoded[Ran](record.Data)
		case done && record.Step == after:
			r.Watched = decoded[Watched](record.Data)
		}
	}
	return r
}

// Joined are the nodes that have joined since the baseline.
func (r Result) Joined() (all []Joined) {
	if r.Ran != nil {
		all = append(all, r.Ran.Joined...)
	}
	if r.Watched != nil {
		all = append(all, r.Watched.Joined...)
	}
	return all
}

// JoinedSilent are the paths of nodes that have joined that did not answer, and are not measured.
func (r Result) JoinedSilent() (all []path.Silence) {
	if r.Ran != nil {
		all = append(all, r.Ran.JoinedSilent...)
	}
	if r.Watched != nil {
		all = append(all, r.Watched.JoinedSilent...)
	}
	return all
}

// decoded is what an action answered; nil if it failed.
func decoded[T any](data json.RawMessage) *T {
	var value T
	if len(data) == 0 || json.Unmarshal(data, &value) != nil {
		return nil
	}
	return &value
}

// Proof is what a result proves.
type Proof string

// The proofs. Of several, the first counts.
const (
	// Lost: a loss is proven.
	Lost Proof = "lost"
	// Broken: a signal of the user failed since the baseline, in which it held.
	Broken Proof = "signal failed"
	// Interrupted: the user ended the command or the watching.
	Interrupted Proof = "interrupted"
	// Failed: the command failed.
	Failed Proof = "failed"
	// Unproven: there is no proof that nothing was lost.
	Unproven Proof = "not proven"
	// Good: no more was lost than is allowed.
	Good Proof = "good"
)

// Judge says what the result proves, and why; empty if it is good.
func (r Result) Judge() (proof Proof, why string) {
	broken, unproven := r.signals()
	failed, untried := r.newPods()
	turned, unsampled := r.samples()
	lost := false
	if r.After != nil {
		lost, why = r.loss()
	}
	var losses []string
	if lost {
		losses = append(losses, why)
	}
	for _, text := range []string{failed, turned} {
		if text != "" {
			losses = append(losses, text)
		}
	}
	switch {
	case len(losses) > 0:
		return Lost, strings.Join(losses, "; and ")
	case broken != "":
		return Broken, broken
	case r.After == nil:
		return Unproven, "the journal does not have the result"
	}
	why = cmp.Or(unproven, why, untried, unsampled, r.uncovered())
	if r.Ran == nil {
		return Unproven, "the journal does not have the result"
	}
	more := ""
	if why != "" {
		more = ": " + why
	}
	failed = r.Ran.Failed()
	switch {
	case r.Ran.Interrupted || r.Watched != nil && r.Watched.Interrupted:
		return Interrupted, "until then no loss is proven" + more
	case failed != "" && !r.Ran.Unknown:
		return Failed, fmt.Sprintf("the command failed: %s; no loss is proven%s", failed, more)
	case failed != "":
		return Unproven, failed + more
	case why != "":
		return Unproven, why
	}
	return Good, ""
}

// uncovered says of which class that every run measures no path was left, in all or of a node that joined; empty if
// there is none.
func (r Result) uncovered() string {
	for _, one := range r.Silent {
		if one.Uncovered() {
			return "not covered: " + one.String()
		}
	}
	for _, one := range r.JoinedSilent() {
		if one.Uncovered() {
			return "not covered, of a node that joined: " + one.String()
		}
	}
	return ""
}

// Shut are the paths that are not measured because firewalls of nodes shut their ports, apart from those that many
// networks do not have.
func (r Result) Shut() []path.Silence {
	return slices.DeleteFunc(slices.Concat(r.Silent, r.JoinedSilent()),
		func(one path.Silence) bool { return path.Optional(one.Class) })
}

// signals says which of the user's signals failed since the baseline, in which it held, and else which prove nothing;
// both are empty if all hold.
func (r Result) signals() (broken, unproven string) {
	var all []signal.Answer
	if r.Ran != nil {
		all = append(all, r.Ran.Signals...)
	}
	if r.Watched != nil {
		all = append(all, r.Watched.Signals...)
	}
	if r.After != nil {
		all = append(all, r.After.Signals...)
	}
	var failed, silent, already []signal.Answer
	for _, one := range signal.Not(all) {
		same := func(other signal.Answer) bool { return other.Signal == one.Signal }
		before := r.Before != nil && slices.ContainsFunc(r.Before.Signals, func(a signal.Answer) bool {
			return same(a) && a.State == signal.Fails
		})
		switch {
		case slices.ContainsFunc(slices.Concat(failed, silent, already), same): // the first answer of each says it
		case before:
			already = append(already, one)
		case one.State == signal.Fails:
			failed = append(failed, one)
		default:
			silent = append(silent, one)
		}
	}
	switch {
	case len(failed) > 0:
		return signal.Say(failed), ""
	case len(silent) > 0:
		return "", signal.Say(silent)
	case len(already) > 0:
		return "", "a signal failed already before the change, and proves nothing: " + signal.Say(already)
	}
	return "", ""
}

// longer is how much longer than any gap of a baseline with losses a gap must be, to be the command's.
const longer = time.Second

// loss says whether a loss is proven, and why; without a loss, why nothing is proven, empty if the measurements are
// good. Where the baseline lost probes too, single losses prove nothing: a gap that is clearly longer than all before
// does, and so does an answer on a denied path.
func (r Result) loss() (lost bool, why string) {
	after := r.After
	switch {
	case after.Leaked > 0:
		return true, after.Reason
	case r.lossyBefore && after.Against != nil:
		return r.against()
	case after.Lost > 0 && !after.Pass && r.lossyBefore && r.Before != nil && r.Before.Lost > 0:
		figures := fmt.Sprintf(
			"%d of %d probes lost before the change, longest gap %.0f ms; %d of %d since, longest gap %.0f ms",
			r.Before.Lost, r.Before.Sent, r.Before.LongestGapMillis, after.Lost, after.Sent, after.LongestGapMillis)
		return after.LongestGapMillis > r.Before.LongestGapMillis+float64(longer.Milliseconds()), figures
	case beyond(after.Lost, r.maxLost, after.LongestGapMillis):
		return true, after.Reason
	case !after.Pass:
		return false, after.Reason
	}
	return false, r.disturbed()
}

// against is loss where the result is compared with a baseline that may lose probes. Then a result that does not pass
// lacks measurements.
func (r Result) against() (lost bool, why string) {
	switch against := r.After.Against; {
	case against.Proven:
		return true, against.Why
	case !r.After.Pass:
		return false, r.After.Reason
	case !against.Harmless:
		return false, against.Needs + " (" + against.Why + ")"
	}
	return false, r.disturbed()
}

// disturbed says why the network was not quiet when the watching ended; empty if it was.
func (r Result) disturbed() string {
	if r.Watched != nil && r.Watched.Quiet {
		return ""
	}
	why := "the network was not quiet when the watching ended"
	if r.Watched != nil && r.Watched.Why != "" {
		why += ": " + r.Watched.Why
	}
	return why
}

// As is how the result compares with a baseline that lost probes; empty if it was not compared, or is not good.
func (r Result) As() string {
	if r.After == nil || r.After.Against == nil || r.After.Lost == 0 || !r.After.Against.Harmless {
		return ""
	}
	return r.After.Against.Why
}

// beyond reports whether losses are more than is allowed. Lengths are in ms.
func beyond(lost, maxLost int64, longestGap float64) bool {
	return lost > maxLost || lost > 0 && longestGap > float64(joint.DefaultMaxGap.Milliseconds())
}

// Beyond reports whether what was measured until now, with the baseline, is a loss already. The longest gap is in ms.
// Before a baseline has passed, and where it lost probes and that was accepted, nothing is one but an answer on a
// denied path.
func (r Result) Beyond(lost, leaked int64, longestGap float64) bool {
	switch {
	case r.Before == nil || !r.Before.Pass:
		return false
	case leaked > 0:
		return true
	case r.lossyBefore:
		return false // only the comparison of the result tells
	}
	return beyond(lost-r.Before.Lost, r.maxLost, longestGap)
}
