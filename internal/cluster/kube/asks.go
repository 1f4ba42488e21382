package kube

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// asking is how a gate comes by fresh reports in a large cluster, where they come seldom otherwise: it asks nodes a
// question, whose number their answers have. The zero value asks none.
type asking struct {
	nodes map[string]bool // nil: all nodes
	every time.Duration   // over which answers are spread; 0 if none is asked
	all   time.Duration   // over which those of all nodes are
	again time.Time       // when those that have not answered are asked again
	often bool            // they are asked to report often then
}

const (
	// mostAsked is the longest time for which agents do what they are told.
	mostAsked = 2 * time.Minute
	// longestAsk bounds telling them.
	longestAsk = 10 * time.Second
	// answersLate is how late an answer is at least before it is missing: an agent waits for counts that are new
	// enough.
	answersLate = 3 * time.Second
)

// asking decides whom a gate asks: the nodes that its step concerns and a sample of the others, or all.
func (g *Gate) asking(gate step.Gate, nodes int, paths []v1alpha1.Path) asking {
	if !path.Asks(nodes) {
		return asking{}
	}
	if gate.Near {
		concerned := loss.Concerned(paths, gate.About, gate.Step)
		if concerned != nil && 2*g.addSilent(concerned, nodes, paths) <= nodes {
			return asking{nodes: concerned, every: path.AskedEvery(nodes, len(concerned)),
				all: path.AskedEvery(nodes, nodes)}
		}
	}
	return asking{every: path.AskedEvery(nodes, nodes)}
}

// addSilent adds the nodes that have not been heard of for longer than their interval explains, or not at all, as after
// a restart of the run: the gate would wait for their regular reports otherwise. It returns how many nodes there are
// then.
func (g *Gate) addSilent(asked map[string]bool, nodes int, paths []v1alpha1.Path) int {
	now, silent := g.Actor.Clock.Now(), askReports*g.Actor.reported(nodes).every
	for _, node := range loss.Sources(paths) {
		if g.Actor.heard.Silent(node, now) > silent {
			asked[node] = true
		}
	}
	return len(asked)
}

// askReports is after how many intervals without a report a gate asks a node that its step does not concern; after
// graceReports, the node's silence is missing evidence.
const askReports = 2

// ask asks the nodes for a report after they have measured for a while, and returns the number of the question; 0 if it
// is not time to ask. If an answer is missing when all should be there, it asks them to report often: a path may lack
// evidence. Who is not asked, since the API server refuses or has no such plan, reports at its own pace, for which the
// gate waits (gatePatience): two reports take up to three intervals, 60 s in a large cluster. That is no failure.
func (k *asking) ask(ctx context.Context, a *Actor, measure time.Duration) (number int64) {
	now := a.Clock.Now()
	if k.every == 0 || now.Before(k.again) {
		return 0
	}
	often := k.often
	number, some := k.write(ctx, a, measure)
	if some {
		return number
	}
	// The cluster has plans of an older version, which do not say who is asked, so all nodes are.
	k.nodes, k.every, k.often = nil, k.all, often
	number, _ = k.write(ctx, a, measure)
	return number
}

// write asks a question. It is false if the cluster cannot keep whom it asks.
func (k *asking) write(ctx context.Context, a *Actor, measure time.Duration) (number int64, some bool) {
	now := a.Clock.Now()
	// An agent that does not know of answers must report for as long as it takes: a first report, which may have been
	// under way, the one from which it counts, others that span the time, and the last.
	lasts := min(measure+3*k.every+poll, mostAsked)
	wait := lasts
	if !k.often {
		// A new question ends the one before, so it must not come while that may still be answered, however long the
		// bake: at the first report after it, or at one of the next two.
		wait = measure + max(3*k.every, answersLate) + poll
	}
	defer func() { k.again, k.often = a.Clock.Now().Add(wait), true }()
	// A gate waits for reports of nodes that were not told, too, but not for an API server that answers no more: then
	// the gate's own calls fail, and it is asked anew.
	ctx, cancel := context.WithTimeout(ctx, longestAsk)
	defer cancel()
	whom := loss.Whom(k.nodes)
	asked := &v1alpha1.Asked{Number: now.UnixNano(), ReportMillis: k.every.Milliseconds(),
		ForMillis: lasts.Milliseconds(), Of: whom}
	if !k.often {
		asked.MeasureMillis = (measure + time.Millisecond - 1).Milliseconds()
	}
	plan := planOf(v1alpha1.PlanOfAll, 0, nil, reports{})
	plan.Spec.Asked = asked
	written, err := a.writtenPlan(ctx, plan)
	if err != nil {
		return asked.Number, whom == "" || !strings.Contains(err.Error(), "not declared in schema")
	}
	of, _, _ := unstructured.NestedString(written.Object, "spec", "asked", "of")
	return asked.Number, of == whom
}
