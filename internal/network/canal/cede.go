package canal

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// cession is how Canal leaves policy to Calico's own DaemonSet, node by node. Two Felixes on one node would write the
// same chains and own the same interfaces. Felix knows endpoints by their pods in the API, so the one that comes
// enforces policy for Canal's pods as well, and takes over the rules that are in the kernel.
func cession(agent *appsv1.DaemonSet, felix *corev1.Container) *cni.Cession {
	rest := remainder(agent, felix)
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(rest)
	if err != nil {
		return nil // a DaemonSet can be encoded
	}
	delete(object, "status")
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(object, "spec", "template", "metadata", "creationTimestamp")
	// as the API writes it, with numbers as they are decoded
	var keep unstructured.Unstructured
	if err := keep.UnmarshalJSON(cni.Raw(object)); err != nil {
		return nil
	}
	return &cni.Cession{
		To: "calico", Keep: &keep, Selector: cni.SelectorOf(rest),
		Rights: rights(agent), Leave: leave(agent), Return: back(agent), Shared: shared(),
		Settings: felixSettings(felix),
	}
}

// felixSettings are those that Calico's own manifest must have as well, or Felix would work otherwise.
func felixSettings(felix *corev1.Container) map[string]string {
	all := map[string]string{}
	for _, variable := range felix.Env {
		usual := variable.Name == "FELIX_IPTABLESREFRESHINTERVAL" && variable.Value == "60" || // in canal.yaml only
			variable.Name == typhaVar // see untried
		if strings.HasPrefix(variable.Name, "FELIX_") && !usual {
			all[variable.Name] = variable.Value
		}
	}
	return all
}

// rights let Canal's agents make the token for their CNI plugin. The ClusterRole calico-node of Calico's own manifest,
// which takes the place of Canal's, lets them make one for Calico's account only: a pod of Canal that starts again
// would end at once, and running ones could not renew the token.
func rights(agent *appsv1.DaemonSet) []unstructured.Unstructured {
	const version = "rbac.authorization.k8s.io/v1"
	account := cmp.Or(agent.Spec.Template.Spec.ServiceAccountName, "default")
	name := agent.Name + "-cni-token"
	objects := []unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": version, "kind": "ClusterRole", "metadata": map[string]any{"name": name},
		"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"serviceaccounts/token"},
			"resourceNames": []any{account}, "verbs": []any{"create"}}},
	}}, {Object: map[string]any{
		"apiVersion": version, "kind": "ClusterRoleBinding", "metadata": map[string]any{"name": name},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": agent.Namespace, "name": account}},
	}}}
	cni.Label(objects)
	return objects
}

// remainder is a DaemonSet that runs all but Calico's agent on the nodes that Canal has left.
func remainder(agent *appsv1.DaemonSet, felix *corev1.Container) *appsv1.DaemonSet {
	rest := &appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}}
	rest.Namespace, rest.Name = agent.Namespace, agent.Name+"-without-felix"
	rest.Labels = map[string]string{v1alpha1.LabelManaged: "true"}
	rest.Spec.Template = *agent.Spec.Template.DeepCopy()
	pod := &rest.Spec.Template
	pod.Labels = maps.Clone(pod.Labels)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[v1alpha1.LabelManaged] = "true"
	matches := map[string]string{v1alpha1.LabelManaged: "true"}
	if agent.Spec.Selector != nil {
		maps.Copy(matches, agent.Spec.Selector.MatchLabels)
	}
	rest.Spec.Selector = &metav1.LabelSelector{MatchLabels: matches}
	pod.Spec.InitContainers = nil // they install Calico's plugin, which the next network does
	pod.Spec.Containers = slices.DeleteFunc(pod.Spec.Containers,
		func(c corev1.Container) bool { return c.Name == felix.Name })
	mounted := map[string]bool{}
	for _, container := range pod.Spec.Containers {
		for _, mount := range container.VolumeMounts {
			mounted[mount.Name] = true
		}
	}
	pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return !mounted[v.Name] })
	selector := maps.Clone(pod.Spec.NodeSelector)
	if selector == nil {
		selector = map[string]string{}
	}
	selector[v1alpha1.LabelTarget] = "true"
	pod.Spec.NodeSelector = selector
	return rest
}

// elsewhereOnly keeps a pod off nodes with the target's label.
var elsewhereOnly = corev1.NodeSelectorRequirement{Key: v1alpha1.LabelTarget, Operator: corev1.NodeSelectorOpNotIn,
	Values: []string{"true"}}

// left reports whether Canal's pods leave labelled nodes.
func left(agent *appsv1.DaemonSet) bool {
	return slices.ContainsFunc(termsOf(agent), func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions,
			func(r corev1.NodeSelectorRequirement) bool { return r.Key == v1alpha1.LabelTarget })
	})
}

func termsOf(agent *appsv1.DaemonSet) []corev1.NodeSelectorTerm {
	affinity := agent.Spec.Template.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

// leave is the patch by which Canal's pods leave nodes as they get the label. The others are not restarted.
func leave(agent *appsv1.DaemonSet) json.RawMessage {
	var terms []corev1.NodeSelectorTerm
	for _, term := range termsOf(agent) { // one of them must hold
		term.MatchExpressions = append(slices.Clone(term.MatchExpressions), elsewhereOnly)
		terms = append(terms, term)
	}
	if len(terms) == 0 {
		terms = []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{elsewhereOnly}}}
	}
	strategy := map[string]any{"type": "OnDelete", "rollingUpdate": nil}
	return patch(strategy, map[string]any{"nodeAffinity": map[string]any{
		"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{"nodeSelectorTerms": terms}}})
}

// back is the patch by which the DaemonSet is as it was.
func back(agent *appsv1.DaemonSet) json.RawMessage {
	was, affinity := agent.Spec.UpdateStrategy, agent.Spec.Template.Spec.Affinity
	strategy := any(nil)
	if was.Type != "" {
		strategy = map[string]any{"type": was.Type, "rollingUpdate": was.RollingUpdate}
	}
	switch {
	case affinity == nil:
		return patch(strategy, nil)
	case affinity.NodeAffinity == nil:
		return patch(strategy, map[string]any{"nodeAffinity": nil})
	}
	return patch(strategy, map[string]any{"nodeAffinity": map[string]any{
		"requiredDuringSchedulingIgnoredDuringExecution": affinity.NodeAffinity.
			RequiredDuringSchedulingIgnoredDuringExecution}})
}

func patch(strategy, affinity any) json.RawMessage {
	return cni.Raw(map[string]any{"spec": map[string]any{"updateStrategy": strategy,
		"template": map[string]any{"spec": map[string]any{"affinity": affinity}}}})
}

// shared is what both networks leave on nodes, as both run Calico's agent and plugin. Annotations of the Node are not
// in it: Canal has none of Calico's that it would not write again.
func shared() step.Residue {
	return step.Residue{
		Links:        []string{"cali*"},
		Chains:       []string{"cali-*"},
		RuleComments: []string{"cali:*"},
		NFTables:     []string{"ip calico", "ip6 calico"},
		IPSets:       []string{"cali40*", "cali60*"},
		ConfFiles:    []string{"calico-kubeconfig", "calico-tls"},
		Binaries:     []string{"calico", "calico-ipam"},
		Paths: []string{"/var/lib/calico", "/run/calico", "/run/nodeagent", "/var/log/calico",
			cni.Remembered(network)},
	}
}
