package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/mirror/objects"
)

// rounds bounds how often Settle looks again until nothing differs: a mirror whose controllers undo what is written
// never gets there.
const rounds = 5

// Settle compares and writes until nothing differs. It calls tell with every comparison before writing, and with every
// pass after it; tell may be nil.
func (c *Copier) Settle(ctx context.Context, tell func(round int, pass *Pass, wrote bool)) (*Pass, error) {
	if tell == nil {
		tell = func(int, *Pass, bool) {}
	}
	for round := 1; round <= rounds; round++ {
		pass, err := c.Look(ctx)
		if err != nil {
			return nil, err
		}
		if err := Decided(pass); err != nil {
			return nil, err
		}
		tell(round, pass, false)
		if pass.Delta.Writes() == 0 {
			return pass, nil
		}
		if err := c.Carry(ctx, pass); err != nil {
			return nil, err
		}
		tell(round, pass, true)
		if len(pass.Failures) > 0 {
			return nil, notTaken(pass)
		}
	}
	return nil, &Refusal{fmt.Sprintf("after %d rounds the mirror still differs: another client writes there", rounds),
		"theseus mirror diff shows the differences, and their field managers"}
}

// Undecided is the error of a copy that needs a person's decision: nothing was written.
type Undecided struct{ Refusal }

// Decided refuses a copy that needs a person's decision, with an *Undecided.
func Decided(pass *Pass) error {
	if foreign := pass.Delta.Foreign; len(foreign) > 0 {
		return &Undecided{Refusal{fmt.Sprintf("the mirror has %d objects already that were not copied from here: %s",
			len(foreign), objects.Some(foreign)),
			"delete them there, leave them out with --decide '" + foreign[0].String() +
				"=skip', or take them over with --adopt"}}
	}
	questions := pass.Plan.Questions
	if len(questions) == 0 {
		return nil
	}
	var lines []string
	for _, question := range questions {
		lines = append(lines, question.Key.String()+": "+question.Why)
	}
	return &Undecided{Refusal{fmt.Sprintf("%d to decide: %s", len(questions), strings.Join(lines, "; ")),
		questions[0].Hint}}
}

// notTaken groups what the mirror did not take by what it said. What most of it failed for has the hint.
func notTaken(pass *Pass) error {
	groups, hints := map[string][]objects.Key{}, map[string]string{}
	var order []string
	for _, failure := range pass.Failures {
		cause := Cause(failure.Err)
		if groups[cause] == nil {
			order, hints[cause] = append(order, cause), FailureHint(failure.Err)
		}
		groups[cause] = append(groups[cause], failure.Key)
	}
	slices.SortStableFunc(order, func(a, b string) int { return len(groups[b]) - len(groups[a]) })
	var lines []string
	for _, cause := range order {
		lines = append(lines, fmt.Sprintf("%d times %s (%s)", len(groups[cause]), cause, objects.Some(groups[cause])))
	}
	return &Refusal{fmt.Sprintf("the mirror did not take %d objects: %s",
		len(pass.Failures), strings.Join(lines, "; ")), hints[order[0]]}
}
