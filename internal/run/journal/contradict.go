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

// ContradictError says that this machine kept records which the cluster does not have as they were written: the cluster's
// data came back from a backup, or somebody rewrote the journal there.
type ContradictError struct {
	// Path is the file of this machine's copy.
	Path string
	// At is the Seq of the first record that the cluster lacks, or has otherwise. Other is the cluster's, nil where it has none.
	At    int
	Other *engine.Record
	// Lost are this machine's records from there on.
	Lost []engine.Record
}

// Contradict compares this machine's copy of a journal with the cluster's. The cluster may have more, as another machine may
// have gone on; whatever the copy has the cluster must have.
func Contradict(path string, local, cluster []engine.Record) error {
	for i, r := range local {
		if i < len(cluster) && same(r, cluster[i]) {
			continue
		}
		e := &ContradictError{Path: path, At: r.Seq, Lost: local[i:]}
		if i < len(cluster) {
			e.Other = &cluster[i]
		}
		return e
	}
	return nil
}

func (e *ContradictError) Error() string {
	last := e.Lost[len(e.Lost)-1]
	what := fmt.Sprintf("the cluster forgot what this machine recorded: its journal ends before record %d, and %s goes on to record %d, of %s",
		e.At, e.Path, last.Seq, last.At.Format(time.RFC3339))
	if e.Other != nil {
		what = fmt.Sprintf("the cluster's journal is not the one that this machine recorded: record %d is %q there and %q in %s, which ends with record %d",
			e.At, title(*e.Other), title(e.Lost[0]), e.Path, last.Seq)
	}
	return what + "; only this machine knows of: " + e.known()
}

// Hint says what a person may do.
func (e *ContradictError) Hint() string {
	return "the cluster's data may be from a backup, or was rewritten: look on the cluster at each act that only this machine knows of; to go on with what the cluster knows, move " +
		e.Path + " away first"
}

// Is makes it an engine.ErrNeedsPerson.
func (e *ContradictError) Is(target error) bool { return target == engine.ErrNeedsPerson }

// maxKnown bounds how many acts an error names.
const maxKnown = 8

// known are the steps and actions that were done by the lost records, the newest last.
func (e *ContradictError) known() string {
	var acts []string
	for _, r := range e.Lost {
		if r.Event == engine.Acted || r.Event == engine.StepDone || r.Event == engine.StepUndone || r.Event == engine.Finished {
			acts = append(acts, title(r))
		}
	}
	if len(acts) == 0 {
		return fmt.Sprintf("%d records, of which none is the outcome of an act", len(e.Lost))
	}
	if more := len(acts) - maxKnown; more > 0 {
		acts = slices.Insert(slices.Clone(acts[more:]), 0, fmt.Sprintf("%d earlier acts", more))
	}
	return strings.Join(acts, "; ")
}

// title is a record in a few words.
func title(r engine.Record) string {
	parts := []string{string(r.Event), cmp.Or(r.Action, r.Step), r.Result}
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// otherPlan says whether a journal is not that of the plan with this hash.
func otherPlan(records []engine.Record, plan string) bool {
	if len(records) == 0 {
		return false
	}
	var start engine.Start
	err := json.Unmarshal(records[0].Data, &start)
	return err != nil || start.Plan != plan
}
