package kube

import (
	"context"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// asking is how a gate comes by fresh reports in a large cluster, where they come seldom otherwise: it tells the nodes
// that it asks to report at once, for a while. The zero value tells none.
type asking struct {
	nodes map[string]bool // nil: all nodes
	every time.Duration   // 0 if none is told
	again time.Time       // when those that were told fall back
}

// asksAtOnce is how many nodes are told at once, one by one.
const asksAtOnce = 8

const (
	// mostAsked is the longest time for which agents do what they are told.
	mostAsked = 2 * time.Minute
	// longestAsk bounds telling them.
	longestAsk = 10 * time.Second
)

// asking decides whom a gate asks: the nodes that its step concerns and a sample of the others, or all.
func (g *Gate) asking(gate step.Gate, nodes int, paths []v1alpha1.Path) asking {
	if gate.Near {
		concerned := loss.Concerned(paths, gate.About, gate.Step)
		if concerned != nil && path.Asks(nodes, len(concerned)) {
			return asking{nodes: concerned, every: path.AskedEvery(len(concerned))}
		}
	}
	if path.Asks(nodes, nodes) {
		return asking{every: path.AskedEvery(nodes)}
	}
	return asking{}
}

// ask tells the nodes, and again when they may have fallen back. Who is not told, since the API server refuses or
// has no such plan, reports at its own pace, for which the gate waits: that is no failure.
func (k *asking) ask(ctx context.Context, a *Actor, bake time.Duration) {
	now := a.Clock.Now()
	if k.every == 0 || now.Before(k.again) {
		return
	}
	// As long as it takes: a first report, others that span the bake, and the last.
	lasts := max(bake, loss.DefaultTimeout+loss.DefaultTimeout/4) + 2*k.every + poll
	lasts = min(lasts, mostAsked)
	defer func() { k.again = a.Clock.Now().Add(lasts) }()
	// A gate waits for reports of nodes that were not told, too, but not for an API server that answers no more: then
	// the gate's own calls fail, and it is asked anew.
	ctx, cancel := context.WithTimeout(ctx, longestAsk)
	defer cancel()
	asked := &v1alpha1.Asked{Number: now.UnixNano(), ReportMillis: k.every.Milliseconds(),
		ForMillis: lasts.Milliseconds()}
	if k.nodes == nil {
		plan := planOf(v1alpha1.PlanOfAll, 0, nil, reports{})
		plan.Spec.Asked = asked
		_ = a.writePlan(ctx, plan)
		return
	}
	client, err := a.resource(v1alpha1.APIVersion, "ProbePlan", v1alpha1.Namespace)
	if err != nil {
		return
	}
	patch := jsonOf(map[string]any{"spec": map[string]any{"asked": asked}})
	var group errgroup.Group
	group.SetLimit(asksAtOnce)
	for _, node := range slices.Sorted(maps.Keys(k.nodes)) {
		group.Go(func() error {
			_, _ = client.Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
			return nil
		})
	}
	_ = group.Wait() // they return none
}
