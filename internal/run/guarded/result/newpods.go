package result

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// NewPodsRound is how many nodes a round of new pods has while a command runs.
const NewPodsRound = 30

// NewPods is what became of new pods, for the journal.
type NewPods struct {
	// Made counts the pods that were made and measured, and Ready those that were reachable.
	Made  int `json:"made"`
	Ready int `json:"ready"`
	// Took are the times in ms until pods were reachable, of the first mostTook, and Longest the longest of all.
	// LongestAddress is the longest until a pod had an address.
	Took           []int64 `json:"tookMillis,omitempty"`
	Longest        int64   `json:"longestMillis,omitempty"`
	LongestAddress int64   `json:"longestAddressMillis,omitempty"`
	// Failed got no network, or were not reachable. Unmeasured say nothing about the network. Both have the first
	// mostNamed of each node.
	Failed     []NewPod `json:"failed,omitempty"`
	Unmeasured []NewPod `json:"unmeasured,omitempty"`
	// Failures counts all that failed, and Left all that are not measured.
	Failures int `json:"failures,omitempty"`
	Left     int `json:"left,omitempty"`
	// Doubtful are all nodes on which a pod failed or was not measured.
	Doubtful []string `json:"doubtful,omitempty"`
	// Lacks says why not every node had one; empty if every node had.
	Lacks string `json:"lacks,omitempty"`
}

// NewPod is a new pod that is not reachable.
type NewPod struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"`
	Why  string    `json:"why"`
}

const (
	// mostTook bounds the times that are kept, and mostNamed the pods of a list of one node.
	mostTook, mostNamed = 500, 2
	// mostNodes bounds the pods of a list.
	mostNodes = 20
)

// Reached adds a pod that was reachable.
func (n *NewPods) Reached(address, took time.Duration) {
	n.Made, n.Ready = n.Made+1, n.Ready+1
	if len(n.Took) < mostTook {
		n.Took = append(n.Took, took.Milliseconds())
	}
	n.Longest, n.LongestAddress = max(n.Longest, took.Milliseconds()), max(n.LongestAddress, address.Milliseconds())
}

// Fail adds a pod that got no network, or was not reachable.
func (n *NewPods) Fail(p NewPod) {
	n.Made, n.Failures = n.Made+1, n.Failures+1
	n.Failed = named(n.Failed, p)
	n.doubt(p.Node)
}

// Leave adds a pod that says nothing about the network.
func (n *NewPods) Leave(p NewPod) {
	n.Left++
	n.Unmeasured = named(n.Unmeasured, p)
	n.doubt(p.Node)
}

func (n *NewPods) doubt(node string) {
	if !slices.Contains(n.Doubtful, node) {
		n.Doubtful = append(n.Doubtful, node)
	}
}

func named(list []NewPod, p NewPod) []NewPod {
	same := 0
	for _, one := range list {
		if one.Node == p.Node {
			same++
		}
	}
	if same >= mostNamed || len(list) >= mostNodes {
		return list
	}
	return append(list, p)
}

// Add adds what became of other new pods.
func (n *NewPods) Add(o NewPods) {
	n.Made, n.Ready, n.Failures, n.Left = n.Made+o.Made, n.Ready+o.Ready, n.Failures+o.Failures, n.Left+o.Left
	n.Took = append(n.Took, o.Took[:min(len(o.Took), mostTook-len(n.Took))]...)
	n.Longest, n.LongestAddress = max(n.Longest, o.Longest), max(n.LongestAddress, o.LongestAddress)
	for _, p := range o.Failed {
		n.Failed = named(n.Failed, p)
	}
	for _, p := range o.Unmeasured {
		n.Unmeasured = named(n.Unmeasured, p)
	}
	if n.Lacks == "" {
		n.Lacks = o.Lacks
	}
}

// Median is the median time in ms until a pod was reachable, 0 if none was.
func (n *NewPods) Median() int64 {
	if len(n.Took) == 0 {
		return 0
	}
	took := slices.Sorted(slices.Values(n.Took))
	return took[(len(took)-1)/2]
}

// String sums them up: "12 made, 11 reachable after 2.1 s (median) to 3.4 s; 1 failed".
func (n *NewPods) String() string {
	if n.Made == 0 && n.Left == 0 {
		return "none made"
	}
	text := fmt.Sprintf("%d made", n.Made)
	if n.Ready > 0 {
		text += fmt.Sprintf(", %d reachable after %s (median), %s at most", n.Ready, seconds(n.Median()),
			seconds(n.Longest))
	}
	if n.Failures > 0 {
		text += fmt.Sprintf(", %d failed", n.Failures)
	}
	if n.Left > 0 {
		text += fmt.Sprintf(", %d more not measured", n.Left)
	}
	return text
}

func seconds(ms int64) string { return fmt.Sprintf("%.1f s", float64(ms)/1000) }

// String is the pod's node and time, and the reason.
func (p NewPod) String() string {
	return fmt.Sprintf("%s at %s UTC: %s", p.Node, p.At.UTC().Format(time.TimeOnly), p.Why)
}

// Since are the failed pods on nodes on which all new pods were reachable before the change.
func (n *NewPods) Since(before *NewPods) []NewPod {
	return slices.DeleteFunc(slices.Clone(n.Failed), func(p NewPod) bool { return before.doubts(p.Node) })
}

// doubts reports whether new pods were not all reachable on a node: then one that fails later proves nothing. It is
// false of nil: plans without new pods before the change make none after it.
func (n *NewPods) doubts(node string) bool {
	return n != nil && (n.Lacks != "" || slices.Contains(n.Doubtful, node))
}

// NewPodsAction is the ID of the action that tries new pods before the change; empty if the plan has none.
func NewPodsAction(steps []step.Step) string { return actionOf(steps, step.OpNewPods) }

// actionOf is the ID of the first action of an operation; empty if there is none.
func actionOf(steps []step.Step, op step.Op) string {
	for i := range steps {
		for _, action := range steps[i].Actions {
			if action.Op() == op {
				return action.ID
			}
		}
	}
	return ""
}

// NewPods are all new pods since the baseline; nil if the journal has none.
func (r Result) NewPods() *NewPods {
	var all NewPods
	some := false
	for _, one := range []*NewPods{r.during(), r.since()} {
		if one != nil {
			all.Add(*one)
			some = true
		}
	}
	if !some {
		return nil
	}
	return &all
}

func (r Result) during() *NewPods {
	if r.Ran == nil {
		return nil
	}
	return r.Ran.NewPods
}

func (r Result) since() *NewPods {
	if r.Watched == nil {
		return nil
	}
	return r.Watched.NewPods
}

// newPods says which new pods failed since a baseline in which they did not, and else why new pods prove nothing; both
// are empty if they are good, or the plan makes none.
func (r Result) newPods() (failed, unproven string) {
	all := r.NewPods()
	if all != nil {
		if since := all.Since(r.NewPodsBefore); len(since) > 0 {
			nodes := map[string]bool{}
			for _, p := range since {
				nodes[p.Node] = true
			}
			return fmt.Sprintf("new pods got no network or were not reachable, on %s, such as %s",
				cluster.Count(len(nodes), "node"), since[0]), ""
		}
	}
	last := r.since()
	switch {
	case r.newPodsEvery <= 0 || r.Watched == nil || r.Watched.Interrupted:
	case last == nil:
		return "", "no new pods were made after the change"
	case last.Lacks != "":
		return "", "new pods were not made on every node after the change: " + last.Lacks
	case last.Made == 0 && last.Left > 0:
		return "", "no new pod was measured after the change. " + last.UnmeasuredNote()
	}
	if all != nil && len(all.Failed) > 0 {
		return "", "new pods failed on nodes on which they failed before the change too, or were not measured, so " +
			"they prove nothing: " + all.Failed[0].String()
	}
	return "", ""
}

// UnmeasuredNote says which new pods were not measured; empty if all were.
func (n *NewPods) UnmeasuredNote() string {
	if n == nil || n.Left == 0 {
		return ""
	}
	var parts []string
	for _, p := range n.Unmeasured[:min(len(n.Unmeasured), 3)] {
		parts = append(parts, p.String())
	}
	return fmt.Sprintf("Not measured: %s, such as %s", cluster.Count(n.Left, "new pod"), strings.Join(parts, "; "))
}
