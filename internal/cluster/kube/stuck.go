package kube

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// What a wait looks for beside what it waits for, how often, and how long it bears it: a registry may be away
// for a moment, and a node is called down only after a time of silence.
const (
	stuckEvery = 5 * time.Second
	stuckFor   = 30 * time.Second
	// stuckForOthers is how long it is borne of workloads that the change only moves: going back moves them once more.
	stuckForOthers = 2 * time.Minute
	// stuckPods is how many pods that hold a wait up are looked at: when a rollout hangs, few are left.
	stuckPods = 10
	// forever is longer than any action may take.
	forever = time.Duration(math.MaxInt64)
)

// trouble is what holds a wait up, and for how long it is borne. The zero value is none.
type trouble struct {
	why   string
	bears time.Duration
}

// lasting is trouble that may pass, but not when it has stood for a while.
func lasting(why string, err error) (trouble, error) { return trouble{why, stuckFor}, err }

// patience watches a wait for what will not mend itself.
type patience struct {
	looked, since time.Time
	why           string
	// others says that the pods are not those of a network: what ailed them before is no matter, and that they start
	// again and again is said, and no reason to give up.
	others bool
	// silent says that whoever asks tells what is found.
	silent bool
	// seen are the containers of the first look.
	seen map[string]seenContainer
}

// bear looks, now and then, for what holds a wait up. It says so at once, and fails when that has stood for too long.
func (a *Actor) bear(ctx context.Context, p *patience, look func(context.Context) (trouble, error)) error {
	now := a.Clock.Now()
	if now.Sub(p.looked) < stuckEvery {
		return nil
	}
	p.looked = now
	found, err := look(ctx)
	if err != nil {
		return err
	}
	p.why = found.why
	switch {
	case found.why == "":
		p.since = time.Time{}
		return nil
	case p.since.IsZero():
		p.since = now
		if a.Note != nil && !p.silent {
			a.Note("waiting: " + found.why)
		}
	}
	if now.Sub(p.since) >= found.bears {
		return errors.New(found.why)
	}
	return nil
}

// looks watch conditions that somebody else waits for, who asks again and again. The zero value is ready.
type looks struct {
	lock  sync.Mutex
	known map[string]*patience
}

// of is the patience with a condition, which begins anew when it holds, or when nobody has asked for a while.
func (l *looks) of(c step.Condition, now time.Time, holds bool) *patience {
	l.lock.Lock()
	defer l.lock.Unlock()
	key := string(jsonOf(c))
	p := l.known[key]
	if p == nil || now.Sub(p.looked) > 2*stuckEvery+callTimeout {
		p = &patience{silent: true}
	}
	if l.known == nil {
		l.known = map[string]*patience{}
	}
	if l.known[key] = p; holds {
		delete(l.known, key)
	}
	return p
}

// late is the error of a wait that its context ended, with what held it up.
func (p *patience) late(missing string, err error) error {
	if p.why != "" {
		missing += ": " + p.why
	}
	return fmt.Errorf("%s (%w)", missing, err)
}

// stuck says what keeps a condition from coming true that only a person can mend; nothing when nothing is known.
func (a *Actor) stuck(ctx context.Context, p *patience, c step.Condition) (trouble, error) {
	switch {
	case c.Kind == step.PodReady:
		pods, err := a.podsOn(ctx, c.Node, c.Namespace, c.Selector)
		if err != nil {
			return trouble{}, err
		}
		if found := a.ailing(ctx, p, pods); found.why != "" {
			return found, nil
		}
		if stray, err := strayPod(pods, c.CIDRs); stray != "" || err != nil {
			return lasting("another network serves new pods of "+c.Node+": theseus snapshot --nodes shows which file in /etc/cni/net.d, and theseus check --from what to do", err)
		}
		return lasting(a.down(ctx, c.Node))
	case c.Kind == step.PodGone:
		pods, err := a.podsOn(ctx, c.Node, c.Namespace, c.Selector)
		if err != nil {
			return trouble{}, err
		}
		return lasting(a.downUnder(ctx, pods))
	case c.Kind == step.Gone && c.Ref.Kind == "Pod":
		pod, err := a.Typed.CoreV1().Pods(c.Ref.Namespace).Get(ctx, c.Ref.Name, metav1.GetOptions{})
		if err != nil {
			return trouble{}, ignoreNoKind(err)
		}
		return lasting(a.down(ctx, pod.Spec.NodeName))
	case (c.Kind == step.Gone || c.Kind == step.Rolled) && c.Ref.APIVersion == "apps/v1":
		return a.stuckWorkload(ctx, p, *c.Ref)
	}
	return trouble{}, nil
}

// ailingOf says which pods of a condition cannot start. Nodes that are down are left to whoever waits: they may come back.
func (a *Actor) ailingOf(ctx context.Context, p *patience, c step.Condition) (found trouble, err error) {
	var pods []corev1.Pod
	switch {
	case c.Kind == step.PodReady:
		pods, err = a.podsOn(ctx, c.Node, c.Namespace, c.Selector)
	case c.Kind == step.Rolled && c.Ref.APIVersion == "apps/v1":
		pods, err = a.podsOfWorkload(ctx, *c.Ref)
	}
	if err != nil {
		return trouble{}, err
	}
	return a.ailing(ctx, p, pods), nil
}

// podsOfWorkload are its pods; none where it is not there, or has no selector.
func (a *Actor) podsOfWorkload(ctx context.Context, ref step.Ref) ([]corev1.Pod, error) {
	object, err := a.get(ctx, ref)
	if err != nil || object == nil {
		return nil, err
	}
	selector, err := selectorOf(object)
	if err != nil || selector == nil {
		return nil, err
	}
	return a.podsOn(ctx, "", ref.Namespace, selector.String())
}

// stuckWorkload finds a pod of a workload that cannot start, or cannot end.
func (a *Actor) stuckWorkload(ctx context.Context, p *patience, ref step.Ref) (trouble, error) {
	pods, err := a.podsOfWorkload(ctx, ref)
	if err != nil {
		return trouble{}, err
	}
	if found := a.ailing(ctx, p, pods); found.why != "" || p.others {
		return found, nil
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return podReady(&p) && p.DeletionTimestamp == nil })
	return lasting(a.downUnder(ctx, pods))
}

// downUnder says that a node of one of the pods does not work; empty when all do. Pods of a node that is not in the
// cluster any more are held up by nobody: the cluster ends them within two minutes (garbage collection of pods).
func (a *Actor) downUnder(ctx context.Context, pods []corev1.Pod) (string, error) {
	for i := range pods[:min(len(pods), stuckPods)] {
		node, err := a.node(ctx, pods[i].Spec.NodeName)
		if err != nil {
			return "", err
		}
		if why := notReady(node); why != "" {
			return why, nil
		}
	}
	return "", nil
}

// down says that a node does not work; empty when it does, or when none is named.
func (a *Actor) down(ctx context.Context, name string) (string, error) {
	node, err := a.node(ctx, name)
	if err == nil && node == nil && name != "" {
		return fmt.Sprintf("node %s is not in the cluster any more", name), nil
	}
	return notReady(node), err
}

// node gets a node; nil when there is none of that name.
func (a *Actor) node(ctx context.Context, name string) (*corev1.Node, error) {
	if name == "" {
		return nil, nil
	}
	node, err := a.Typed.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return node, err
}

func notReady(node *corev1.Node) string {
	if node == nil || cluster.NodeReady(node) {
		return ""
	}
	return fmt.Sprintf("node %s is down (not Ready): bring it back, or remove it for good (kubectl delete node %s)", node.Name, shell.Word(node.Name))
}
