package policy

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
)

// unevaluated finds the policies of the cluster that neither profile evaluates, and those that could not be read. It is
// the one judge of that: each of them is a gap, and the verdict of each pod that it may select depends.
func (m *Model) unevaluated(snapshot *cluster.Snapshot, profiles ...Profile) {
	for _, kind := range cluster.PolicyKinds() {
		evaluated := slices.ContainsFunc(profiles, func(p Profile) bool { return p.evaluates(kind) })
		inert := !evaluated && snapshot.PoliciesInert(kind)
		if why := snapshot.PoliciesUnread(kind); why != "" && !inert {
			m.leaveOut(finding.Subject{Kind: "CustomResourceDefinition", Name: kind.Resource + "." + kind.Group},
				"Theseus does not know policies of this kind ("+why+"): they may decide about any pod", scope{})
		}
		if evaluated {
			continue
		}
		for _, object := range snapshot.Policies(kind) {
			ref := finding.Subject{Kind: kind.Kind, Namespace: object.GetNamespace(), Name: object.GetName()}
			if kind.Kind == "NetworkPolicy" || kind.Kind == "ClusterNetworkPolicy" && kind.Group != adminGroup {
				ref.Kind += "." + kind.Group // the name alone is that of another kind
			}
			if inert {
				m.gap(ref, "no agent of its network runs in the cluster, so the policy has no effect")
				continue
			}
			const what = "policies of this kind are not evaluated: it may allow or deny connections of "
			if pods := m.subjectOfAdmin(kind, object); pods != nil {
				m.gapOf(ref, what+"the pods that it selects")
				m.veils = append(m.veils, pods)
				continue
			}
			m.leaveOut(ref, what+reachOf(ref), scope{namespace: ref.Namespace})
		}
	}
	if why := snapshot.DefinitionsUnread(); why != "" {
		m.leaveOut(finding.Subject{Kind: "CustomResourceDefinition", Name: "*"},
			"Theseus does not know which other kinds of policies exist ("+why+"): they may decide about any "+
				"pod", scope{})
	}
	for _, definition := range snapshot.OtherOf("apiextensions.k8s.io", "CustomResourceDefinition") {
		if policy, known := cluster.DefinesPolicy(&definition); policy && !known {
			group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
			// No release reads the objects of such a kind from a cluster. Files may have them, or an empty list.
			if read, _ := snapshot.Has(definition.GetName()); read && len(snapshot.OtherOf(group, kind)) == 0 {
				continue
			}
			m.leaveOut(finding.Subject{Kind: "CustomResourceDefinition", Name: definition.GetName()},
				fmt.Sprintf("%s seems to be a kind of policy that Theseus does not know and does not read: its "+
					"policies may "+
					"decide about any pod", kind), scope{})
		}
	}
}

// adminGroup is the API group of the policies of Kubernetes' network policy API for administrators.
const adminGroup = "policy.networking.k8s.io"

// evaluates reports whether the policies of a kind are evaluated under a profile. A network that has no own kinds
// evaluates none but NetworkPolicy.
func (p Profile) evaluates(kind cluster.PolicyKind) bool {
	return p.Dialect == Calico && cluster.IsCalico(kind.Group) || p.Dialect == Cilium && kind.Group == ciliumGroup
}

func reachOf(ref finding.Subject) string {
	if ref.Namespace != "" {
		return "any pod in " + ref.Namespace
	}
	return "any pod"
}

// subjectOfAdmin returns the pods that a policy of administrators selects; nil if that cannot be told.
func (m *Model) subjectOfAdmin(kind cluster.PolicyKind, object unstructured.Unstructured) *set {
	if kind.Group != adminGroup {
		return nil
	}
	var spec struct {
		Subject struct {
			Namespaces *metav1.LabelSelector `json:"namespaces"`
			Pods       *struct {
				NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
				PodSelector       *metav1.LabelSelector `json:"podSelector"`
			} `json:"pods"`
		} `json:"subject"`
	}
	if decode(object, "spec", &spec) != nil {
		return nil
	}
	var found *set
	var err error
	switch subject := spec.Subject; {
	case subject.Namespaces != nil && subject.Pods == nil:
		found, err = m.podSet("", subject.Namespaces, nil)
	case subject.Pods != nil && subject.Namespaces == nil && subject.Pods.NamespaceSelector != nil &&
		subject.Pods.PodSelector != nil:
		found, err = m.podSet("", subject.Pods.NamespaceSelector, subject.Pods.PodSelector)
	}
	if err != nil {
		return nil
	}
	return found
}

// leaveOut records a policy, or a part of one, that verdicts do not take into account, and which pods it may select:
// all or those of a namespace.
func (m *Model) leaveOut(ref finding.Subject, what string, s scope) {
	m.gapOf(ref, what)
	m.veils = append(m.veils, m.set("veil\x00"+s.namespace, s))
}

// leftOut records a policy that should be evaluated and cannot be.
func (m *Model) leftOut(ref finding.Subject, what string) {
	m.leaveOut(ref, what, scope{namespace: ref.Namespace})
}

func (m *Model) gapOf(ref finding.Subject, what string) { m.note(Gap{ref, what, true}) }

// veiled reports whether a policy that is left out may decide about a pod.
func (m *Model) veiled(e *endpoint) bool {
	return e.class != nil && slices.ContainsFunc(m.veils, func(s *set) bool { return s.hasClass(e.class) == yes })
}

// Unevaluated returns the gaps that are policies which are left out, so that the verdicts of the pods that they may
// select depend.
func (m *Model) Unevaluated() []Gap {
	return slices.DeleteFunc(slices.Clone(m.gaps), func(g Gap) bool { return !g.LeftOut })
}
