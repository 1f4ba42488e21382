package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// newPodAddress is how long a new pod may take to get an address.
	newPodAddress = time.Minute
	// newPodTries is how long a new pod with an address may take to say what it found, and its kubelet to reach it.
	newPodTries = path.TryFor + 30*time.Second
	// newPodEnds is how long the former new pod of a node may take to end.
	newPodEnds = 90 * time.Second
	// newPodsAtOnce is how many new pods are made, or removed, at the same time.
	newPodsAtOnce = 16
	// newPodsPoll is how often new pods are looked at.
	newPodsPoll = 500 * time.Millisecond
)

// NewPod is what became of a new pod. It is reachable if neither Failed nor Unmeasured says why not.
type NewPod struct {
	Node string
	// Address is empty if it got none.
	Address string
	// AddressAfter is how long it took until the API server knew its address, and ReachableAfter until all its paths
	// were as expected, as far as this process saw it.
	AddressAfter, ReachableAfter time.Duration
	// Failed says in the words of Kubernetes why it got no network, or which paths are not as expected.
	Failed string
	// Unmeasured says why it says nothing about the network, such as a quota.
	Unmeasured string
	// At is when it was made.
	At time.Time

	over    bool            // its outcome is known
	decided bool            // that it failed counts
	target  string          // address of the former new pod that it tries to reach
	tries   []v1alpha1.Path // its paths
	silent  []string        // those that it failed on, if it failed on no others
}

// NewPods makes new pods of an image.
type NewPods struct {
	Actor *Actor
	Image string
}

// Make makes a new pod of a set on each of some nodes, in place of those of the set before, and waits until it is known
// what became of each. Each also tries to reach one of the former new pods, of the other set. It returns the pods whose
// outcome is known, and an error if the API server could not be asked about the others. A pod that failed is only known
// to have failed if what it could not reach is still there.
func (n *NewPods) Make(ctx context.Context, set string, nodes []string, former []NewPod) ([]NewPod, error) {
	a := n.Actor
	plans, err := a.probePlans(ctx)
	if err != nil {
		return nil, err
	}
	measured, former, err := n.staying(ctx, pathsOf(plans), former)
	if err != nil {
		return nil, err
	}
	pods := make([]NewPod, len(nodes))
	each := func(do func(ctx context.Context, i int, p *NewPod) error) error {
		group, inner := errgroup.WithContext(ctx)
		group.SetLimit(newPodsAtOnce)
		for i := range pods {
			if p := &pods[i]; !p.over {
				group.Go(func() error { return do(inner, i, p) })
			}
		}
		return group.Wait()
	}
	for i, node := range nodes {
		pods[i].Node = node
	}
	// All are made at once when all of the set before are gone: their times count from then.
	err = each(func(ctx context.Context, _ int, p *NewPod) error { return n.clear(ctx, set, p) })
	if err == nil {
		former, err = n.alive(ctx, former)
	}
	if err == nil {
		err = each(func(ctx context.Context, i int, p *NewPod) error {
			to := other(former, i, p.Node)
			p.target = to.Address
			p.tries = path.Tries(measured, p.Node, to, newPodPorts())
			return n.make(ctx, set, p)
		})
	}
	for err == nil && slices.ContainsFunc(pods, func(p NewPod) bool { return !p.over }) {
		if err = n.look(ctx, set, pods); err == nil {
			err = a.Clock.Sleep(ctx, newPodsPoll)
		}
	}
	// also if ctx has ended: a pod that failed until then is a loss
	decides, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	if failed := n.excuse(decides, former, pods); err == nil {
		err = failed
	}
	for i := range pods {
		pods[i].tries = nil // they are kept until the next round
	}
	return slices.DeleteFunc(pods, func(p NewPod) bool { return !p.over || p.Failed != "" && !p.decided }), err
}

// staying are the paths and the former new pods without those on nodes that have left the cluster, or may be about to.
func (n *NewPods) staying(ctx context.Context, paths []v1alpha1.Path, former []NewPod) ([]v1alpha1.Path, []NewPod,
	error) {
	nodes, err := n.Actor.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, nil, err
	}
	stays := map[string]bool{"": true} // a Service's
	for i := range nodes.Items {
		stays[nodes.Items[i].Name] = !observe.Leaves(&nodes.Items[i])
	}
	paths = slices.DeleteFunc(paths, func(one v1alpha1.Path) bool { return !stays[one.Target.Node] })
	former = slices.DeleteFunc(slices.Clone(former), func(p NewPod) bool { return !stays[p.Node] })
	return paths, former, nil
}

// alive are the new pods that are still there and Ready, with the address that they had.
func (n *NewPods) alive(ctx context.Context, all []NewPod) ([]NewPod, error) {
	if len(all) == 0 {
		return nil, nil
	}
	list, err := n.Actor.podsOn(ctx, "", v1alpha1.Namespace, manifest.LabelNewPod)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(all), func(p NewPod) bool {
		return !slices.ContainsFunc(list, func(pod corev1.Pod) bool {
			return pod.Status.PodIP == p.Address && p.Address != "" && pod.DeletionTimestamp == nil && serves(&pod)
		})
	}), nil
}

// serves reports whether the container of a new pod that answers probes is Ready. The other one ends.
func serves(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name != manifest.NewPodTries && s.Ready
	})
}

// excuse does not count the pods whose node has left the cluster meanwhile: networks remove its routes. It does not
// count those either that failed only to reach nodes that have left, or a former new pod that is gone: others deleted
// it, or its kubelet evicted it. If it cannot know that, the rest stays undecided.
func (n *NewPods) excuse(ctx context.Context, former, pods []NewPod) error {
	nodes := map[string]bool{"": true}
	there := func(name string) (bool, error) {
		if is, known := nodes[name]; known {
			return is, nil
		}
		node, err := n.Actor.node(ctx, name)
		if err == nil {
			nodes[name] = node != nil
		}
		return node != nil, err
	}
	alive, err := former, error(nil)
	if slices.ContainsFunc(pods, func(p NewPod) bool { return len(p.silent) > 0 }) {
		alive, err = n.alive(ctx, former)
	}
	for i := range pods {
		p := &pods[i]
		if p.Failed == "" {
			continue
		}
		stays, failed := there(p.Node)
		if err = errors.Join(err, failed); err != nil {
			return err
		}
		if !stays {
			p.Failed, p.Unmeasured = "", "the node has left the cluster"
			continue
		}
		why, err := p.forgiven(alive, there)
		if err != nil {
			return err
		}
		if p.decided = true; why != "" {
			p.Failed, p.Unmeasured = "", why
		}
	}
	return nil
}

// forgiven says why a pod that failed says nothing: all paths that it failed on lead to what is gone. Empty if one
// does not.
func (p *NewPod) forgiven(former []NewPod, there func(node string) (bool, error)) (why string, err error) {
	for _, id := range p.silent {
		i := slices.IndexFunc(p.tries, func(one v1alpha1.Path) bool { return one.ID == id })
		if i < 0 {
			return "", nil
		}
		target := p.tries[i].Target
		stays, err := there(target.Node)
		switch {
		case err != nil:
			return "", err
		case !stays:
			why = "all nodes that it could not reach have left the cluster"
		case target.Network == path.NewPod &&
			!slices.ContainsFunc(former, func(f NewPod) bool { return f.Address == p.target }):
			why = "the other new pod, its target, is gone"
		default:
			return "", nil
		}
	}
	return why, nil
}

func newPodPorts() path.Ports {
	return path.Ports{UDP: manifest.PortUDP, TCP: manifest.PortTCP, Denied: manifest.PortDenied}
}

// other is a former new pod for the pod with an index: each gets another one, on another node if there is one.
func other(former []NewPod, i int, node string) v1alpha1.Endpoint {
	good := slices.DeleteFunc(slices.Clone(former), func(p NewPod) bool {
		return p.Address == "" || p.Failed != "" || p.Unmeasured != ""
	})
	for j := range good {
		one := good[(i+j+1)%len(good)]
		if one.Node != node || len(good) == 1 {
			return v1alpha1.Endpoint{Node: one.Node, Address: one.Address}
		}
	}
	return v1alpha1.Endpoint{}
}

// clear removes a node's pod of the set before.
func (n *NewPods) clear(ctx context.Context, set string, p *NewPod) error {
	ends, cancel := context.WithTimeout(ctx, newPodEnds)
	defer cancel()
	ref := step.Ref{APIVersion: "v1", Kind: "Pod", Namespace: v1alpha1.Namespace,
		Name: manifest.NewPodName(p.Node, set)}
	if err := n.Actor.remove(ends, ref, false); err != nil {
		if ctx.Err() != nil || ends.Err() == nil && outage.Passes(err) {
			return err
		}
		p.Unmeasured, p.over = "the previous new pod of this node is still terminating: "+printable(err.Error()), true
	}
	return nil
}

// make makes one pod. A pod that is refused is not measured; an error means that the API server could not be asked.
func (n *NewPods) make(ctx context.Context, set string, p *NewPod) error {
	if len(p.tries) == 0 {
		p.Unmeasured, p.over = "no path of the node's probe pod is measured", true
		return nil
	}
	text, err := json.Marshal(p.tries)
	if err != nil {
		return err
	}
	p.At = n.Actor.Clock.Now()
	_, err = n.Actor.apply(ctx, manifest.NewPod(n.Image, p.Node, set, string(text)), false)
	if err != nil && !outage.Passes(err) && ctx.Err() == nil {
		p.Unmeasured, p.over = "the API server rejected it: "+printable(err.Error()), true
		return nil
	}
	return err
}

// look finds out what became of pods.
func (n *NewPods) look(ctx context.Context, set string, pods []NewPod) error {
	list, err := n.Actor.podsOn(ctx, "", v1alpha1.Namespace, manifest.LabelNewPod+"="+set)
	if err != nil {
		return err
	}
	found := map[string]*corev1.Pod{}
	for i := range list {
		if list[i].DeletionTimestamp == nil {
			found[list[i].Name] = &list[i]
		}
	}
	now := n.Actor.Clock.Now()
	for i := range pods {
		p := &pods[i]
		if p.over {
			continue
		}
		pod := found[manifest.NewPodName(p.Node, set)]
		p.see(pod, now)
		if age := now.Sub(p.At); !p.over && p.Address == "" && age >= newPodAddress {
			if err := n.addressless(ctx, p, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// see looks at a pod; nil means that it is gone.
func (p *NewPod) see(pod *corev1.Pod, now time.Time) {
	unmeasured := func(format string, args ...any) { p.Unmeasured, p.over = fmt.Sprintf(format, args...), true }
	if pod == nil {
		unmeasured("it was deleted by others")
		return
	}
	if pod.Status.PodIP != "" && p.Address == "" {
		p.Address, p.AddressAfter = pod.Status.PodIP, now.Sub(p.At)
	}
	if pod.Status.Phase == corev1.PodFailed { // such as OutOfpods: the kubelet has no room
		unmeasured("the kubelet rejected it: %s", because(pod.Status.Reason, pod.Status.Message))
		return
	}
	ready, tried := false, ""
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if w := unmade(status); w != nil {
			if now.Sub(p.At) >= newPodAddress {
				unmeasured("container %s cannot be made: %s", status.Name, because(w.Reason, w.Message))
			}
			return
		}
		ended := status.State.Terminated
		switch {
		case status.Name != manifest.NewPodTries:
			ready = status.Ready
			if ended != nil {
				unmeasured("container %s has ended: %s", status.Name, because(ended.Reason, ended.Message))
				return
			}
		case ended != nil && ended.ExitCode != 0:
			unmeasured("container %s has failed: %s", status.Name, because(ended.Reason, ended.Message))
			return
		case ended != nil:
			tried = ended.Message
		}
	}
	late := p.Address != "" && now.Sub(p.At) >= p.AddressAfter+newPodTries
	switch {
	case tried != "":
		result, err := path.ParseTried(tried)
		switch {
		case err != nil:
			unmeasured("%s", err)
		case result.Fault() != "":
			p.Failed, p.over, p.silent = printable(result.Fault()), true, result.Blames()
		case ready:
			p.ReachableAfter, p.over = now.Sub(p.At), true
		case late:
			p.Failed, p.over = "its readiness probe fails: the kubelet cannot reach it", true
		}
	case late:
		unmeasured("it got an address, but reported no result within %s", newPodTries)
	}
}

// because joins what Kubernetes says.
func because(word, message string) string {
	return printable(strings.TrimSuffix(word+": "+message, ": "))
}

// addressless says why a pod has no address. What says nothing about the network is not measured: a node that is down,
// and what a kubelet needs before it asks for a network.
func (n *NewPods) addressless(ctx context.Context, p *NewPod, pod *corev1.Pod) error {
	p.over = true
	node, err := n.Actor.node(ctx, p.Node)
	switch {
	case err != nil:
		p.over = false
		return err
	case node == nil:
		p.Unmeasured = "the node has left the cluster"
		return nil
	}
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady || c.Status == corev1.ConditionTrue {
			continue
		}
		if c.Status == corev1.ConditionUnknown || !strings.Contains(strings.ToLower(c.Message), "network") {
			p.Unmeasured = "the node is not Ready: " + because(c.Reason, c.Message)
			return nil
		}
		p.Failed = fmt.Sprintf("no address within %s: the node is not Ready: %s", newPodAddress,
			because(c.Reason, c.Message))
		return nil
	}
	told, err := n.told(ctx, pod)
	if err != nil {
		p.over = false
		return err
	}
	switch {
	case told == nil:
		p.Failed = fmt.Sprintf("no address within %s; no Event says why", newPodAddress)
	case aboutNetwork(told):
		p.Failed = fmt.Sprintf("no address within %s: %s", newPodAddress, because(told.Reason, told.Message))
	default:
		p.Unmeasured = because(told.Reason, told.Message)
	}
	return nil
}

// told is the last warning about a pod, one about its network if there is one; nil if there is none, or this user may
// not read Events.
func (n *NewPods) told(ctx context.Context, pod *corev1.Pod) (told *corev1.Event, err error) {
	list, err := n.Actor.Typed.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)).String()})
	if apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		one := &list.Items[i]
		if one.Type == corev1.EventTypeWarning && (told == nil || aboutNetwork(one) && !aboutNetwork(told) ||
			aboutNetwork(one) == aboutNetwork(told) && lastSeen(one).After(lastSeen(told))) {
			told = one
		}
	}
	return told, nil
}

// aboutNetwork reports whether an Event of a kubelet says that a pod got no network.
func aboutNetwork(e *corev1.Event) bool {
	return e.Reason == "FailedCreatePodSandBox" || e.Reason == "NetworkNotReady"
}

// lastSeen is when an Event was last seen.
func lastSeen(e *corev1.Event) time.Time {
	_, last, _ := observe.Times(e)
	return last
}

// Clear removes all new pods, and waits until they are gone.
func (n *NewPods) Clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, newPodEnds)
	defer cancel()
	found, err := n.Actor.removePods(ctx, manifest.LabelNewPod)
	if err != nil && found > 0 {
		return fmt.Errorf("remove %s: %w", cluster.Count(found, "new pod"), err)
	}
	return err
}

// removePods removes Theseus' own pods that have a label, and waits until they are gone. It returns how many it found.
func (a *Actor) removePods(ctx context.Context, label string) (found int, err error) {
	pods, err := a.podsOn(ctx, "", v1alpha1.Namespace, label)
	if err != nil {
		return 0, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(newPodsAtOnce)
	for i := range pods {
		ref := step.Ref{APIVersion: "v1", Kind: "Pod", Namespace: v1alpha1.Namespace, Name: pods[i].Name}
		group.Go(func() error { return a.remove(ctx, ref, false) })
	}
	return len(pods), group.Wait()
}
