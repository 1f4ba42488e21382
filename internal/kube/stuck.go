package kube

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// What a wait looks for beside what it waits for, how often, and how long it bears it: a registry may be away
// for a moment, and a node is called down only after a time of silence.
const (
	stuckEvery = 5 * time.Second
	stuckFor   = 30 * time.Second
	// stuckPods is how many pods that hold a wait up are looked at: when a rollout hangs, few are left.
	stuckPods = 10
)

// patience watches a wait for what will not mend itself.
type patience struct{ looked, since time.Time }

// bear looks, now and then, for what holds a wait up. It fails when that has stood for a while.
func (a *Actor) bear(ctx context.Context, p *patience, look func(context.Context) (string, error)) error {
	now := a.Clock.Now()
	if now.Sub(p.looked) < stuckEvery {
		return nil
	}
	p.looked = now
	why, err := look(ctx)
	switch {
	case err != nil:
		return err
	case why == "":
		p.since = time.Time{}
		return nil
	case p.since.IsZero():
		p.since = now
		if a.Note != nil {
			a.Note("waiting: " + why)
		}
	case now.Sub(p.since) >= stuckFor:
		return fmt.Errorf("%s", why)
	}
	return nil
}

// stuck says what keeps a condition from coming true that only a person can mend; empty when nothing is known.
func (a *Actor) stuck(ctx context.Context, c step.Condition) (string, error) {
	switch {
	case c.Kind == step.PodReady:
		pods, err := a.podsOn(ctx, c.Node, c.Namespace, c.Selector)
		if err != nil {
			return "", err
		}
		if why := unpulled(pods); why != "" {
			return why, nil
		}
		return a.down(ctx, c.Node)
	case c.Kind == step.PodGone:
		pods, err := a.podsOn(ctx, c.Node, c.Namespace, c.Selector)
		if err != nil {
			return "", err
		}
		return a.downUnder(ctx, pods)
	case c.Kind == step.Gone && c.Ref.Kind == "Pod":
		pod, err := a.Typed.CoreV1().Pods(c.Ref.Namespace).Get(ctx, c.Ref.Name, metav1.GetOptions{})
		if err != nil {
			return "", ignoreNoKind(err)
		}
		return a.down(ctx, pod.Spec.NodeName)
	case (c.Kind == step.Gone || c.Kind == step.Rolled) && c.Ref.APIVersion == "apps/v1":
		return a.stuckWorkload(ctx, *c.Ref)
	}
	return "", nil
}

// stuckWorkload finds a pod of a workload that cannot start, or cannot end.
func (a *Actor) stuckWorkload(ctx context.Context, ref step.Ref) (string, error) {
	object, err := a.get(ctx, ref)
	if err != nil || object == nil {
		return "", err
	}
	selector, err := selectorOf(object)
	if err != nil || selector == nil {
		return "", err
	}
	pods, err := a.podsOn(ctx, "", ref.Namespace, selector.String())
	if err != nil {
		return "", err
	}
	if why := unpulled(pods); why != "" {
		return why, nil
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return podReady(&p) && p.DeletionTimestamp == nil })
	return a.downUnder(ctx, pods)
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

// unpulled names a pod whose image its node cannot get.
func unpulled(pods []corev1.Pod) string {
	never := []string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
	for i := range pods {
		status := pods[i].Status
		for _, container := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
			if w := container.State.Waiting; w != nil && slices.Contains(never, w.Reason) {
				return fmt.Sprintf("node %s cannot get the image %s of pod %s/%s: %s", pods[i].Spec.NodeName, container.Image,
					pods[i].Namespace, pods[i].Name, w.Reason)
			}
		}
	}
	return ""
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
	return fmt.Sprintf("node %s is down (not Ready): bring it back, or remove it for good (kubectl delete node %[1]s)", node.Name)
}
