package manifest

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// Hold prevents the deletion of the pods with these labels in a namespace, except pods that have AnnotationReplace, are
// terminating, or have terminated. So the DaemonSet controller replaces no pod by itself, as with OnDelete, regardless
// of who writes the DaemonSet and of the controller's user. It returns a ValidatingAdmissionPolicy and its binding
// (Kubernetes v1.30), both called name. Failed pods can be deleted, so that they are recreated.
func Hold(name, namespace string, pods map[string]string) []unstructured.Unstructured {
	fail, equivalent, forbidden := admissionv1.Fail, admissionv1.Equivalent, metav1.StatusReasonForbidden
	scope := admissionv1.NamespacedScope
	about := metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelManaged: "true"}}
	return []unstructured.Unstructured{
		*convert(&admissionv1.ValidatingAdmissionPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1",
				Kind: "ValidatingAdmissionPolicy"},
			ObjectMeta: about,
			Spec: admissionv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: &fail,
				MatchConstraints: &admissionv1.MatchResources{
					MatchPolicy: &equivalent,
					NamespaceSelector: &metav1.LabelSelector{
						MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
					ObjectSelector: &metav1.LabelSelector{MatchLabels: pods},
					ResourceRules: []admissionv1.NamedRuleWithOperations{
						{RuleWithOperations: admissionv1.RuleWithOperations{
							Operations: []admissionv1.OperationType{admissionv1.Delete},
							Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"},
								Resources: []string{"pods"}, Scope: &scope},
						}}},
				},
				Validations: []admissionv1.Validation{{
					Expression: fmt.Sprintf("has(oldObject.metadata.deletionTimestamp) || "+
						"has(oldObject.status) && has(oldObject.status.phase) && oldObject.status.phase in "+
						"['Failed', 'Succeeded'] || has(oldObject.metadata.annotations) && '%s' in "+
						"oldObject.metadata.annotations",
						v1alpha1.AnnotationReplace),
					Reason: &forbidden,
					Message: "theseus replaces these pods node by node, and denies all other deletions until it " +
						"is done; a pod " +
						"may be deleted if it has the annotation " + v1alpha1.AnnotationReplace,
				}},
			},
		}),
		*convert(&admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1",
				Kind: "ValidatingAdmissionPolicyBinding"},
			ObjectMeta: about,
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		}),
	}
}
