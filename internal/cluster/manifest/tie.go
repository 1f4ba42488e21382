package manifest

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// tie allows an agent to write only the status of its own node's tasks, and its own node's report. RBAC cannot express
// that, because all agents share one ServiceAccount. The API server knows the node from the pod to which the token is
// bound, which the node cannot change. It returns a ValidatingAdmissionPolicy and its binding, both called AgentName.
//
// The name of the claim:
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#additional-metadata-in-pod-bound-tokens
func tie() []unstructured.Unstructured {
	fail, exact, forbidden := admissionv1.Fail, admissionv1.Equivalent, metav1.StatusReasonForbidden
	scope := admissionv1.NamespacedScope
	return policy(AgentName, admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionv1.MatchResources{
			MatchPolicy: &exact,
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule: admissionv1.Rule{APIGroups: []string{v1alpha1.Group}, APIVersions: []string{v1alpha1.Version},
					Resources: []string{"nodetasks/status", "probereports"}, Scope: &scope},
			}}},
		},
		MatchConditions: []admissionv1.MatchCondition{{Name: "agents",
			Expression: "request.userInfo.username == 'system:serviceaccount:" +
				v1alpha1.Namespace + ":" + AgentName + "'"}},
		Variables: []admissionv1.Variable{
			{Name: "node",
				Expression: "request.userInfo.extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')"},
			{Name: "of",
				Expression: "request.resource.resource == 'nodetasks' ? object.spec.node : object.metadata.name"},
		},
		Validations: []admissionv1.Validation{{
			Expression: "variables.node != '' && variables.node == variables.of",
			Reason:     &forbidden,
			MessageExpression: "'the agent of node \"' + variables.node + '\" may not write for " +
				"node \"' + variables.of + '\"'",
		}},
	})
}

// written matches the objects of a kind of Theseus' own that a request creates or updates.
func written(kind string) *admissionv1.MatchResources {
	equivalent, scope := admissionv1.Equivalent, admissionv1.NamespacedScope
	return &admissionv1.MatchResources{
		MatchPolicy:       &equivalent,
		NamespaceSelector: &metav1.LabelSelector{},
		ObjectSelector:    &metav1.LabelSelector{},
		ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule: admissionv1.Rule{APIGroups: []string{v1alpha1.Group}, APIVersions: []string{v1alpha1.Version},
				Resources: []string{Plural(kind)}, Scope: &scope},
		}}},
	}
}

// policy returns a ValidatingAdmissionPolicy and the binding that enforces it everywhere, both with this name.
func policy(name string, spec admissionv1.ValidatingAdmissionPolicySpec) []unstructured.Unstructured {
	about := meta(name)
	about.Namespace = ""
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: kind}
	}
	return []unstructured.Unstructured{
		*convert(&admissionv1.ValidatingAdmissionPolicy{TypeMeta: kind("ValidatingAdmissionPolicy"),
			ObjectMeta: about, Spec: spec}),
		*convert(&admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: kind("ValidatingAdmissionPolicyBinding"), ObjectMeta: about,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		}),
	}
}
