package verify

import (
	"errors"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/step"
)

// unique demands that steps and actions have names of their own, and that there is one point of no return.
func unique() kind.Rule {
	steps, actions, points := map[string]bool{}, map[string]bool{}, 0
	first := func(seen map[string]bool, what, id string) error {
		if seen[id] || id == "" || strings.HasSuffix(id, " ") {
			return fmt.Errorf("the %s %s is not unique", what, id)
		}
		seen[id] = true
		return nil
	}
	return kind.Rule{
		Before: func(s *step.Step) error {
			if s.NoReturn {
				points++
			}
			return nil
		},
		End: func() error {
			if points != 1 {
				return fmt.Errorf("there are %d points of no return, not one", points)
			}
			return nil
		},
		After: func(s *step.Step) error {
			if err := first(steps, "step", s.ID); err != nil {
				return err
			}
			for _, list := range [][]step.Action{s.Actions, s.Undo} {
				for j := range list {
					if err := first(actions, "action", list[j].ID); err != nil {
						return err
					}
				}
			}
			return nil
		},
	}
}

// grouped demands that every step says of which group it is, and one of a wave what it does there: runbooks, reports
// and estimates go by that.
func grouped() kind.Rule {
	return kind.Rule{Before: func(s *step.Step) error {
		if s.Group == "" || s.Wave != "" && s.Does == "" {
			return errors.New("it has no group: an older version of theseus made this plan; continue a run of it " +
				"with that " +
				"version")
		}
		return nil
	}}
}

// together demands of an action that is done together with the one before it that it may be.
func together() kind.Rule {
	return kind.Rule{
		Before: func(s *step.Step) error { return paired(s.Actions) },
		Undo:   func(s *step.Step) error { return paired(s.Undo) },
	}
}

func paired(actions []step.Action) error {
	for i := range actions {
		if actions[i].Together && (i == 0 || !pair(&actions[i-1], &actions[i])) {
			return fmt.Errorf("action %s (%s) must not be done together with the actions before it",
				actions[i].ID, actions[i].Title)
		}
	}
	return nil
}

// pair says whether two actions may be done together: they wait, or do the same on different objects or nodes, which
// no probe does.
func pair(a, b *step.Action) bool {
	if a.Op() != b.Op() || a.Verb() != b.Verb() {
		return false
	}
	switch do := a.Do.(type) {
	case step.Wait:
		return true
	case step.Apply, step.Delete, step.Patch:
		return a.Ref() != b.Ref()
	case step.Node, step.Restart, step.Taint, step.Untaint:
		return a.Node() != b.Node()
	case step.Evict:
		return a.Node() != b.Node() && do.Pods.LeaveEnding == b.Do.(step.Evict).Pods.LeaveEnding
	}
	return false
}
