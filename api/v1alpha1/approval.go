package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Approval says that a user has approved one plan of a migration. The API server never lets its spec change. From
// Kubernetes 1.30 on, it admits it only from that user (manifest.ApprovalPolicy); before, only a signature proves who
// approved.
type Approval struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ApprovalSpec `json:"spec"`
}

// VerbApprove is the verb on migrations that a user needs to create an Approval.
const VerbApprove = "approve"

// ApprovalSpec names what was approved, and by whom.
type ApprovalSpec struct {
	// Migration is the name of the Migration.
	Migration string `json:"migration"`
	// PlanHash is the hash of the plan, which the user has seen.
	PlanHash string `json:"planHash"`
	// User is the name of the user as the API server knows it.
	User string `json:"user"`
	// Signature is an OpenSSH signature (ssh-keygen -Y sign -n theseus) of the text of PlanHash, without a line break
	// at its end; several may follow one another. A controller that demands signatures counts those who signed.
	Signature string `json:"signature,omitempty"`
}
