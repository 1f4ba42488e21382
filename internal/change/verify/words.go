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
	switch is := c.Is.(type) {
	case step.Established:
		return "CRD " + is.Ref.Name + " is established"
	case step.Rolled:
		return is.Ref.String() + " is fully rolled out and ready"
	case step.Renders:
		return "the pod template of " + is.Ref.String() + " is that of " + is.Version
	case step.Reports:
		var says []string
		for _, kind := range slices.Sorted(maps.Keys(is.Status)) {
			says = append(says, kind+"="+is.Status[kind])
		}
		return is.Ref.String() + " reports " + strings.Join(says, " and ")
	case step.Has:
		return fmt.Sprintf("%s has %s", is.Ref, is.Fields)
	case step.Held:
		return is.Ref.String() + " denies the deletion of pods with " + is.Selector
	case step.PodReady:
		return "the pod with " + is.Selector + " on " + is.Node + " is ready"
	case step.NodeReady:
		return "node " + is.Node + " is Ready"
	case step.NoPods:
		if is.Node == "" {
			return "no pod in the cluster has an address in " + strings.Join(is.CIDRs, ", ")
		}
		text := "no pod on " + is.Node + " has an address in " + strings.Join(is.CIDRs, ", ")
		if is.LeaveDaemons {
			text += ", except pods of DaemonSets"
		}
		if is.LeaveEnding {
			text += ", except terminating pods"
		}
		return text
	case step.PodGone:
		return "no pod with " + is.Selector + " is left"
	case step.Gone:
		return is.Ref.String() + " is gone"
	case step.NodesAmong:
		return fmt.Sprintf("no node has joined since the plan was made (%d nodes)", len(is.Nodes))
	}
	return string(c.Kind())
}

// Never says that a plan waits for ever.
type Never struct{ Condition step.Condition }

// Error names the condition.
func (e *Never) Error() string { return "the condition can never become true: " + Phrase(e.Condition) }
