package labels

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/selector/nodes"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// collect finds every place that selects nodes by labels.
func collect(s *cluster.Snapshot) []use {
	var uses []use
	for _, w := range check.Templates(s) {
		of := ofPods(w.Subject, w.Resource, w.Spec, w.Pointer)
		for i := range of {
			if w.Pointer == "" {
				of[i].patch = nil
			}
		}
		uses = append(uses, of...)
	}
	uses = append(uses, calicoUses(s)...)
	uses = append(uses, hostPolicies(s)...)
	uses = append(uses, others(s)...)
	uses = append(uses, gatewayLists(s)...)
	uses = append(uses, attachments(s)...)
	uses = append(uses, serviceUses(s)...)
	return append(uses, webhookUses(s)...)
}

// decode turns an object, or a part of one, into its type.
func decode[T any](object map[string]any, into *T) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object, into)
}

// ofPods returns the uses in one template.
func ofPods(subject finding.Subject, resource string, spec *corev1.PodSpec, at string) []use {
	var uses []use
	if choice := nodes.OfPod(spec, at); len(choice.Keys()) > 0 {
		u := use{subject: subject, resource: resource, field: "node selector",
			text: choice.String(), keys: choice.Keys(), picks: choice.Picks, patch: choice.Patch,
			loss: "its running pods stay there until they are recreated, and new ones are not scheduled there",
			gain: "new pods may be scheduled there"}
		if subject.Kind == "DaemonSet" {
			u.loss, u.always = "the DaemonSet controller deletes its pods there at once", true
			u.gain = "the DaemonSet controller starts its pods there at once"
		}
		uses = append(uses, u)
	}
	for i, spread := range spec.TopologySpreadConstraints {
		if spread.WhenUnsatisfiable == corev1.DoNotSchedule {
			uses = append(uses, topology(subject, resource, spread.TopologyKey,
				fmt.Sprintf("%s/topologySpreadConstraints/%d/topologyKey", at, i)))
		}
	}
	affinity := spec.Affinity
	if affinity == nil {
		return uses
	}
	if affinity.PodAffinity != nil {
		for i, t := range affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			uses = append(uses, topology(subject, resource, t.TopologyKey,
				fmt.Sprintf("%s/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution/%d/topologyKey",
					at, i)))
		}
	}
	if affinity.PodAntiAffinity != nil {
		for i, t := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			u := topology(subject, resource, t.TopologyKey,
				fmt.Sprintf("%s/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/%d/topologyKey",
					at, i))
			u.loss = "pods with anti-affinity may share one of these nodes"
			uses = append(uses, u)
		}
	}
	return uses
}

// topology is a constraint by the domain in a label, which nodes must therefore have.
func topology(subject finding.Subject, resource, key, at string) use {
	return use{
		subject: subject, resource: resource, field: "topologyKey", text: key, keys: []string{key},
		picks: func(rename map[string]string, n *corev1.Node) bool {
			_, ok := n.Labels[cmp.Or(rename[key], key)]
			return ok
		},
		patch: func(rename map[string]string) []nodes.Operation {
			return []nodes.Operation{{Op: "replace", Path: at, Value: cmp.Or(rename[key], key)}}
		},
		loss: "new pods are not scheduled there, since the nodes have no domain",
		gain: "new pods may be scheduled there",
	}
}

// calicoUses returns the node selectors in Calico's own objects.
func calicoUses(s *cluster.Snapshot) []use {
	var uses []use
	for _, place := range []struct {
		kind       string
		path       []string
		loss, gain string
		always     bool
	}{
		{"IPPool", []string{"spec", "nodeSelector"},
			"new pods there get addresses of other pools, or get none and do not start",
			"new pods there may get its addresses", true},
		{"BGPPeer", []string{"spec", "nodeSelector"}, "these nodes lose their peerings", "these nodes peer too", false},
		{"BGPPeer", []string{"spec", "peerSelector"}, "the sessions with these nodes end",
			"sessions with these nodes begin", false},
		{"FelixConfiguration", []string{"spec", "nodeSelector"},
			"Felix falls back to the defaults there, and may restart",
			"Felix applies it there, and may restart", false},
	} {
		for _, object := range s.Calico(place.kind) {
			text, _, _ := unstructured.NestedString(object.Object, place.path...)
			if u, ok := calico(text, "/"+strings.Join(place.path, "/")); ok {
				u.at(object, strings.Join(place.path, "."))
				u.loss, u.gain, u.always = place.loss, place.gain, place.always
				if object.GetLabels()["app.kubernetes.io/managed-by"] == "tigera-operator" {
					u.patch = nil // the operator would revert it: the Installation must be changed instead
				}
				uses = append(uses, u)
			}
		}
	}
	for _, place := range []struct {
		objects    []unstructured.Unstructured
		path       []string // of a list whose entries have a nodeSelector
		loss, gain string
	}{
		{s.OtherOf("operator.tigera.io", "Installation"), []string{"spec", "calicoNetwork", "ipPools"},
			"new pods there get addresses of other pools, or get none and do not start",
			"new pods there may get its addresses"},
		{s.Calico("KubeControllersConfiguration"), []string{"spec", "controllers", "node", "hostEndpoint", "templates"},
			"Calico deletes their host endpoints of this template, and policies no longer apply to them",
			"Calico creates host endpoints of this template for them"},
	} {
		for _, object := range place.objects {
			list, _, _ := unstructured.NestedSlice(object.Object, place.path...)
			for i := range list {
				entry, _ := list[i].(map[string]any)
				text, _ := entry["nodeSelector"].(string)
				if u, ok := calico(text, fmt.Sprintf("/%s/%d/nodeSelector", strings.Join(place.path, "/"), i)); ok {
					u.at(object, fmt.Sprintf("%s[%d].nodeSelector", strings.Join(place.path, "."), i))
					u.loss, u.gain, u.always = place.loss, place.gain, true
					uses = append(uses, u)
				}
			}
		}
	}
	return uses
}

// at sets the object and the field of a use.
func (u *use) at(object unstructured.Unstructured, field string) {
	kind := object.GroupVersionKind()
	u.subject = finding.Subject{Kind: object.GetKind(), Namespace: object.GetNamespace(), Name: object.GetName()}
	u.resource = plural(kind.Kind)
	if kind.Group != "" {
		u.resource += "." + kind.Group
	}
	u.field = field
}

// plural returns the resource name of a kind, as Kubernetes derives it by default.
func plural(kind string) string {
	lower := strings.ToLower(kind)
	if strings.HasSuffix(lower, "y") {
		return strings.TrimSuffix(lower, "y") + "ies"
	}
	return lower + "s"
}

// createdBy is a label of the host endpoints that Calico creates.
const createdBy = "projectcalico.org/created-by"

// hostPolicies returns the selectors of policies for host endpoints that Calico created: those have the labels of
// their nodes.
func hostPolicies(s *cluster.Snapshot) []use {
	automatic := map[string]string{} // who made it, by node
	for _, object := range s.Calico("HostEndpoint") {
		node, _, _ := unstructured.NestedString(object.Object, "spec", "node")
		if by := object.GetLabels()[createdBy]; node != "" && by == "calico-kube-controllers" {
			automatic[node] = by
		}
	}
	if len(automatic) == 0 {
		return nil
	}
	var uses []use
	for _, object := range s.Calico("GlobalNetworkPolicy") {
		for _, place := range policySelectors(object) {
			u, ok := calico(place.text, place.pointer)
			if !ok || len(u.keys) == 0 && u.bad == nil {
				continue
			}
			u.at(object, place.field)
			onNode := u.picks
			u.picks = func(rename map[string]string, n *corev1.Node) bool {
				own, ok := automatic[n.Name]
				if !ok {
					return false
				}
				labelled := corev1.Node{}
				labelled.Labels = maps.Clone(n.Labels)
				labelled.Labels[createdBy] = own
				return onNode(rename, &labelled)
			}
			u.loss = "the policy no longer applies to these hosts: traffic that it allows may be denied, and " +
				"traffic that it denies allowed"
			u.gain, u.always = "the policy applies to these hosts too", true
			uses = append(uses, u)
		}
	}
	return uses
}

type place struct{ text, field, pointer string }

// policySelectors returns the selectors of a policy, including those of its rules.
func policySelectors(object unstructured.Unstructured) []place {
	text, _, _ := unstructured.NestedString(object.Object, "spec", "selector")
	places := []place{{text, "spec.selector", "/spec/selector"}}
	for _, direction := range []string{"ingress", "egress"} {
		rules, _, _ := unstructured.NestedSlice(object.Object, "spec", direction)
		for i := range rules {
			rule, _ := rules[i].(map[string]any)
			for _, side := range []string{"source", "destination"} {
				for _, name := range []string{"selector", "notSelector"} {
					text, _, _ := unstructured.NestedString(rule, side, name)
					places = append(places, place{text, fmt.Sprintf("spec.%s[%d].%s.%s", direction, i, side, name),
						fmt.Sprintf("/spec/%s/%d/%s/%s", direction, i, side, name)})
				}
			}
		}
	}
	return places
}

// others returns the node selectors in the objects of other networks, load balancers and volumes. All are selectors of
// Kubernetes' own kinds.
func others(s *cluster.Snapshot) []use {
	var uses []use
	for _, place := range []struct {
		group, kind string
		path        []string
		list        bool // of selectors, one of which must match
		loss, gain  string
	}{
		{"cilium.io", "CiliumNodeConfig", []string{"spec", "nodeSelector"},
			false, "its settings no longer apply there when the agent restarts",
			"its settings apply there when the agent restarts"},
		{"cilium.io", "CiliumBGPClusterConfig", []string{"spec", "nodeSelector"}, false,
			"the BGP sessions of these nodes end", "these nodes peer too"},
		{"cilium.io", "CiliumBGPPeeringPolicy", []string{"spec", "nodeSelector"}, false,
			"the BGP sessions of these nodes end", "these nodes peer too"},
		{"cilium.io", "CiliumL2AnnouncementPolicy", []string{"spec", "nodeSelector"}, false,
			"these nodes no longer answer for the addresses of Services", "these nodes answer for addresses too"},
		{"cilium.io", "CiliumEgressGatewayPolicy", []string{"spec", "egressGateway", "nodeSelector"},
			false, "these nodes are no longer the gateway, and connections through them break",
			"these nodes may become the gateway"},
		{"cilium.io", "CiliumClusterwideNetworkPolicy", []string{"spec", "nodeSelector"}, false,
			"the policy no longer applies to these hosts", "the policy applies to these hosts too"},
		{"metallb.io", "L2Advertisement", []string{"spec", "nodeSelectors"}, true,
			"these nodes no longer announce the addresses", "these nodes announce the addresses too"},
		{"metallb.io", "BGPAdvertisement", []string{"spec", "nodeSelectors"}, true,
			"these nodes no longer announce the addresses", "these nodes announce the addresses too"},
		{"metallb.io", "BGPPeer", []string{"spec", "nodeSelectors"}, true, "the BGP sessions of these nodes end",
			"these nodes peer too"},
		{"sriovnetwork.openshift.io", "SriovNetworkNodePolicy",
			[]string{"spec", "nodeSelector"}, false, "these nodes lose their virtual functions",
			"the operator drains these nodes and reconfigures their network cards"},
		{"operator.tigera.io", "Installation", []string{"spec", "controlPlaneNodeSelector"},
			false, "Calico's own Deployments are no longer scheduled there",
			"Calico's own Deployments may be scheduled there"},
		{"", "PersistentVolume", []string{"spec", "nodeAffinity", "required"}, false,
			"pods with this volume are not scheduled there", "pods with this volume may be scheduled there"},
	} {
		for _, object := range s.OtherOf(place.group, place.kind) {
			choice := choiceAt(object, place.path, place.list)
			if choice == nil || len(choice.Keys()) == 0 {
				continue
			}
			u := use{text: choice.String(), keys: choice.Keys(), picks: choice.Picks, patch: choice.Patch,
				loss: place.loss, gain: place.gain}
			u.at(object, strings.Join(place.path, "."))
			if place.kind == "PersistentVolume" {
				u.patch = nil // immutable
			}
			uses = append(uses, u)
		}
	}
	return uses
}

// choiceAt reads a node selector in any of its forms: a label selector, a list of them, terms of a node affinity, or a
// map. It is nil for anything else.
func choiceAt(object unstructured.Unstructured, path []string, list bool) *nodes.Selector {
	value, found, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	if !found || err != nil {
		return nil
	}
	at := "/" + strings.Join(path, "/")
	if list {
		entries, _ := value.([]any)
		selectors := make([]metav1.LabelSelector, len(entries))
		for i := range entries {
			entry, _ := entries[i].(map[string]any)
			if decode(entry, &selectors[i]) != nil {
				return nil
			}
		}
		return nodes.AnyOf(selectors, at)
	}
	fields, _ := value.(map[string]any)
	switch {
	case fields["nodeSelectorTerms"] != nil:
		var s corev1.NodeSelector
		if decode(fields, &s) == nil {
			return nodes.OfAffinity(&s, at)
		}
	case fields["matchLabels"] != nil || fields["matchExpressions"] != nil:
		var s metav1.LabelSelector
		if decode(fields, &s) == nil {
			return nodes.OfLabels(s, at)
		}
	default:
		if set, _, err := unstructured.NestedStringMap(object.Object, path...); err == nil {
			return nodes.OfMap(set, at)
		}
	}
	return nil
}
