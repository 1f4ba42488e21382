package cluster

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// NotServed is why a resource is missing in the snapshot of a live cluster whose API server does not have it.
const NotServed = "not served by this API server"

// live is the source of a resource that was read from an API server.
const live = "live"

// notGiven is why a resource is missing in a snapshot of files.
const notGiven = "not in the input"

// PolicyKind is a kind of objects that may decide which connections of pods are allowed, in addition to NetworkPolicy.
type PolicyKind struct{ Group, Kind, Resource string }

// Is reports whether objects of an API group and a kind are of this kind.
func (k PolicyKind) Is(group, kind string) bool {
	return k.Kind == kind && (k.Group == group || IsCalico(k.Group) && IsCalico(group))
}

// PolicyKinds are the kinds of policies that Theseus knows by name. A network evaluates those of its own groups, and
// Theseus' model those of Calico and Cilium; the others are read so that it can be said that they exist. Calico's
// groups count as one, projectcalico.org.
func PolicyKinds() []PolicyKind {
	return []PolicyKind{
		{"policy.networking.k8s.io", "AdminNetworkPolicy", "adminnetworkpolicies"},
		{"policy.networking.k8s.io", "BaselineAdminNetworkPolicy", "baselineadminnetworkpolicies"},
		{"policy.networking.k8s.io", "ClusterNetworkPolicy", "clusternetworkpolicies"},
		{calicoGroups[0], "GlobalNetworkPolicy", "globalnetworkpolicies"},
		{calicoGroups[0], "NetworkPolicy", "networkpolicies"},
		{"cilium.io", "CiliumClusterwideNetworkPolicy", "ciliumclusterwidenetworkpolicies"},
		{"cilium.io", "CiliumNetworkPolicy", "ciliumnetworkpolicies"},
		{"crd.antrea.io", "ClusterNetworkPolicy", "clusternetworkpolicies"},
		{"crd.antrea.io", "NetworkPolicy", "networkpolicies"},
		{"k8s.ovn.org", "EgressFirewall", "egressfirewalls"},
		{"network.openshift.io", "EgressNetworkPolicy", "egressnetworkpolicies"},
		{"kubeovn.io", "SecurityGroup", "security-groups"},
		{"crd.nsx.vmware.com", "SecurityPolicy", "securitypolicies"},
		{"networking.gke.io", "FQDNNetworkPolicy", "fqdnnetworkpolicies"},
		{"networking.k8s.aws", "ApplicationNetworkPolicy", "applicationnetworkpolicies"},
		{"networking.k8s.aws", "ClusterNetworkPolicy", "clusternetworkpolicies"},
		{"vpcresources.k8s.aws", "SecurityGroupPolicy", "securitygrouppolicies"},
	}
}

// Policies returns the objects of a kind of policies.
func (s *Snapshot) Policies(kind PolicyKind) []unstructured.Unstructured {
	if IsCalico(kind.Group) {
		return s.Calico(kind.Kind)
	}
	return s.OtherOf(kind.Group, kind.Kind)
}

// PoliciesUnread says why the objects of a kind of policies are not known although the cluster may have some; empty if
// they were read, if the cluster does not serve the kind, or if the input is files that do not mention it.
func (s *Snapshot) PoliciesUnread(kind PolicyKind) string {
	if IsCalico(kind.Group) {
		if has, why := s.HasCalico(kind.Resource); !has && why != NotServed && why != notGiven {
			return why
		}
		return ""
	}
	name := kind.Resource + "." + kind.Group
	for _, resource := range []string{name, kind.Group} {
		for _, source := range s.Sources {
			switch {
			case source.Resource != resource || source.Missing == notGiven:
			case source.Missing == NotServed:
				return ""
			default:
				return source.Missing
			}
		}
	}
	// Every release asks a cluster for cilium.io, and earlier ones for few other groups of policies.
	if slices.Contains(s.Sources, Source{Resource: "cilium.io", From: live}) {
		return "the theseus that took this snapshot did not read them"
	}
	if kind.Group != "cilium.io" && len(s.Policies(kind)) == 0 && slices.Contains(s.Definitions(), name) {
		return "its CRD is in the input, and its objects are not"
	}
	return ""
}

// PoliciesInert reports whether policies of a kind certainly decide nothing: a kind of Calico or Cilium in a cluster in
// which no agent of that network runs, such as one left over from an earlier network. That is certain only if the
// DaemonSets and the pods of all namespaces were read from the cluster: each agent, also of a distribution or a mirror,
// has its network's name in its own name or in that of a container or its image (canal runs calico/node).
func (s *Snapshot) PoliciesInert(kind PolicyKind) bool {
	network := "calico"
	if kind.Group == "cilium.io" {
		network = "cilium"
	} else if !IsCalico(kind.Group) {
		return false
	}
	for _, resource := range []string{"daemonsets", "pods"} {
		if !slices.ContainsFunc(s.Sources, func(source Source) bool {
			return source.Resource == resource && source.From == live && source.Missing == ""
		}) {
			return false
		}
	}
	names := func(name string, pod *corev1.PodSpec) bool {
		return strings.Contains(name, network) || slices.ContainsFunc(pod.Containers, func(c corev1.Container) bool {
			return strings.Contains(c.Name, network) || strings.Contains(c.Image, network)
		})
	}
	for i := range s.DaemonSets {
		if names(s.DaemonSets[i].Name, &s.DaemonSets[i].Spec.Template.Spec) {
			return false
		}
	}
	for i := range s.Pods {
		if names(s.Pods[i].Name, &s.Pods[i].Spec) {
			return false
		}
	}
	return true
}

// DefinitionsUnread says why CustomResourceDefinitions are not known; empty if they were read, or if the input is files
// without them.
func (s *Snapshot) DefinitionsUnread() string {
	if has, why := s.Has("customresourcedefinitions"); !has && why != notGiven {
		return why
	}
	return ""
}

// generators are API groups of objects from which a program makes NetworkPolicies, which are in the snapshot:
// ProjectNetworkPolicies of Rancher, TenantNetworkPolicies of KubeGems.
var generators = []string{"management.cattle.io", "gems.kubegems.io"}

// DefinesPolicy reports whether a CustomResourceDefinition is of a kind of policies, to judge by its name, and whether
// the kind is one of PolicyKinds. Staged policies decide nothing, and multi-network policies are about secondary
// interfaces of pods.
func DefinesPolicy(definition *unstructured.Unstructured) (policy, known bool) {
	group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	if slices.ContainsFunc(PolicyKinds(), func(k PolicyKind) bool {
		return k.Kind == kind && (k.Group == group || IsCalico(k.Group) && IsCalico(group))
	}) {
		return true, true
	}
	return strings.HasSuffix(kind, "NetworkPolicy") && kind != "MultiNetworkPolicy" &&
		!strings.HasPrefix(kind, "Staged") && !slices.Contains(generators, group), false
}
