package rehearsal

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Budget is a PodDisruptionBudget, with how many of its pods may be evicted at once, if all are healthy.
type Budget struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Original  int    `json:"original"`
	Copy      int    `json:"copy"`
}

// namespaces copies the namespaces of users. Their labels go along, except those that would keep stand-ins out. One
// that is being deleted takes no objects.
func (m *maker) namespaces() {
	for i := range m.original.Namespaces {
		one := m.original.Namespaces[i].DeepCopy()
		switch {
		case one.Name == corev1.NamespaceDefault || System(one.Name, m.networks):
		case System(one.Name, m.system):
			m.leave("Namespace", "", one.Name,
				"the scratch cluster's network has a namespace of this name; nothing in it is copied")
		case one.DeletionTimestamp != nil:
			m.leave("Namespace", "", one.Name, "it is being deleted; nothing in it is copied")
		default:
			m.users[one.Name] = true
			maps.DeleteFunc(one.Labels, func(key, _ string) bool {
				return strings.HasPrefix(key, "pod-security.kubernetes.io/")
			})
			m.add(encode(one, corev1.SchemeGroupVersion.WithKind("Namespace")))
		}
	}
}

// services copies the Services of users without addresses of the original. None asks a load balancer for one: that of
// the scratch cluster may be the original's.
func (m *maker) services() {
	for i := range m.original.Services {
		one := m.original.Services[i].DeepCopy()
		if !m.copied(one.Namespace) || one.Namespace == corev1.NamespaceDefault && one.Name == "kubernetes" {
			continue
		}
		spec := &one.Spec
		spec.ExternalIPs, spec.LoadBalancerIP, spec.LoadBalancerClass = nil, "", nil
		if spec.Type == corev1.ServiceTypeLoadBalancer { // its other fields are refused for other types
			spec.Type, spec.LoadBalancerSourceRanges, spec.AllocateLoadBalancerNodePorts, spec.HealthCheckNodePort =
				corev1.ServiceTypeNodePort, nil, nil, 0
		}
		m.add(encode(one, corev1.SchemeGroupVersion.WithKind("Service")))
	}
}

// policies copies NetworkPolicies, and the network's own kinds of policies.
func (m *maker) policies() {
	for i := range m.original.NetworkPolicies {
		if one := m.original.NetworkPolicies[i].DeepCopy(); m.copied(one.Namespace) {
			m.add(encode(one, networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy")))
		}
	}
	written := map[step.Ref]bool{}
	for _, network := range m.networks {
		for _, ref := range network.Written {
			written[ref] = true
		}
	}
	tiers := map[string]bool{}
	for _, tier := range m.original.Calico("Tier") {
		if !slices.Contains([]string{"default", "adminnetworkpolicy", "baselineadminnetworkpolicy", "kube-admin",
			"kube-baseline"}, tier.GetName()) {
			tiers[tier.GetName()] = true
			m.leave("Tier", "", tier.GetName(), "tiers are not copied, nor are the policies in them")
		}
	}
	definitions := m.scratch.Definitions()
	for i := range m.original.Other {
		one := &m.original.Other[i]
		if !written[step.RefOf(one)] || one.GetNamespace() != "" && !m.copied(one.GetNamespace()) {
			continue
		}
		kind := one.GetKind()
		known := slices.ContainsFunc(definitions, func(name string) bool {
			plural, group, _ := strings.Cut(name, ".")
			return group == one.GroupVersionKind().Group && slices.Contains([]string{strings.ToLower(kind) + "s",
				strings.TrimSuffix(strings.ToLower(kind), "y") + "ies"}, plural)
		})
		tier, _, _ := unstructured.NestedString(one.Object, "spec", "tier")
		switch {
		case tiers[tier]:
			m.leave(kind, one.GetNamespace(), one.GetName(), "its tier is not copied")
		case !strings.HasSuffix(kind, "Policy") && !strings.HasSuffix(kind, "NetworkSet") && kind != "Tier":
			why := m.configures(one)
			if why == absent && known && peers(one) {
				m.add(one)
				m.Extra++ // it is of the network, not of users
				why = ""
			}
			m.network.add(why == "", name(one)+": "+why)
			if why != "" {
				m.leave(kind, one.GetNamespace(), one.GetName(), why)
				m.Left[len(m.Left)-1].network = true
			}
		case !known:
			m.leave(kind, one.GetNamespace(), one.GetName(),
				"the scratch cluster does not serve this kind in this API group ("+one.GroupVersionKind().Group+")")
		default:
			m.add(one)
		}
	}
}

// peers reports whether an object lets nodes of the cluster be BGP peers of each other, or filters routes: these have
// nothing of the original's surroundings, and can be added to a network that runs.
func peers(object *unstructured.Unstructured) bool {
	text := func(field string) string {
		value, _, _ := unstructured.NestedString(object.Object, "spec", field)
		return value
	}
	return object.GetKind() == "BGPFilter" ||
		object.GetKind() == "BGPPeer" && text("peerSelector") != "" && text("peerIP") == "" && text("node") == ""
}

// absent is why an object that configures the network is not in the copy, if the scratch cluster has none of its name.
const absent = "it configures the network, and the scratch cluster's network is as you installed it"

// configures says how an object that configures the network differs from that of the scratch cluster; "" if they are
// alike.
func (m *maker) configures(object *unstructured.Unstructured) string {
	for i := range m.scratch.Other {
		theirs := &m.scratch.Other[i]
		if step.RefOf(theirs) != step.RefOf(object) {
			continue
		}
		if equality.Semantic.DeepEqual(object.Object["spec"], theirs.Object["spec"]) {
			return ""
		}
		return "it configures the network, and the scratch cluster's object of this name differs"
	}
	return absent
}

// budgets copies PodDisruptionBudgets so that each allows as much as in the original: nothing where it allows nothing,
// and a share where it allows a share.
func (m *maker) budgets() {
	for i := range m.original.Budgets {
		one := m.original.Budgets[i].DeepCopy()
		if !m.copied(one.Namespace) {
			continue
		}
		var before, after int
		if selector, err := metav1.LabelSelectorAsSelector(one.Spec.Selector); err == nil {
			for _, pods := range m.pods {
				if pods.namespace == one.Namespace && !pods.daemon && selector.Matches(labels.Set(pods.labels)) {
					before, after = before+int(pods.original), after+int(pods.copy)
				}
			}
		}
		allowed := allows(&one.Spec, before)
		if want := share(allowed, before, after); allows(&one.Spec, after) != want {
			one.Spec.MinAvailable, one.Spec.MaxUnavailable = nil, new(intstr.FromInt(want))
		}
		m.Budgets = append(m.Budgets, Budget{one.Namespace, one.Name, allowed, allows(&one.Spec, after)})
		m.add(encode(one, policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")))
	}
	slices.SortFunc(m.Budgets, func(a, b Budget) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
}

// allows is how many of a budget's pods may be evicted at once, if all are healthy. Percentages are rounded up, as
// Kubernetes does.
func allows(spec *policyv1.PodDisruptionBudgetSpec, pods int) int {
	switch {
	case spec.MaxUnavailable != nil:
		n, err := intstr.GetScaledValueFromIntOrPercent(spec.MaxUnavailable, pods, true)
		if err != nil {
			return 0
		}
		return min(n, pods)
	case spec.MinAvailable != nil:
		n, err := intstr.GetScaledValueFromIntOrPercent(spec.MinAvailable, pods, true)
		if err != nil {
			return 0
		}
		return max(0, pods-n)
	}
	return max(0, pods-1) // minAvailable is 1 by default
}

// share is what a budget allows of after pods, if it allows so many of before.
func share(allowed, before, after int) int {
	if allowed == 0 || before == 0 {
		return 0
	}
	most := after
	if allowed < before && after > 1 {
		most-- // it keeps at least one
	}
	return min(most, max(1, int(math.Round(float64(allowed)*float64(after)/float64(before)))))
}

// priorities makes the PriorityClasses that pods of the copy name, with the values that pods of the original have.
func (m *maker) priorities() {
	values := map[string]int64{}
	for i := range m.original.Pods {
		if pod := &m.original.Pods[i]; pod.Spec.Priority != nil {
			values[pod.Spec.PriorityClassName] = int64(*pod.Spec.Priority)
		}
	}
	wanted := map[string]bool{}
	for _, pods := range m.pods {
		if name := pods.spec.PriorityClassName; name != "" && !strings.HasPrefix(name, "system-") {
			wanted[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		m.add(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "scheduling.k8s.io/v1",
			"kind": "PriorityClass", "metadata": map[string]any{"name": name}, "value": values[name],
			"description": "copied by theseus rehearse"}})
	}
}

// lacks lists what the copy cannot have.
func (m *maker) lacks() {
	say := func(when bool, what, follows string) {
		if when {
			m.Lacks = append(m.Lacks, Lack{what, follows})
		}
	}
	say(true, "your programs and their traffic",
		"stand-ins answer on the same ports; how your programs react to a lost connection is not rehearsed")
	kernels, runtimes := map[string]bool{}, map[string]bool{}
	for i := range m.scratch.Nodes {
		kernels[m.scratch.Nodes[i].Status.NodeInfo.KernelVersion] = true
		runtimes[m.scratch.Nodes[i].Status.NodeInfo.ContainerRuntimeVersion] = true
	}
	other := map[string]bool{}
	for i := range m.original.Nodes {
		info := m.original.Nodes[i].Status.NodeInfo
		if !kernels[info.KernelVersion] {
			other["kernel "+info.KernelVersion] = true
		}
		if !runtimes[info.ContainerRuntimeVersion] {
			other[info.ContainerRuntimeVersion] = true
		}
	}
	say(len(other) > 0, few(slices.Sorted(maps.Keys(other))),
		fmt.Sprintf("the scratch cluster has %s: effects of the kernel or the runtime are not rehearsed",
			few(slices.Concat(slices.Sorted(maps.Keys(kernels)), slices.Sorted(maps.Keys(runtimes))))))
	platforms := map[string]bool{}
	for i := range m.scratch.Nodes {
		platforms[platform(&m.scratch.Nodes[i])] = true
	}
	foreign := map[string]bool{}
	for i := range m.original.Nodes {
		if one := platform(&m.original.Nodes[i]); one != "" && !platforms[one] {
			foreign[one] = true
		}
	}
	say(len(foreign) > 0, "nodes of "+few(slices.Sorted(maps.Keys(foreign))),
		"nodes of another platform play them: pods that ask for theirs find no node")
	say(m.Share < 1, "the original's size",
		fmt.Sprintf("%s play %s: effects of size (the API server's load, full tables) are not rehearsed",
			cluster.Count(m.played(), "node"), cluster.Count(len(m.original.Nodes), "node")))
	balanced, external := 0, 0
	for i := range m.original.Services {
		if service := &m.original.Services[i]; m.copied(service.Namespace) {
			if service.Spec.Type == corev1.ServiceTypeLoadBalancer {
				balanced++
			}
			external += len(service.Spec.ExternalIPs)
		}
	}
	say(balanced > 0, fmt.Sprintf("the load balancers of %s", cluster.Count(balanced, "Service")),
		"they become NodePort, without the ranges of clients that they allow; traffic from outside is not rehearsed")
	say(external > 0, cluster.Count(external, "external IP"),
		"they are left out: they are addresses in the environment of the original")
	say(len(m.Webhooks) > 0, "the decisions of "+m.hooks(),
		"stand-ins allow everything at once: rejections, changes and delays by a webhook are not rehearsed")
	say(len(m.Unasked) > 0, "webhooks that must answer: "+few(m.Unasked),
		"they are not in the copy: a request that they refuse, or that waits for them, is not rehearsed")
	say(true, "autoscalers", "a snapshot does not have them; a pod that they would add is not rehearsed")
	say(len(m.Unbounded) > 0, few(m.Unbounded), "they are not in the copy: a pod that they refuse is not rehearsed")
	say(len(m.notes.bounds) > 0, "bounds of "+few(slices.Sorted(maps.Keys(m.notes.bounds))),
		"quotas and LimitRanges bound only pods, processors and memory in the copy")
	say(m.notes.ratios > 0, cluster.Count(m.notes.ratios, "ratio")+" of limits to requests",
		"LimitRanges are without them, where requests are smaller than in the original")
	say(m.notes.volumes > 0, cluster.Count(m.notes.volumes, "volume"),
		"claims, host folders and claim templates are left out: pods that wait for a volume to move are not rehearsed")
	say(m.notes.execProbes > 0, cluster.Count(m.notes.execProbes, "probe")+" by a command",
		"stand-ins have no such command: these containers are ready at once")
	say(m.notes.hooks > 0, cluster.Count(m.notes.hooks, "container")+" with lifecycle hooks",
		"only a sleep before the stop is kept: how long they drain is not rehearsed")
	say(m.notes.contexts > 0, cluster.Count(m.notes.contexts, "workload")+" with a security context",
		"stand-ins run without them: the effects of privileged pods on their nodes are not rehearsed")
	say(m.notes.extended > 0, cluster.Count(m.notes.extended, "request")+" for devices",
		"they are left out: the scratch cluster has no such devices")
	say(m.notes.annotations > 0, cluster.Count(m.notes.annotations, "annotation"),
		"they are left out: the effects of meshes, secret stores, DNS and fixed addresses are not rehearsed")
	say(m.notes.limits > 0, cluster.Count(m.notes.limits, "container")+" with limits",
		"they are left out: a pod that the network's change slows down or ends at its limit is not rehearsed")
	say(m.notes.gates > 0, cluster.Count(m.notes.gates, "workload")+" with readiness gates",
		"they are left out: nothing sets them for stand-ins")
	say(m.notes.finalizers > 0, "finalizers of the pods of "+cluster.Count(m.notes.finalizers, "workload"),
		"they are left out, since none had kept an ended pod for a minute when the snapshot was taken, and the "+
			"programs that remove them are not in the copy")
	say(len(m.pods) > 0, "your images",
		"stand-ins run the agent's image: whether the nodes can still pull yours is not rehearsed")
	say(m.notes.schedulers > 0, cluster.Count(m.notes.schedulers, "workload")+" with a scheduler of its own",
		"the scratch cluster's default scheduler places stand-ins")
	say(m.notes.runtimes > 0, cluster.Count(m.notes.runtimes, "workload")+" with a RuntimeClass",
		"stand-ins run in the default runtime: sandboxes and virtual machines are not rehearsed")
	say(m.notes.host > 0, cluster.Count(m.notes.host, "workload")+" in the node's PID or IPC namespace",
		"stand-ins run in their own")
	say(len(m.notes.evicting) > 0, "taints that evict pods ("+few(slices.Sorted(maps.Keys(m.notes.evicting)))+")",
		"they become NoSchedule: as NoExecute they would evict the scratch cluster's own pods; a pod that such a "+
			"taint evicts is not rehearsed")
	say(m.notes.sctp > 0, cluster.Count(m.notes.sctp, "SCTP port"), "stand-ins open TCP and UDP ports only")
	say(m.ranges(), "the original's pod addresses",
		"policies with address ranges select other pods in the copy, where the ranges hold pod addresses")
}

// platform is a node's operating system and architecture, "" if it does not say.
func platform(node *corev1.Node) string {
	return strings.Trim(node.Status.NodeInfo.OperatingSystem+"/"+node.Status.NodeInfo.Architecture, "/")
}

// played is how many nodes of the scratch cluster play nodes of the original.
func (m *maker) played() int {
	n := 0
	for _, class := range m.Classes {
		n += len(class.Plays)
	}
	return n
}

// ranges reports whether policies have address ranges.
func (m *maker) ranges() bool {
	for i := range m.original.NetworkPolicies {
		spec := &m.original.NetworkPolicies[i].Spec
		var peers []networkingv1.NetworkPolicyPeer
		for _, rule := range spec.Ingress {
			peers = append(peers, rule.From...)
		}
		for _, rule := range spec.Egress {
			peers = append(peers, rule.To...)
		}
		if slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool { return p.IPBlock != nil }) {
			return true
		}
	}
	return false
}

// inDefault are the objects of the namespace default that a snapshot has, except the Service of the API server.
func inDefault(s *cluster.Snapshot) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	add := func(kind schema.GroupVersionKind, namespace string, object any) {
		if namespace != corev1.NamespaceDefault {
			return
		}
		if one := encode(object, kind); one.GetName() != "kubernetes" || kind.Kind != "Service" {
			all = append(all, one)
		}
	}
	apps := schema.GroupVersion{Group: "apps", Version: "v1"}
	for i := range s.Pods {
		add(corev1.SchemeGroupVersion.WithKind("Pod"), s.Pods[i].Namespace, &s.Pods[i])
	}
	for i := range s.Deployments {
		add(apps.WithKind("Deployment"), s.Deployments[i].Namespace, &s.Deployments[i])
	}
	for i := range s.StatefulSets {
		add(apps.WithKind("StatefulSet"), s.StatefulSets[i].Namespace, &s.StatefulSets[i])
	}
	for i := range s.DaemonSets {
		add(apps.WithKind("DaemonSet"), s.DaemonSets[i].Namespace, &s.DaemonSets[i])
	}
	for i := range s.ReplicaSets {
		add(apps.WithKind("ReplicaSet"), s.ReplicaSets[i].Namespace, &s.ReplicaSets[i])
	}
	for i := range s.Jobs {
		add(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, s.Jobs[i].Namespace, &s.Jobs[i])
	}
	for i := range s.Services {
		add(corev1.SchemeGroupVersion.WithKind("Service"), s.Services[i].Namespace, &s.Services[i])
	}
	for i := range s.Budgets {
		add(policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), s.Budgets[i].Namespace, &s.Budgets[i])
	}
	for i := range s.NetworkPolicies {
		add(networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), s.NetworkPolicies[i].Namespace,
			&s.NetworkPolicies[i])
	}
	for kind := range bounding() {
		for _, one := range s.OtherOf("", kind) {
			add(corev1.SchemeGroupVersion.WithKind(kind), one.GetNamespace(), &one)
		}
	}
	return all
}
