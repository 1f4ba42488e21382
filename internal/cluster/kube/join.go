package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// Joins measures nodes that join the cluster during a guard, with probe pods of an image.
type Joins struct {
	Actor *Actor
	Image string
	// nodes are those that have joined, as far as this process knows; nil before the first look.
	nodes map[string]*joining
	// out are paths that are left out, but are in a plan that could not be written yet, and silent what Joined says
	// then.
	out    map[string]bool
	silent []path.Silence
}

// joining is how far the measuring of a node that has joined is.
type joining struct {
	// told is true once the paths of the node are in the plans, and it was said. whole is true once all of them are:
	// before, a neighbour has no Ready probe pod, or a plan could not be written. settled is true once all of them have
	// answered, or those that a cluster may lack (path.Silent) are left out.
	told, whole, settled bool
	// lacks is since when only such paths have not answered; zero if others have not either.
	lacks time.Time
	// portless is true if the kubelet refused its probe pod because of its hostPorts.
	portless bool
}

// Joined is what a look for nodes that join has brought.
type Joined struct {
	// Measured are the nodes that are measured from now on.
	Measured []string
	// Waiting says why a node is not measured yet, or not on all its paths; empty if there is none.
	Waiting string
	// Silent are paths that a cluster may lack: they did not answer, and are not measured.
	Silent []path.Silence
}

// Join makes a probe pod on each Ready node that has none and is not measured, and adds the paths of those whose
// probers are Ready. Paths that are measured already stay as they are, and so do their counts. What fails, or cannot be
// done yet, is done by a later look.
func (j *Joins) Join(ctx context.Context) (got Joined, err error) {
	a := j.Actor
	nodes, err := cached(ctx, func(ctx context.Context, options metav1.ListOptions) ([]corev1.Node, string, error) {
		list, err := a.Typed.CoreV1().Nodes().List(ctx, options)
		return list.Items, list.Continue, err
	})
	if err != nil {
		return got, err
	}
	plans, err := a.probePlans(ctx)
	if err != nil || len(pathsOf(plans)) == 0 {
		return got, err
	}
	known := measuredPods(pathsOf(plans))
	if err := j.recall(ctx, known); err != nil {
		return got, err
	}
	var fresh []string
	for i := range nodes {
		node := &nodes[i]
		half := j.nodes[node.Name] != nil && !j.nodes[node.Name].whole
		if (!known[node.Name] || half) && node.DeletionTimestamp == nil && cluster.NodeReady(node) {
			fresh = append(fresh, node.Name)
		}
	}
	if len(fresh) > 0 {
		if err := j.fresh(ctx, plans, known, fresh, &got); err != nil {
			return got, err
		}
	}
	err = j.settle(ctx, nodes, &got)
	return got, err
}

// measuredPods are the nodes whose probe pods are measured. A node that joined before the paths were set has paths of
// its own network alone.
func measuredPods(paths []v1alpha1.Path) map[string]bool {
	known := map[string]bool{}
	for _, one := range paths {
		for _, end := range []v1alpha1.Endpoint{one.Source, one.Target} {
			if end.Network == path.Old {
				known[end.Node] = true
			}
		}
	}
	return known
}

// recall finds the nodes that an earlier process has made probe pods on. known are those that it has told.
func (j *Joins) recall(ctx context.Context, known map[string]bool) error {
	if j.nodes != nil {
		return nil
	}
	pods, err := j.Actor.podsOn(ctx, "", v1alpha1.Namespace, manifest.LabelJoined)
	if err != nil {
		return err
	}
	j.nodes = map[string]*joining{}
	for i := range pods {
		node := pods[i].Spec.NodeName
		j.nodes[node] = &joining{told: known[node]}
	}
	return nil
}

// fresh makes probe pods on nodes, and adds the paths of those whose probers are Ready.
func (j *Joins) fresh(ctx context.Context, plans []v1alpha1.ProbePlan, known map[string]bool, nodes []string,
	got *Joined) error {
	ready, refused, err := j.probers(ctx)
	if err != nil {
		return err
	}
	var joined []string
	for _, node := range nodes {
		if j.nodes[node] == nil {
			j.nodes[node] = &joining{}
		}
		switch {
		case ready[path.Old][node] && ready[path.Host][node]:
			known[node] = true
			joined = append(joined, node)
			continue
		case refused[node] != nil:
			got.Waiting = fmt.Sprintf("node %s has joined, and its kubelet refused its probe pod, which is made "+
				"again: %s", node, because(refused[node].Status.Reason, printable(refused[node].Status.Message)))
			j.nodes[node].portless = refused[node].Status.Reason == "NodePorts"
			if err := j.Actor.drop(ctx, refused[node].Name); err != nil {
				return err
			}
			continue
		case !ready[path.Old][node]:
			if err := j.make(ctx, node); err != nil {
				got.Waiting = fmt.Sprintf("node %s has joined, but its probe pod cannot be created: %v", node, err)
				continue
			}
		}
		got.Waiting = fmt.Sprintf("node %s has joined, but its probers are not Ready yet", node)
	}
	if len(joined) == 0 {
		return nil
	}
	lacking, added, err := j.add(ctx, plans, known, joined)
	if err != nil {
		return err
	}
	for _, node := range joined {
		one := j.nodes[node]
		if one.whole = lacking == ""; !one.whole {
			got.Waiting = fmt.Sprintf("node %s has joined, and its paths from and to %s are not measured yet: the "+
				"probe pod there is not Ready", node, lacking)
		}
		if added {
			one.settled, one.lacks = false, time.Time{}
		}
		if !one.told {
			one.told = true
			got.Measured = append(got.Measured, node)
		}
	}
	return nil
}

// probers are the nodes whose probers are Ready, by network, and the probe pods that a kubelet has refused, by node.
func (j *Joins) probers(ctx context.Context) (ready map[string]map[string]bool, refused map[string]*corev1.Pod,
	err error) {
	ready, refused = map[string]map[string]bool{path.Old: {}, path.Host: {}}, map[string]*corev1.Pod{}
	for network, selector := range map[string]string{path.Old: v1alpha1.LabelProbe + "=" + path.Old,
		path.Host: manifest.LabelApp + "=" + manifest.HostProberName} {
		pods, err := j.Actor.podsOn(ctx, "", v1alpha1.Namespace, selector)
		if err != nil {
			return nil, nil, err
		}
		for i := range pods {
			pod := &pods[i]
			switch {
			case pod.DeletionTimestamp != nil:
			case cluster.PodReady(pod):
				ready[network][pod.Spec.NodeName] = true
			case network == path.Old && pod.Status.Phase == corev1.PodFailed:
				refused[pod.Spec.NodeName] = pod
			}
		}
	}
	return ready, refused, nil
}

// make makes a node's probe pod, unless it is there.
func (j *Joins) make(ctx context.Context, node string) error {
	pod := manifest.ForGuard(manifest.ProbePod(j.Image, node, path.Old))
	if j.Actor.Measured.HostPorts && !j.nodes[node].portless {
		pod = manifest.WithHostPorts(pod)
	}
	labels := pod.GetLabels()
	labels[manifest.LabelJoined] = "true"
	pod.SetLabels(labels)
	_, err := j.Actor.apply(ctx, pod, false)
	return err
}

// add adds the paths from and to nodes to the plans, as far as they are not there. Classes that were left out before
// the change stay so. lacking names a node whose probe pod is not Ready, so that paths from and to it are missing;
// empty if there is none. added is true if there were any paths to add.
func (j *Joins) add(ctx context.Context, plans []v1alpha1.ProbePlan, known map[string]bool,
	joined []string) (lacking string, added bool, err error) {
	a := j.Actor
	topology, err := a.topology(ctx, step.PathSet{Old: []string{step.EveryNode}})
	if err != nil {
		return "", false, err
	}
	topology.Nodes = slices.DeleteFunc(topology.Nodes, func(n path.Node) bool { return !known[n.Name] })
	for _, node := range topology.Nodes {
		if topology.Old[node.Name] == "" {
			lacking = node.Name
		}
	}
	there, classes := map[string]bool{}, map[string]bool{}
	for _, one := range pathsOf(plans) {
		there[one.ID], classes[one.Class] = true, true
	}
	more := map[string][]v1alpha1.Path{}
	for _, one := range path.Build(topology) {
		if !there[one.ID] && (slices.Contains(joined, one.Source.Node) || slices.Contains(joined, one.Target.Node)) &&
			(classes[one.Class] || !path.Optional(one.Class)) && !j.portless(one) {
			more[one.Source.Node] = append(more[one.Source.Node], one)
		}
	}
	added = len(more) > 0
	every := a.reported(len(topology.Nodes))
	for i := range plans {
		name := plans[i].Name
		if len(more[name]) == 0 {
			continue
		}
		plan := planOf(name, plans[i].Spec.Generation+1, slices.Concat(plans[i].Spec.Paths, more[name]), every)
		err = errors.Join(err, a.writePlanOver(ctx, plan, plans[i]))
		delete(more, name)
	}
	for name, paths := range more {
		err = errors.Join(err, a.writePlan(ctx, planOf(name, 1, paths, every)))
	}
	return lacking, added, err
}

// portless reports whether a path leads to the hostPort of a probe pod that has none.
func (j *Joins) portless(one v1alpha1.Path) bool {
	to := j.nodes[one.Target.Node]
	return one.Class == path.ClassHostPort && to != nil && to.portless
}

// settle leaves out the paths of nodes that have joined that a cluster may lack, if they do not answer for as long as
// before a change (setPaths), while all others of these nodes do.
func (j *Joins) settle(ctx context.Context, present []corev1.Node, got *Joined) error {
	waits := map[string]bool{}
	for i := range present {
		if one := j.nodes[present[i].Name]; one != nil && one.told && one.whole && !one.settled {
			waits[present[i].Name] = true
		}
	}
	if len(waits) == 0 && len(j.out) == 0 {
		return nil
	}
	a := j.Actor
	plans, err := a.probePlans(ctx)
	if err != nil {
		return err
	}
	reports, err := a.probeReports(ctx)
	if err != nil {
		return err
	}
	every := a.reported(len(plans))
	if len(j.out) > 0 {
		if err := j.leaveOut(ctx, plans, every, got); err != nil {
			return err
		}
		if plans, err = a.probePlans(ctx); err != nil {
			return err
		}
	}
	answers, now := answered(plans, reports), a.Clock.Now()
	all := pathsOf(plans)
	open := path.Answering(all, answers)
	for _, node := range slices.Sorted(maps.Keys(waits)) {
		one := j.nodes[node]
		own := slices.DeleteFunc(slices.Clone(all), func(p v1alpha1.Path) bool {
			return p.Source.Node != node && p.Target.Node != node
		})
		left, silent := open.Silent(own, answers)
		missing := slices.IndexFunc(left, func(p v1alpha1.Path) bool { return !p.Denied && !answers(p.ID) })
		switch {
		case missing >= 0:
			one.lacks = time.Time{}
			got.Waiting = fmt.Sprintf("node %s has joined, and not all its paths have answered yet, such as %s", node,
				left[missing].ID)
			continue
		case len(silent) == 0:
			one.settled = true
			continue
		case one.lacks.IsZero():
			one.lacks = now
		}
		if now.Sub(one.lacks) < max(grace, graceReports*path.News(every.every)) {
			got.Waiting = fmt.Sprintf("node %s has joined, and not all its paths have answered yet, such as %s", node,
				silent[0].Example)
			continue
		}
		stay := map[string]bool{}
		for i := range left {
			stay[left[i].ID] = true
		}
		if j.out == nil {
			j.out = map[string]bool{}
		}
		shared := map[string]int{} // by class: paths to or from a node before this one
		for i := range own {
			if stay[own[i].ID] {
				continue
			}
			if j.out[own[i].ID] {
				shared[own[i].Class]++
			}
			j.out[own[i].ID] = true
		}
		for _, s := range silent {
			s.Joined, s.Shared = true, shared[s.Class]
			if s.Shared < s.Paths || s.Uncovered() { // else the node before says it
				j.silent = append(j.silent, s)
			}
		}
	}
	return j.leaveOut(ctx, plans, every, got)
}

// leaveOut writes the plans without the paths that are left out. What could not be written, the next look writes, and
// says then what is left out: the plans that were written no longer show it.
func (j *Joins) leaveOut(ctx context.Context, plans []v1alpha1.ProbePlan, every reports,
	got *Joined) (err error) {
	for i := range plans {
		paths := slices.DeleteFunc(slices.Clone(plans[i].Spec.Paths), func(p v1alpha1.Path) bool { return j.out[p.ID] })
		if len(paths) < len(plans[i].Spec.Paths) {
			plan := planOf(plans[i].Name, plans[i].Spec.Generation+1, paths, every)
			err = errors.Join(err, j.Actor.writePlanOver(ctx, plan, plans[i]))
		}
	}
	if err == nil {
		got.Silent = append(got.Silent, j.silent...)
		j.out, j.silent = nil, nil
	}
	return err
}

// unjoin removes the probe pods of nodes that have joined. It waits for none whose node is gone: no kubelet ends it.
func (a *Actor) unjoin(ctx context.Context) error {
	pods, err := a.podsOn(ctx, "", v1alpha1.Namespace, manifest.LabelJoined)
	if err != nil || len(pods) == 0 {
		return err
	}
	nodes, err := a.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods {
		name := pods[i].Spec.NodeName
		if !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == name }) {
			if err := a.drop(ctx, pods[i].Name); err != nil {
				return err
			}
		}
	}
	_, err = a.removePods(ctx, manifest.LabelJoined)
	return err
}

// drop deletes a pod of Theseus' own at once: no kubelet runs it.
func (a *Actor) drop(ctx context.Context, name string) error {
	err := a.Typed.CoreV1().Pods(v1alpha1.Namespace).Delete(ctx, name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
