package manifest

import (
	"crypto/sha256"
	"encoding/hex"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

const (
	// ControllerName is the name of the controller's Deployment, ServiceAccount and roles, in Theseus' namespace.
	ControllerName = "theseus-controller"
	// ApprovalPolicyName is the name of the ValidatingAdmissionPolicy for approvals, and of its binding.
	ApprovalPolicyName = "theseus-approvals"
	// LabelMigration has the name of the Migration of an object.
	LabelMigration = "theseus.dev/migration"
)

// Approval makes the approval of a migration's plan by a user, with a signature, or none (""). Its name follows from
// them, so that a user approves a plan once.
func Approval(migration, planHash, user, signature string) *unstructured.Unstructured {
	sum := sha256.Sum256([]byte(user + planHash + signature))
	return convert(&v1alpha1.Approval{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Approval"},
		ObjectMeta: meta(migration+"-"+hex.EncodeToString(sum[:])[:8], LabelMigration, migration),
		Spec:       v1alpha1.ApprovalSpec{Migration: migration, PlanHash: planHash, User: user, Signature: signature},
	})
}

// ApprovalPolicy allows a user to create an Approval only in the user's own name, and only with the permission for the
// verb approve on that Migration. So an Approval proves who approved, without a signature. It returns a
// ValidatingAdmissionPolicy and its binding (Kubernetes v1.30), both called ApprovalPolicyName.
func ApprovalPolicy() []unstructured.Unstructured {
	fail, forbidden := admissionv1.Fail, metav1.StatusReasonForbidden
	return policy(ApprovalPolicyName, admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy:    &fail,
		MatchConstraints: written("Approval"),
		Validations: []admissionv1.Validation{{
			Expression: "request.operation == 'CREATE' || object.spec == oldObject.spec",
			Reason:     &forbidden,
			Message:    "the spec of an approval never changes",
		}, {
			Expression: "request.operation != 'CREATE' || object.spec.user == request.userInfo.username",
			Reason:     &forbidden,
			MessageExpression: "'user \"' + request.userInfo.username + '\" may not approve in the name of " +
				"\"' + object.spec.user + '\"'",
		}, {
			Expression: "request.operation != 'CREATE' || authorizer.group('" + v1alpha1.Group +
				"').resource('" + Plural("Migration") +
				"').namespace('" + v1alpha1.Namespace + "').name(object.spec.migration).check('" +
				v1alpha1.VerbApprove + "').allowed()",
			Reason: &forbidden,
			MessageExpression: "'user \"' + request.userInfo.username + '\" has no permission for the verb " +
				v1alpha1.VerbApprove +
				" on migration \"' + object.spec.migration + '\": theseus rights approve prints a role'",
		}},
	})
}
