package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
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
}

// Join makes a probe pod on each Ready node that has none and is not measured, and adds the paths of those whose
// probers are Ready. Paths that are measured already stay as they are, and so do their counts. It returns the nodes
// that are measured from now on, and says why another one is not yet; empty if there is none.
func (j *Joins) Join(ctx context.Context) (measured []string, waiting string, err error) {
	a := j.Actor
	nodes, err := cached(ctx, func(ctx context.Context, options metav1.ListOptions) ([]corev1.Node, string, error) {
		list, err := a.Typed.CoreV1().Nodes().List(ctx, options)
		return list.Items, list.Continue, err
	})
	if err != nil {
		return nil, "", err
	}
	plans, err := a.probePlans(ctx)
	if err != nil || len(pathsOf(plans)) == 0 {
		return nil, "", err
	}
	known := map[string]bool{}
	for _, one := range pathsOf(plans) {
		known[one.Source.Node], known[one.Target.Node] = true, true
	}
	var fresh []string
	for i := range nodes {
		if node := &nodes[i]; !known[node.Name] && node.DeletionTimestamp == nil && cluster.NodeReady(node) {
			fresh = append(fresh, node.Name)
		}
	}
	if len(fresh) == 0 {
		return nil, "", nil
	}
	ready, err := j.probers(ctx)
	if err != nil {
		return nil, "", err
	}
	for _, node := range fresh {
		switch {
		case ready[path.Old][node] && ready[path.Host][node]:
			known[node] = true
			measured = append(measured, node)
			continue
		case !ready[path.Old][node]:
			if err := j.make(ctx, node); err != nil {
				waiting = fmt.Sprintf("node %s has joined, and cannot have a probe pod: %v", node, err)
				continue
			}
		}
		waiting = fmt.Sprintf("node %s has joined, and its probers are not Ready yet", node)
	}
	if len(measured) == 0 {
		return nil, waiting, nil
	}
	return measured, waiting, j.add(ctx, plans, known, measured)
}

// probers are the nodes whose probers are Ready, by network.
func (j *Joins) probers(ctx context.Context) (map[string]map[string]bool, error) {
	ready := map[string]map[string]bool{path.Old: {}, path.Host: {}}
	for network, selector := range map[string]string{path.Old: v1alpha1.LabelProbe + "=" + path.Old,
		path.Host: manifest.LabelApp + "=" + manifest.HostProberName} {
		pods, err := j.Actor.podsOn(ctx, "", v1alpha1.Namespace, selector)
		if err != nil {
			return nil, err
		}
		for i := range pods {
			if pods[i].DeletionTimestamp == nil && cluster.PodReady(&pods[i]) {
				ready[network][pods[i].Spec.NodeName] = true
			}
		}
	}
	return ready, nil
}

// make makes a node's probe pod, unless it is there.
func (j *Joins) make(ctx context.Context, node string) error {
	pod := manifest.ProbePod(j.Image, node, path.Old)
	if j.Actor.Measured.HostPorts {
		pod = manifest.WithHostPorts(pod)
	}
	labels := pod.GetLabels()
	labels[manifest.LabelJoined] = "true"
	pod.SetLabels(labels)
	_, err := j.Actor.apply(ctx, pod, false)
	return err
}

// add adds the paths from and to nodes to the plans. Classes that were left out before the change stay so.
func (j *Joins) add(ctx context.Context, plans []v1alpha1.ProbePlan, known map[string]bool, joined []string) error {
	a := j.Actor
	topology, err := a.topology(ctx, step.PathSet{Old: []string{step.EveryNode}})
	if err != nil {
		return err
	}
	topology.Nodes = slices.DeleteFunc(topology.Nodes, func(n path.Node) bool { return !known[n.Name] })
	there, classes := map[string]bool{}, map[string]bool{}
	for _, one := range pathsOf(plans) {
		there[one.ID], classes[one.Class] = true, true
	}
	more := map[string][]v1alpha1.Path{}
	for _, one := range path.Build(topology) {
		if !there[one.ID] && (slices.Contains(joined, one.Source.Node) || slices.Contains(joined, one.Target.Node)) &&
			(classes[one.Class] || !path.Optional(one.Class)) {
			more[one.Source.Node] = append(more[one.Source.Node], one)
		}
	}
	every := path.ReportEvery(len(topology.Nodes))
	for i := range plans {
		name := plans[i].Name
		if len(more[name]) == 0 {
			continue
		}
		plan := planOf(name, plans[i].Spec.Generation+1, slices.Concat(plans[i].Spec.Paths, more[name]), every)
		err = errors.Join(err, a.writePlan(ctx, plan))
		delete(more, name)
	}
	for name, paths := range more {
		err = errors.Join(err, a.writePlan(ctx, planOf(name, 1, paths, every)))
	}
	return err
}

// unjoin removes the probe pods of nodes that have joined.
func (a *Actor) unjoin(ctx context.Context) error {
	_, err := a.removePods(ctx, manifest.LabelJoined)
	return err
}
