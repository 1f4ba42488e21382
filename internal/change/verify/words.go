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
		return "CRD " + c.Ref.Name + " is established"
	case step.Rolled:
		return c.Ref.String() + " is fully rolled out and ready"
	case step.Renders:
		return "the pod template of " + c.Ref.String() + " is that of " + c.Version
	case step.Reports:
		var says []string
		for _, kind := range slices.Sorted(maps.Keys(c.Reports)) {
			says = append(says, kind+"="+c.Reports[kind])
		}
		return c.Ref.String() + " reports " + strings.Join(says, " and ")
	case step.Has:
		return fmt.Sprintf("%s has %s", c.Ref, c.Fields)
	case step.Held:
		return c.Ref.String() + " denies the deletion of pods with " + c.Selector
	case step.PodReady:
		return "the pod with " + c.Selector + " on " + c.Node + " is ready"
	case step.NodeReady:
		return "node " + c.Node + " is Ready"
	case step.NoPods:
		if c.Node == "" {
			return "no pod in the cluster has an address in " + strings.Join(c.CIDRs, ", ")
		}
		text := "no pod on " + c.Node + " has an address in " + strings.Join(c.CIDRs, ", ")
		if c.LeaveDaemons {
			text += ", except pods of DaemonSets"
		}
		if c.LeaveEnding {
			text += ", except terminating pods"
		}
		return text
	case step.PodGone:
		return "no pod with " + c.Selector + " is left"
	case step.Gone:
		return c.Ref.String() + " is gone"
	case step.NodesAmong:
		return fmt.Sprintf("no node has joined since the plan was made (%d nodes)", len(c.Nodes))
	}
	return string(c.Kind)
}

// Never says that a plan waits for ever.
type Never struct{ Condition step.Condition }

// Error names the condition.
func (e *Never) Error() string { return "the condition can never become true: " + Phrase(e.Condition) }
