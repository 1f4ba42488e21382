package verify

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/step"
)

// Phrase says a condition in words.
func Phrase(c step.Condition) string {
	switch c.Kind {
	case step.Established:
		return c.Ref.Name + " serves"
	case step.Rolled:
		return c.Ref.String() + " is ready everywhere"
	case step.Renders:
		return "new pods of " + c.Ref.String() + " are made from " + c.Version
	case step.Reports:
		var says []string
		for _, kind := range slices.Sorted(maps.Keys(c.Reports)) {
			says = append(says, kind+"="+c.Reports[kind])
		}
		return c.Ref.String() + " says " + strings.Join(says, " and ")
	case step.Has:
		return fmt.Sprintf("%s has %s", c.Ref, c.Fields)
	case step.Held:
		return "pods of " + c.Selector + " cannot be deleted, by " + c.Ref.String()
	case step.PodReady:
		return "the pod of " + c.Selector + " on " + c.Node + " is ready"
	case step.NodeReady:
		return "node " + c.Node + " is Ready"
	case step.NoPods:
		if c.Node == "" {
			return "no pod of the cluster has an address in " + strings.Join(c.CIDRs, ", ")
		}
		text := "no pod of " + c.Node + " has an address in " + strings.Join(c.CIDRs, ", ")
		if c.LeaveDaemons {
			text += ", but for those of DaemonSets"
		}
		if c.LeaveEnding {
			text += ", but for those that are ending"
		}
		return text
	case step.PodGone:
		return "no pod of " + c.Selector + " is left"
	case step.Gone:
		return c.Ref.String() + " is gone"
	case step.NodesAmong:
		return fmt.Sprintf("no node has joined since the plan was made for %d", len(c.Nodes))
	}
	return string(c.Kind)
}

// Never says that a plan waits for ever.
type Never struct{ Condition step.Condition }

// Error names the condition.
func (e *Never) Error() string { return "waits for what cannot come: " + Phrase(e.Condition) }
