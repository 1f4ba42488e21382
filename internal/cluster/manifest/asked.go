package manifest

import (
	"strconv"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// AskedPolicyName is the name of the ValidatingAdmissionPolicy for v1alpha1.AnnotationAsked, and of its binding.
const AskedPolicyName = "theseus-asked"

// Asked is the value of v1alpha1.AnnotationAsked with which a user asks for the spec of a generation.
func Asked(generation int64, user string) string {
	return strconv.FormatInt(generation, 10) + " " + user
}

// AskedPolicy lets a user who sets v1alpha1.AnnotationAsked name no one else, and no spec but the one that the same
// request leaves. It asks nothing of requests that do not touch the annotation: whatever of the spec they change, an
// earlier name is not about it.
func AskedPolicy() []unstructured.Unstructured {
	fail, forbidden := admissionv1.Fail, metav1.StatusReasonForbidden
	asked := func(of string) string {
		return "has(" + of + ".metadata.annotations) && '" + v1alpha1.AnnotationAsked + "' in " + of +
			".metadata.annotations ? " + of + ".metadata.annotations['" + v1alpha1.AnnotationAsked + "'] : ''"
	}
	return policy(AskedPolicyName, admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    &fail,
		MatchConstraints: written("Migration"),
		Variables: []admissionv1.Variable{
			{Name: "asked", Expression: asked("object")},
			{Name: "before", Expression: "oldObject == null ? '' : (" + asked("oldObject") + ")"},
			{Name: "own", Expression: "string(object.metadata.generation) + ' ' + request.userInfo.username"},
		},
		Validations: []admissionv1.Validation{{
			Expression: "variables.asked == '' || variables.asked == variables.before || " +
				"variables.asked == variables.own",
			Reason: &forbidden,
			MessageExpression: "'the annotation " + v1alpha1.AnnotationAsked +
				" names who asked for this spec: set it to \"' + variables.own + '\", or remove it'",
		}},
	})
}
