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
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// While it waits for a condition, Theseus also looks for problems that prevent it. These constants say how often, and
// how long it tolerates them: a registry may be unavailable for a moment, and a node is down only after some time
// without contact.
const (
	stuckEvery = 5 * time.Second
	stuckFor   = 30 * time.Second
	// stuckForOthers is the tolerance for workloads that the change only moves, because a rollback would move them
	// again.
	stuckForOthers = 2 * time.Minute
	// stuckPods is how many of the pods that block a wait are inspected: when a rollout hangs, few are left.
	stuckPods = 10
	// forever is longer than the timeout of any action.
	forever = time.Duration(math.MaxInt64)
)

// trouble is a problem that blocks a wait, and how long it is tolerated. The zero value is no problem.
type trouble struct {
	why   string
	bears time.Duration
	hint  string // what a person can do; "" if that is not known
}

// lasting is a problem that may be transient, unless it lasts for some time.
func lasting(why string, err error) (trouble, error) { return trouble{why: why, bears: stuckFor}, err }

// patience watches a wait for problems that do not resolve by themselves.
type patience struct {
	looked, since time.Time
	why           string
	bears         time.Duration // of the problem since then
	said          string        // the problem that was reported last, and is not over
	// others is true if the pods are not those of a network: earlier problems of theirs are ignored, and crash loops
	// are reported but do not end the wait.
	others bool
	// silent is true if the caller reports the problems.
	silent bool
	// seen are the containers at the beginning of the wait.
	seen map[string]seenContainer
}

// cutOff has waits that an outage of the API server has cut off, as the next try of each goes on: what they have said
// may be over by then, and the containers were seen before. The zero value is ready to use.
type cutOff struct {
	lock  sync.Mutex
	waits map[string]*patience
}

// patient returns the patience of a wait, which goes on if its last try was cut off. leave must be called with the
// wait's error.
func (a *Actor) patient(wait string, p patience) (bearing *patience, leave func(error)) {
	c := &a.cutOff
	c.lock.Lock()
	defer c.lock.Unlock()
	if former := c.waits[wait]; former != nil {
		p.said, p.seen = former.said, former.seen
		delete(c.waits, wait)
	}
	return &p, func(err error) {
		// an outage that others meet first cancels this one
		if err == nil || !outage.Passes(err) && !outage.Refused(err) && !errors.Is(err, context.Canceled) {
			return
		}
		c.lock.Lock()
		defer c.lock.Unlock()
		if c.waits == nil {
			c.waits = map[string]*patience{}
		}
		c.waits[wait] = &p
	}
}

// bear looks for problems from time to time. It reports a problem and its end immediately, and fails if it lasts too
// long. If the wait ends first, relieved reports the end.
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
		a.relieved(p)
		p.since = time.Time{}
		return nil
	case p.since.IsZero(), p.bears == forever && found.bears != forever: // it has its node at last, and fails there
		p.since = now
		a.suffer(p, found.why)
	case outage.Hindrance(found.why) != outage.Hindrance(p.said):
		a.suffer(p, found.why)
	}
	p.bears = found.bears
	if now.Sub(p.since) >= found.bears {
		if found.hint != "" {
			return engine.WithHint(errors.New(found.why), found.hint)
		}
		return errors.New(found.why)
	}
	return nil
}

// suffer reports a problem, and the end of the one before.
func (a *Actor) suffer(p *patience, why string) {
	if p.said == why || outage.Hindrance(why) != "" && outage.Hindrance(why) == outage.Hindrance(p.said) {
		return // the try before has said it
	}
	a.relieved(p)
	p.said = why
	if a.Note != nil && !p.silent {
		a.Note("waiting: " + why)
	}
}

// relieved reports that the problem of a wait is over, if there was one. A status may show what keeps pods from
// starting until then, whoever has reported it.
func (a *Actor) relieved(p *patience) {
	if p.said != "" && a.Note != nil && (!p.silent || outage.Hindrance(p.said) != "") {
		a.Note(outage.Resolved(p.said))
	}
	p.said = ""
}

// looks watches conditions that callers poll. The zero value is ready to use.
type looks struct {
	lock  sync.Mutex
	known map[string]*patience
}

// of returns the patience with a condition. It starts again if the condition held, or was not polled for a while; what
// it has said then, before an outage of the API server for example, may be over.
func (l *looks) of(c step.Condition, now time.Time, holds bool) *patience {
	l.lock.Lock()
	defer l.lock.Unlock()
	key := string(jsonOf(c))
	p := l.known[key]
	if p == nil {
		p = &patience{silent: true}
	}
	if now.Sub(p.looked) > 2*stuckEvery+callTimeout {
		p = &patience{silent: true, said: p.said}
	}
	if l.known == nil {
		l.known = map[string]*patience{}
	}
	if l.known[key] = p; holds {
		delete(l.known, key)
	}
	return p
}

// late is the error of a wait whose context ended, with the problem that blocked it.
func (p *patience) late(missing string, err error) error {
	if p.why != "" {
		missing += ": " + p.why
	}
	return fmt.Errorf("%s (%w)", missing, err)
}

// stuck returns a problem that keeps a condition from becoming true and that only a person can fix; zero if none is
// known.
func (a *Actor) stuck(ctx context.Context, p *patience, c step.Condition) (trouble, error) {
	switch is := c.Is.(type) {
	case step.PodReady:
		pods, err := a.podsOn(ctx, is.Node, is.Namespace, is.Selector)
		if err != nil {
			return trouble{}, err
		}
		if found := a.ailing(ctx, p, pods); found.why != "" {
			return found, nil
		}
		if stray, err := strayPod(pods, is.CIDRs); stray != "" || err != nil {
			return lasting("another network serves new pods of "+is.Node+": theseus snapshot --nodes shows which file "+
				"its runtime reads, and theseus check --from FILE says what to do", err)
		}
		return lasting(a.down(ctx, is.Node))
	case step.PodGone:
		pods, err := a.podsOn(ctx, is.Node, is.Namespace, is.Selector)
		if err != nil {
			return trouble{}, err
		}
		return lasting(a.downUnder(ctx, pods))
	case step.Gone:
		switch {
		case is.Ref.Kind == "Pod":
			pod, err := a.Typed.CoreV1().Pods(is.Ref.Namespace).Get(ctx, is.Ref.Name, metav1.GetOptions{})
			if err != nil {
				return trouble{}, ignoreNoKind(err)
			}
			return lasting(a.down(ctx, pod.Spec.NodeName))
		case is.Ref.APIVersion == "apps/v1":
			return a.stuckWorkload(ctx, p, is.Ref, false)
		}
	case step.Rolled:
		if is.Ref.APIVersion == "apps/v1" {
			return a.stuckWorkload(ctx, p, is.Ref, true)
		}
	}
	return trouble{}, nil
}

// ailingOf reports pods of a condition that cannot start. It ignores nodes that are down, because they may come back.
func (a *Actor) ailingOf(ctx context.Context, p *patience, c step.Condition) (found trouble, err error) {
	var pods []corev1.Pod
	switch is := c.Is.(type) {
	case step.PodReady:
		pods, err = a.podsOn(ctx, is.Node, is.Namespace, is.Selector)
	case step.Rolled:
		if is.Ref.APIVersion == "apps/v1" {
			pods, err = a.podsOfWorkload(ctx, is.Ref)
		}
	}
	if err != nil {
		return trouble{}, err
	}
	return a.ailing(ctx, p, pods), nil
}

// podsOfWorkload returns a workload's pods; none if it does not exist, or has no selector.
func (a *Actor) podsOfWorkload(ctx context.Context, ref step.Ref) ([]corev1.Pod, error) {
	selector, _, err := a.sized(ctx, ref)
	if err != nil || selector == nil {
		return nil, err
	}
	return a.podsOn(ctx, "", ref.Namespace, selector.String())
}

// stuckWorkload finds a pod of a workload that cannot start, or cannot end; or why it is not created, if pods are to
// come.
func (a *Actor) stuckWorkload(ctx context.Context, p *patience, ref step.Ref, come bool) (trouble, error) {
	pods, err := a.podsOfWorkload(ctx, ref)
	if err != nil {
		return trouble{}, err
	}
	if found := a.ailing(ctx, p, pods); found.why != "" || p.others {
		return found, nil
	}
	made := len(pods)
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return cluster.PodReady(&p) && p.DeletionTimestamp == nil
	})
	why, err := a.downUnder(ctx, pods)
	if why != "" || err != nil || !come {
		return lasting(why, err)
	}
	return a.unborn(ctx, ref, made)
}

// downUnder reports a node of one of the pods that is down; empty if none is. It ignores nodes that were removed from
// the cluster: pod garbage collection deletes their pods within two minutes.
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

// down reports that a node is down; empty if it is not, or if the name is empty.
func (a *Actor) down(ctx context.Context, name string) (string, error) {
	node, err := a.node(ctx, name)
	if err == nil && node == nil && name != "" {
		return fmt.Sprintf("node %s is not in the cluster any more", name), nil
	}
	return notReady(node), err
}

// node gets a node; nil if it does not exist.
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
	return fmt.Sprintf("node %s is down (not Ready): bring it back, or remove it permanently (kubectl delete node %s)",
		node.Name, shell.Word(node.Name))
}
