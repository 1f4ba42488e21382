package check

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// Facts returns the facts of the nodes by name; nil for a node without facts.
func (p *Pass) Facts() map[string]*cluster.NodeFacts {
	facts := make(map[string]*cluster.NodeFacts, len(p.Snapshot.Facts))
	for i := range p.Snapshot.Facts {
		facts[p.Snapshot.Facts[i].Node] = &p.Snapshot.Facts[i]
	}
	return facts
}

// Moves reports whether a pod is on the pod network, and not a hostNetwork pod, an ended pod, or one of Theseus' own.
func Moves(pod *corev1.Pod) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return !pod.Spec.HostNetwork && !ended && pod.Labels[v1alpha1.LabelManaged] == ""
}

// OfDaemonSet reports whether a pod belongs to a DaemonSet, so that it comes back only on its own node.
func OfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// InPlace reports whether a change leaves pods on their network, with their links and addresses: the network's agents
// restart, node by node, and no pod is evicted.
func (p *Pass) InPlace() bool {
	switch c := p.Change; {
	case c.Encapsulation != "":
		return true
	case c.Pool != "":
		return false
	case c.Reflectors != "" || c.Dataplane != "" || c.Flag != "":
		return true
	default:
		return (c.Strategy == "" || c.Strategy == "upgrade") && cni.Upgrades(p.Found, c)
	}
}

// OneNetwork reports whether a change involves only the present network: pods stay on it, possibly with addresses of
// another pool.
func (p *Pass) OneNetwork() bool { return p.InPlace() || p.Change.Pool != "" }

// Meet reports whether source and target run on the same nodes: with a mirror each has its own cluster.
func (p *Pass) Meet() bool { return p.Source.CNI != p.Target.CNI && p.Change.Strategy != "mirror" }

// Recreates reports whether a change recreates a pod: a change in place recreates none, and adoption only pods that
// cannot be adopted, as far as the cluster's objects show that. Pods on nodes that are also drained are always
// recreated.
func (p *Pass) Recreates(pod *corev1.Pod) bool {
	switch {
	case !Moves(pod):
		return false
	case p.Change.KubernetesTo != "" || p.Replaced()[pod.Spec.NodeName]:
		return true
	case p.InPlace():
		return false
	case !p.adopts():
		return true
	}
	unfit := Memo(p, "unfit", func() func(*corev1.Pod) string {
		var orders *step.Orders
		if p.Target != nil {
			orders = p.Target.Capabilities.Orders
		}
		return adoption.Unfit(p.Snapshot, p.Source != nil && p.Source.Capabilities.Flat, orders)
	})
	return unfit(pod) != ""
}

// Replaced returns the names of the nodes that the change replaces.
func (p *Pass) Replaced() map[string]bool {
	return Memo(p, "replaced", func() map[string]bool {
		nodes := map[string]bool{}
		selector, err := labels.Parse(p.Change.ReplaceNodes)
		if err != nil || p.Change.ReplaceNodes == "" {
			return nodes // an invalid selector was refused before
		}
		for i := range p.Snapshot.Nodes {
			if n := &p.Snapshot.Nodes[i]; selector.Matches(labels.Set(n.Labels)) {
				nodes[n.Name] = true
			}
		}
		return nodes
	})
}

func (p *Pass) adopts() bool { return p.Change.Strategy == "adopt" }

// RecreatedPods returns the pods that a change recreates, by namespace.
func (p *Pass) RecreatedPods() map[string][]*corev1.Pod {
	pods := map[string][]*corev1.Pod{}
	for i := range p.Snapshot.Pods {
		if pod := &p.Snapshot.Pods[i]; p.Recreates(pod) {
			pods[pod.Namespace] = append(pods[pod.Namespace], pod)
		}
	}
	return pods
}

// Behind returns a Service and its pods, without ended ones; nil if there is no such Service.
func (p *Pass) Behind(namespace, name string) (*corev1.Service, []*corev1.Pod) {
	at := slices.IndexFunc(p.Snapshot.Services, func(s corev1.Service) bool {
		return s.Namespace == namespace && s.Name == name
	})
	if at < 0 {
		return nil, nil
	}
	service := &p.Snapshot.Services[at]
	if len(service.Spec.Selector) == 0 {
		return service, nil
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	var pods []*corev1.Pod
	for i := range p.Snapshot.Pods {
		pod := &p.Snapshot.Pods[i]
		ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if pod.Namespace == namespace && !ended && selector.Matches(labels.Set(pod.Labels)) {
			pods = append(pods, pod)
		}
	}
	return service, pods
}

// RecreatedWorkloads returns the workloads of which a change recreates pods.
func (p *Pass) RecreatedWorkloads() []Workload {
	all := p.Workloads()
	if !p.adopts() && !p.InPlace() {
		return all
	}
	recreated := map[string][]labels.Set{}
	for i := range p.Snapshot.Pods {
		if pod := &p.Snapshot.Pods[i]; p.Recreates(pod) {
			recreated[pod.Namespace] = append(recreated[pod.Namespace], pod.Labels)
		}
	}
	return slices.DeleteFunc(all, func(w Workload) bool {
		selector, err := metav1.LabelSelectorAsSelector(w.Selector)
		return err == nil && !slices.ContainsFunc(recreated[w.Meta.Namespace], func(set labels.Set) bool {
			return selector.Matches(set)
		})
	})
}

// Workload is an object that creates pods from one template.
type Workload struct {
	Subject finding.Subject
	Meta    *metav1.ObjectMeta
	Pods    *corev1.PodTemplateSpec
	// Replicas are the wanted pods, Ready the ready ones; both are 0 for a DaemonSet that matches no node.
	Replicas, Ready int32
	Selector        *metav1.LabelSelector
}

// Workloads returns the Deployments, StatefulSets, DaemonSets, and ReplicaSets without a Deployment, in that order.
func (p *Pass) Workloads() []Workload {
	s := p.Snapshot
	var all []Workload
	add := func(kind string, meta *metav1.ObjectMeta, pods *corev1.PodTemplateSpec,
		selector *metav1.LabelSelector, replicas, ready int32) {
		all = append(all, Workload{finding.Subject{Kind: kind, Namespace: meta.Namespace, Name: meta.Name}, meta,
			pods, replicas, ready, selector})
	}
	for i := range s.Deployments {
		o := &s.Deployments[i]
		add("Deployment", &o.ObjectMeta, &o.Spec.Template, o.Spec.Selector,
			orOne(o.Spec.Replicas), o.Status.ReadyReplicas)
	}
	for i := range s.StatefulSets {
		o := &s.StatefulSets[i]
		add("StatefulSet", &o.ObjectMeta, &o.Spec.Template, o.Spec.Selector,
			orOne(o.Spec.Replicas), o.Status.ReadyReplicas)
	}
	for i := range s.DaemonSets {
		o := &s.DaemonSets[i]
		add("DaemonSet", &o.ObjectMeta, &o.Spec.Template, o.Spec.Selector,
			o.Status.DesiredNumberScheduled, o.Status.NumberReady)
	}
	for i := range s.ReplicaSets {
		if o := &s.ReplicaSets[i]; metav1.GetControllerOfNoCopy(o) == nil {
			add("ReplicaSet", &o.ObjectMeta, &o.Spec.Template, o.Spec.Selector,
				orOne(o.Spec.Replicas), o.Status.ReadyReplicas)
		}
	}
	return all
}

// orOne returns the default for an absent number of replicas.
func orOne(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

// Prefixes parses address ranges and single addresses, and ignores other texts.
func Prefixes(texts ...string) []netip.Prefix {
	var found []netip.Prefix
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if prefix, err := netip.ParsePrefix(text); err == nil {
			found = append(found, prefix.Masked())
		} else if address, err := netip.ParseAddr(text); err == nil {
			address = address.Unmap().WithZone("")
			found = append(found, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	return found
}

// Covers reports whether every address of inner is in outer.
func Covers(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}
