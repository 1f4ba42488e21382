// Package nodepool adds and removes a plan's nodes by commands of the user. A plan names a future node by a slot. The
// first node that joins the cluster and that the plan does not know is bound to the slot by a label, in the same write
// that taints it. The label is the only record of that, so a resumed run finds the node again.
package nodepool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// poll is the interval at which nodes are listed while one joins or leaves: a node must be tainted before it is Ready.
const poll = 250 * time.Millisecond

// Actor runs hooks, and passes all other actions to the actor that it wraps, with slots replaced by the names of their
// nodes.
type Actor struct {
	engine.Actor
	Typed kubernetes.Interface
	Clock engine.Clock
	// Slots are the plan's names of nodes that join; Known are the nodes that existed when it was made.
	Slots, Known []string
	// Migration is the name of the migration, for the hooks' environment.
	Migration string
	// Note gets, in one line, what the actor waits for. It may be nil.
	Note func(string)

	lock  sync.Mutex
	bound map[string]string // node by slot, as far as known
}

// Ran is what a hook did, for the journal. It does not have the hook's output, which may hold credentials.
type Ran struct {
	// Node is the node that joined or left.
	Node string `json:"node"`
	// Found is true if the node was there and the hook did not run.
	Found bool `json:"found,omitempty"`
}

// Observe implements engine.Actor.
func (a *Actor) Observe(ctx context.Context, action step.Action, before json.RawMessage) (engine.Observation, error) {
	names, err := a.names(ctx, action.Node(), mentions(action))
	if err != nil {
		return engine.Observation{}, kube.Passing(err)
	}
	if action.Op() != step.OpHook {
		return a.Actor.Observe(ctx, names.action(action), before)
	}
	if action.Verb() == step.VerbAdd {
		node, bound := names[action.Node()]
		if !bound {
			return engine.Observation{}, nil
		}
		found, err := json.Marshal(Ran{Node: node, Found: true})
		return engine.Observation{Done: true, Before: found}, err
	}
	node, err := a.node(ctx, names.of(action.Node()))
	return engine.Observation{Done: err == nil && node == nil}, kube.Passing(err)
}

// Do implements engine.Actor.
func (a *Actor) Do(ctx context.Context, action step.Action, before json.RawMessage) (json.RawMessage, error) {
	names, err := a.names(ctx, action.Node(), mentions(action))
	if err != nil {
		return nil, kube.Passing(err)
	}
	if action.Op() != step.OpHook {
		return a.Actor.Do(ctx, names.action(action), before)
	}
	args, err := step.Arguments[step.HookArgs](action)
	if err != nil {
		return nil, err
	}
	var ran Ran
	if action.Verb() == step.VerbAdd {
		ran, err = a.add(ctx, action.Node(), args)
	} else {
		ran, err = a.remove(ctx, names.of(action.Node()), args)
	}
	if err != nil {
		return nil, kube.Passing(err)
	}
	return json.Marshal(ran)
}

// Holds implements engine.Actor.
func (a *Actor) Holds(ctx context.Context, c step.Condition) (bool, string, error) {
	among, _ := c.Is.(step.NodesAmong)
	names, err := a.names(ctx, c.Node(), len(among.Nodes) > 0)
	if err != nil {
		return false, "", kube.Passing(err)
	}
	return a.Actor.Holds(ctx, names.condition(c))
}

// add gives a slot its node: one that has already joined, through a hook of an earlier process or otherwise, or the
// first one that joins while the hook runs or after it.
func (a *Actor) add(ctx context.Context, slot string, args step.HookArgs) (Ran, error) {
	if name, err := a.bind(ctx, slot); name != "" || err != nil {
		return Ran{Node: name, Found: true}, err
	}
	h := start(ctx, step.VerbAdd, args.Command, a.environment(step.VerbAdd, slot, args.Wave))
	name := ""
	err := a.during(ctx, h, "node for "+slot+" to join", func() (done bool, err error) {
		if name == "" {
			name, err = a.bind(ctx, slot)
		}
		return name != "", err
	})
	if err != nil && name == "" { // it may have joined while the command was being terminated
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		name, _ = a.bind(last, slot)
		cancel()
	}
	switch {
	case err != nil && name != "":
		return Ran{}, fmt.Errorf("%w; node %s has joined", err, name)
	case err != nil:
		return Ran{}, fmt.Errorf("%w; no node has joined", err)
	}
	return Ran{Node: name}, nil
}

// remove removes a node. A Node object that outlives its machine is deleted once it is NotReady.
func (a *Actor) remove(ctx context.Context, name string, args step.HookArgs) (Ran, error) {
	h := start(ctx, step.VerbRemove, args.Command, a.environment(step.VerbRemove, name, args.Wave))
	gone := false
	err := a.during(ctx, h, "node "+name+" to leave", func() (bool, error) {
		node, err := a.node(ctx, name)
		if err != nil || node == nil {
			gone = gone || err == nil
			return gone, err
		}
		if !h.over() || cluster.NodeReady(node) {
			return false, nil
		}
		err = a.Typed.CoreV1().Nodes().Delete(ctx, name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &node.UID}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return false, err
	})
	switch {
	case err != nil && gone:
		return Ran{}, fmt.Errorf("%w; node %s is gone from the cluster", err, name)
	case err != nil:
		return Ran{}, fmt.Errorf("%w; node %s is still in the cluster", err, name)
	}
	return Ran{Node: name}, a.forget(ctx, name)
}

// forget deletes the pods of a node that is gone. The cluster's garbage collector does the same, a minute later; until
// then it is unknown whether they run.
func (a *Actor) forget(ctx context.Context, name string) error {
	pods, err := a.Typed.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.NodeName != name {
			continue
		}
		err := a.Typed.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return err
		}
	}
	return nil
}

// during polls the cluster while a hook runs, and after it has succeeded, until look reports that it is done.
func (a *Actor) during(ctx context.Context, h *hook, what string, look func() (bool, error)) error {
	defer h.stop()
	var refused outage.Spell
	for said := false; ; {
		over := h.over()
		if over && h.err != nil {
			_, _ = look() // bind a node that has joined
			return h.failure(ctx)
		}
		done, err := look()
		switch {
		case ctx.Err() != nil:
			return h.late(what)
		case err != nil && !outage.Passes(err) &&
			(!outage.Refused(err) || refused.Lasts(a.Clock.Now()) >= outage.Bound):
			return err
		case done && over:
			return nil
		}
		if err == nil {
			refused.Over()
		}
		if over && !said && a.Note != nil {
			a.Note("the command has succeeded; waiting for " + what)
			said = true
		}
		if a.Clock.Sleep(ctx, poll) != nil {
			return h.late(what)
		}
	}
}

// bind binds a node to a slot; "" if there is none yet. It retries conflicts with other writers of the Node.
func (a *Actor) bind(ctx context.Context, slot string) (string, error) {
	for {
		name, err := a.tryBind(ctx, slot)
		if !apierrors.IsConflict(err) || a.Clock.Sleep(ctx, poll/5) != nil {
			return name, err
		}
	}
}

// tryBind takes the oldest node without a slot, and prefers the one with the slot's own name.
func (a *Actor) tryBind(ctx context.Context, slot string) (string, error) {
	list, err := a.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var free []*corev1.Node
	for i := range list.Items {
		node := &list.Items[i]
		of, taken := node.Labels[v1alpha1.LabelSlot]
		if of == slot {
			return node.Name, nil
		}
		if !taken && !slices.Contains(a.Known, node.Name) && node.DeletionTimestamp == nil {
			free = append(free, node)
		}
	}
	if len(free) == 0 {
		return "", nil
	}
	node := slices.MinFunc(free, func(x, y *corev1.Node) int {
		switch slot {
		case x.Name:
			return -1
		case y.Name:
			return 1
		}
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	if err := a.claim(ctx, node, slot); err != nil {
		return "", err
	}
	return node.Name, nil
}

// claim labels and taints a node in one write, which fails if another client has written the node since it was read.
func (a *Actor) claim(ctx context.Context, node *corev1.Node, slot string) error {
	claimed := node.DeepCopy()
	if claimed.Labels == nil {
		claimed.Labels = map[string]string{}
	}
	claimed.Labels[v1alpha1.LabelSlot] = slot
	taint := joint.Repel(node.Name).Taint()
	claimed.Spec.Taints = slices.DeleteFunc(claimed.Spec.Taints, func(t corev1.Taint) bool {
		return t.MatchTaint(&taint)
	})
	claimed.Spec.Taints = append(claimed.Spec.Taints, taint)
	_, err := a.Typed.CoreV1().Nodes().Update(ctx, claimed, metav1.UpdateOptions{FieldManager: kube.FieldManager})
	return err
}

// node reads a node; nil when there is none of the name.
func (a *Actor) node(ctx context.Context, name string) (*corev1.Node, error) {
	node, err := a.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return node, err
}

// environment is a hook's environment, in addition to that of the program itself.
func (a *Actor) environment(verb, node, wave string) []string {
	taint := joint.Repel(node).Taint()
	return []string{
		"THESEUS_ACTION=" + verb, "THESEUS_NODE=" + node, "THESEUS_WAVE=" + wave, "THESEUS_MIGRATION=" + a.Migration,
		"THESEUS_TAINT=" + taint.ToString(),
	}
}
