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

// Facts are the facts of the nodes by their names; nil for a node that nobody looked at.
func (p *Pass) Facts() map[string]*cluster.NodeFacts {
	facts := make(map[string]*cluster.NodeFacts, len(p.Snapshot.Facts))
	for i := range p.Snapshot.Facts {
		facts[p.Snapshot.Facts[i].Node] = &p.Snapshot.Facts[i]
	}
	return facts
}

// Moves reports whether a pod sits on the pod network, which a change takes it from: pods of the host network stay, pods that have ended are no longer there, and Theseus' own are its own affair.
func Moves(pod *corev1.Pod) bool {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return !pod.Spec.HostNetwork && !ended && pod.Labels[v1alpha1.LabelManaged] == ""
}

// OfDaemonSet reports whether a pod is a DaemonSet's, which comes back on its own node alone.
func OfDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// InPlace reports whether a change leaves pods on their network, with their links and addresses: its agents start again, node by node, and
// nobody evicts anything.
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

// OneNetwork reports whether a change has no other network than the one in place: pods stay on it, be it with addresses of another pool.
func (p *Pass) OneNetwork() bool { return p.InPlace() || p.Change.Pool != "" }

// Meet reports whether the network in place and the one that comes run on the same nodes: a mirror has each in a cluster of its own.
func (p *Pass) Meet() bool { return p.Source.CNI != p.Target.CNI && p.Change.Strategy != "mirror" }

// Recreates reports whether a change creates a pod again: one in place does not, and adoption does so with those alone that cannot be adopted, as
// far as that can be seen in the cluster's objects. Whatever is on a node that is drained besides is created again.
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

// Replaced are the names of the nodes that come back new; none where the change replaces none.
func (p *Pass) Replaced() map[string]bool {
	return Memo(p, "replaced", func() map[string]bool {
		nodes := map[string]bool{}
		selector, err := labels.Parse(p.Change.ReplaceNodes)
		if err != nil || p.Change.ReplaceNodes == "" {
			return nodes // one that cannot be read was refused before
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

// RecreatedPods are the pods that a change creates again, by namespace.
func (p *Pass) RecreatedPods() map[string][]*corev1.Pod {
	pods := map[string][]*corev1.Pod{}
	for i := range p.Snapshot.Pods {
		if pod := &p.Snapshot.Pods[i]; p.Recreates(pod) {
			pods[pod.Namespace] = append(pods[pod.Namespace], pod)
		}
	}
	return pods
}

// Behind finds a Service and the pods that answer for it, ended ones left out; nil when there is no such Service.
func (p *Pass) Behind(namespace, name string) (*corev1.Service, []*corev1.Pod) {
	at := slices.IndexFunc(p.Snapshot.Services, func(s corev1.Service) bool { return s.Namespace == namespace && s.Name == name })
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

// RecreatedWorkloads are those of which a change creates pods again.
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
		return err == nil && !slices.ContainsFunc(recreated[w.Meta.Namespace], func(set labels.Set) bool { return selector.Matches(set) })
	})
}

// Workload is what creates pods of one template.
type Workload struct {
	Subject finding.Subject
	Meta    *metav1.ObjectMeta
	Pods    *corev1.PodTemplateSpec
	// Replicas are wanted, Ready those that are; both 0 for a DaemonSet that no node matches.
	Replicas, Ready int32
	Selector        *metav1.LabelSelector
}

// Workloads are the Deployments, StatefulSets, DaemonSets, and ReplicaSets without a Deployment, in that order.
func (p *Pass) Workloads() []Workload {
	s := p.Snapshot
	var all []Workload
	add := func(kind string, meta *metav1.ObjectMeta, pods *corev1.PodTemplateSpec, selector *metav1.LabelSelector, replicas, ready int32) {
		all = append(all, Workload{finding.Subject{Kind: kind, Namespace: meta.Namespace, Name: meta.Name}, meta, pods, replicas, ready, selector})
	}
	for i := range s.Deployments {
		o := &s.Deployments[i]
		add("Deployment", &o.ObjectMeta, &o.Spec.Template, o.Spec.Selector, orOne(o.Spec.Replicas), o.Status.ReadyReplicas)
	}
	for i := range s.StatefulSets {
		o := &s.StatefulSets[i]
		add("StatefulSet", &o.ObjectMeta, &o.Spec.Template, o.Spec.Selector, orOne(o.Spec.Replicas), o.Status.ReadyReplicas)
	}
	for i := range s.DaemonSets {
		o := &s.DaemonSets[i]
		add("DaemonSet", &o.ObjectMeta, &o.Spec.Template, o.Spec.Selector, o.Status.DesiredNumberScheduled, o.Status.NumberReady)
	}
	for i := range s.ReplicaSets {
		if o := &s.ReplicaSets[i]; metav1.GetControllerOfNoCopy(o) == nil {
			add("ReplicaSet", &o.ObjectMeta, &o.Spec.Template, o.Spec.Selector, orOne(o.Spec.Replicas), o.Status.ReadyReplicas)
		}
	}
	return all
}

// orOne is what an absent number of replicas means.
func orOne(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

// Prefixes parses address ranges and single addresses, and leaves out what is neither.
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
