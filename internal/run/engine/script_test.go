package engine_test

import (
	"iter"
	"maps"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/step"
)

func mapsKeys(m map[string]map[string]any) iter.Seq[string] { return maps.Keys(m) }

// parsePlan reads the plan of a transcript. "step ID [noreturn] [gate=TITLE] [before=KIND/NAME] [after=KIND/NAME]
// [nopods=NETWORK] [alone]" begins a step; its actions follow, those of its undo with "undo" in front, and those that
// may be done together with the one before with "next to":
//
//	apply ID KIND/NAME FIELD...   delete ID KIND/NAME   patch ID KIND/NAME JSON
//	node ID NODE VERB             evict ID NODE NETWORK wait ID KIND/NAME
func parsePlan(t *testing.T, p *plan.Plan, lines []string) {
	t.Helper()
	p.Steps = nil
	for _, line := range lines {
		words := strings.Fields(line)
		switch {
		case words[0] == "hash":
			p.Hash = strings.Join(words[1:], "")
		case words[0] == "step":
			p.Steps = append(p.Steps, parseStep(words[1], words[2:]))
		default:
			last := &p.Steps[len(p.Steps)-1]
			list, undo := &last.Actions, words[0] == "undo"
			if undo {
				list, words = &last.Undo, words[1:]
			}
			beside := words[0] == "beside"
			if beside {
				words = words[1:]
			}
			action := parseAction(t, words)
			action.Together = beside
			*list = append(*list, action)
		}
	}
}

func parseStep(id string, options []string) step.Step {
	st := step.Step{ID: id}
	for _, option := range options {
		key, value, _ := strings.Cut(option, "=")
		kind, name, _ := strings.Cut(value, "/")
		condition := step.Condition{Is: step.Rolled{Ref: *ref(kind, name)}}
		switch key {
		case "noreturn":
			st.NoReturn = true
		case "alone":
			st.Alone = true
		case "gate":
			st.Gate = gate(value)
		case "before":
			st.Before = append(st.Before, condition)
		case "after":
			st.After = append(st.After, condition)
		case "nopods":
			st.After = append(st.After, step.Condition{Is: step.NoPods{CIDRs: []string{value}}})
		}
	}
	return st
}

func parseAction(t *testing.T, words []string) step.Action {
	t.Helper()
	if len(words) < 3 {
		t.Fatalf("action %q is too short", words)
	}
	id := words[1]
	kind, name, _ := strings.Cut(words[2], "/")
	switch words[0] {
	case "apply":
		return apply(id, kind, name, words[3:]...)
	case "delete":
		return remove(id, kind, name)
	case "patch":
		return patch(id, kind, name, strings.Join(words[3:], ""))
	case "node":
		return node(id, words[2], words[3])
	case "evict":
		return evict(id, words[2], words[3])
	case "wait":
		return step.Action{ID: id, Do: step.Wait{Condition: step.Condition{Is: step.Rolled{Ref: *ref(kind, name)}}}}
	}
	t.Fatalf("unknown action %q", words)
	return step.Action{}
}
