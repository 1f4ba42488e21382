package journal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// ContradictError says that this machine has records which the cluster lacks, or has with other content: the cluster's
// data was restored from a backup, or the journal there was rewritten.
type ContradictError struct {
	// Path is the file of this machine's copy.
	Path string
	// At is the Seq of the first record that differs. Other is the cluster's record; nil if the cluster has none.
	At    int
	Other *engine.Record
	// Lost are this machine's records from At on.
	Lost []engine.Record
}

// contradict compares this machine's copy of a journal with the cluster's. equal says which records are known to be the
// same. The cluster may have more records, since another machine may have continued; it must have every record of the
// copy.
func contradict(path string, local, cluster []engine.Record, equal []bool) error {
	for i := range local {
		if i < len(equal) && equal[i] || i < len(cluster) && same(local[i], cluster[i]) {
			continue
		}
		e := &ContradictError{Path: path, At: local[i].Seq, Lost: local[i:]}
		if i < len(cluster) {
			e.Other = &cluster[i]
		}
		return e
	}
	return nil
}

func (e *ContradictError) Error() string {
	last := e.Lost[len(e.Lost)-1]
	what := fmt.Sprintf("the cluster lacks records that this machine has: its journal ends before record %d, but %s "+
		"continues to record %d, of %s",
		e.At, e.Path, last.Seq, last.At.Format(time.RFC3339))
	if e.Other != nil {
		what = fmt.Sprintf("the cluster's journal differs from this machine's copy: record %d is %q there, but %q in "+
			"%s, which ends with record %d",
			e.At, title(*e.Other), title(e.Lost[0]), e.Path, last.Seq)
	}
	return what + "; only this machine has: " + e.known()
}

// Hint says what a person can do.
func (e *ContradictError) Hint() string {
	return "the cluster's data may be from a backup, or was rewritten: check in the cluster each action that only " +
		"this machine has; to continue with the cluster's journal, move " +
		e.Path + " away first"
}

// Is makes it an engine.ErrNeedsPerson.
func (e *ContradictError) Is(target error) bool { return target == engine.ErrNeedsPerson }

// maxKnown bounds how many actions an error names.
const maxKnown = 8

// known are the steps and actions that the lost records report as done, the newest last.
func (e *ContradictError) known() string {
	var outcomes []string
	for _, r := range e.Lost {
		if r.Event == engine.Acted || r.Event == engine.StepDone || r.Event == engine.StepUndone ||
			r.Event == engine.Finished {
			outcomes = append(outcomes, title(r))
		}
	}
	if len(outcomes) == 0 {
		return fmt.Sprintf("%d records, none of them the outcome of an action", len(e.Lost))
	}
	if more := len(outcomes) - maxKnown; more > 0 {
		outcomes = slices.Insert(slices.Clone(outcomes[more:]), 0, fmt.Sprintf("%d earlier actions", more))
	}
	return strings.Join(outcomes, "; ")
}

// title describes a record in a few words.
func title(r engine.Record) string {
	parts := []string{string(r.Event), cmp.Or(r.Action, r.Step), r.Result}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// otherPlan reports whether a journal belongs to a plan with another hash.
func otherPlan(records []engine.Record, plan string) bool {
	if len(records) == 0 {
		return false
	}
	var start engine.Start
	err := json.Unmarshal(records[0].Data, &start)
	return err != nil || start.Plan != plan
}
