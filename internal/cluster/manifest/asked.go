package manifest

import (
	"cmp"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

const (
	// AskedPolicyName is the name of the ValidatingAdmissionPolicy for v1alpha1.AnnotationAsked, and of its binding.
	AskedPolicyName = "theseus-asked"
	// AskedRun stands for DesireRun in that annotation.
	AskedRun v1alpha1.Desire = "Run"
)

// Asked is the value of v1alpha1.AnnotationAsked with which a user asks for a desired state.
func Asked(desire v1alpha1.Desire, user string) string {
	return string(cmp.Or(desire, AskedRun)) + " " + user
}

// AskedPolicy allows a user to name no one else as the person who asked for a Migration's desired state. So a change of that state
// must name its user, or no one, or leave a name that is visibly about another state.
func AskedPolicy() []unstructured.Unstructured {
	fail, equivalent, forbidden, scope := admissionv1.Fail, admissionv1.Equivalent, metav1.StatusReasonForbidden, admissionv1.NamespacedScope
	asked := func(of string) string {
		return "has(" + of + ".metadata.annotations) && '" + v1alpha1.AnnotationAsked + "' in " + of + ".metadata.annotations ? " + of + ".metadata.annotations['" + v1alpha1.AnnotationAsked + "'] : ''"
	}
	desire := func(of string) string {
		return "has(" + of + ".spec.desire) && " + of + ".spec.desire != '' ? " + of + ".spec.desire : '" + string(AskedRun) + "'"
	}
	return policy(AskedPolicyName, admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionv1.MatchResources{
			MatchPolicy:       &equivalent,
			NamespaceSelector: &metav1.LabelSelector{},
			ObjectSelector:    &metav1.LabelSelector{},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule: admissionv1.Rule{APIGroups: []string{v1alpha1.Group}, APIVersions: []string{v1alpha1.Version},
					Resources: []string{Plural("Migration")}, Scope: &scope},
			}}},
		},
		Variables: []admissionv1.Variable{
			{Name: "asked", Expression: asked("object")},
			{Name: "desire", Expression: desire("object")},
			{Name: "before", Expression: "oldObject == null ? '' : (" + asked("oldObject") + ")"},
			{Name: "was", Expression: "oldObject == null ? '' : (" + desire("oldObject") + ")"},
		},
		Validations: []admissionv1.Validation{{
			Expression: "variables.asked == '' || variables.asked == variables.desire + ' ' + request.userInfo.username || " +
				"variables.asked == variables.before && (variables.desire == variables.was || !variables.asked.startsWith(variables.desire + ' '))",
			Reason:            &forbidden,
			MessageExpression: "'the annotation " + v1alpha1.AnnotationAsked + " names who asked for the desired state: set it to \"' + variables.desire + ' ' + request.userInfo.username + '\", or remove it'",
		}},
	})
}
