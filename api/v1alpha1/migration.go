package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Migration is one change in progress: its plan, its desired state, and its progress. It is stored in the cluster,
// so any user with the necessary permissions can take over the run.
type Migration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              MigrationSpec   `json:"spec"`
	Status            MigrationStatus `json:"status,omitempty"`
}

// Desire is the state that an operator requests for a migration.
type Desire string

// The possible desires; empty means run.
const (
	DesireRun      Desire = ""
	DesirePause    Desire = "Pause"
	DesireRollback Desire = "Rollback"
)

// MigrationSpec refers to the plan in the cluster, so that a run can be resumed without other files. It is small,
// because it is read and written often.
type MigrationSpec struct {
	// PlanPages are the names of the PlanPages whose data, joined in this order, are the plan as gzipped JSON.
	PlanPages []string `json:"planPages,omitempty"`
	// PlanDigest is the SHA-256 of the joined data, in hex.
	PlanDigest string `json:"planDigest,omitempty"`
	// PlanGzip is the plan as gzipped YAML, in a Migration of a version that wrote no PlanPages.
	PlanGzip []byte `json:"planGzip,omitempty"`
	// PlanHash is the plan's own hash.
	PlanHash string `json:"planHash"`
	// Desire is the state that the engine must reach next.
	Desire Desire `json:"desire,omitempty"`
	// InCluster is true if the controller in the cluster runs this migration. Else a command line does, and the
	// controller leaves it alone.
	InCluster bool `json:"inCluster,omitempty"`
	// Attempt is raised to make a controller try again that stopped because the run needs a person.
	Attempt int `json:"attempt,omitempty"`
	// Windows are when steps may begin; empty means always. A rollback needs no window.
	Windows []Window `json:"windows,omitempty"`
}

// AnnotationAsked of a Migration names the user who asked for its current spec, after the metadata.generation that this
// has: "7 alice". With another generation, it is about an earlier spec. A policy of the chart lets users name only
// themselves.
const AnnotationAsked = "theseus.dev/asked-by"

// MigrationStatus is the progress, for people and `kubectl get`. The journal's pages are authoritative.
type MigrationStatus struct {
	Phase string `json:"phase,omitempty"`
	Step  string `json:"step,omitempty"`
	Done  int    `json:"done,omitempty"`
	Total int    `json:"total,omitempty"`
	// Held is why the run has paused between two steps until that is over by itself: outside-window or frozen; or
	// window-ended, at the end of a window of its plan, until a person continues it; empty if a person or the cluster
	// has paused it.
	Held string `json:"held,omitempty"`
	// Pages is the number of the journal's pages.
	Pages int `json:"pages,omitempty"`
	// Conditions are written by the controller (see ConditionApproved and the others). A Migration that is created for
	// the controller begins with ConditionReconciling. One that a command line runs has none.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Observed is what the controller had read when it wrote the conditions; nil before it has.
	Observed *Observed `json:"observed,omitempty"`
	// Approval is what the condition Approved was decided from; nil before the controller has counted, and where a
	// controller of an earlier release runs.
	Approval *ApprovalCount `json:"approval,omitempty"`
}

// ApprovalCount is which approvals of a plan count, and which are needed. Programs read it; the message of the
// condition Approved is for people. Every field is always written, since a merge would keep one that is left out.
type ApprovalCount struct {
	// Needed is how many users must approve; where only signed approvals count, how many people on the controller's
	// list must sign.
	Needed int `json:"needed"`
	// Counted is how many did.
	Counted int `json:"counted"`
	// SignedOnly is true if only approvals with the signature of a person on that list count.
	SignedOnly bool `json:"signedOnly"`
	// ApprovedBy are the users, or the people on the list, whose approvals count.
	ApprovedBy []string `json:"approvedBy"`
}

// Observed is the part of a Migration's spec that the conditions are about. An observedGeneration cannot tell that: the
// status is no subresource, so every write of the status raises metadata.generation.
type Observed struct {
	Attempt int    `json:"attempt,omitempty"`
	Desire  Desire `json:"desire,omitempty"`
}

// The types of a Migration's conditions. Their messages say what to do.
const (
	// ConditionApproved: enough users have approved exactly this plan.
	ConditionApproved = "Approved"
	// ConditionProgressing: a controller carries the plan out, or rolls it back.
	ConditionProgressing = "Progressing"
	// ConditionPaused: the run has paused between two actions, as requested or because of the cluster.
	ConditionPaused = "Paused"
	// ConditionDegraded: the run does not continue by itself. The message says what a person can do.
	ConditionDegraded = "Degraded"
	// ConditionComplete: the run has ended. True: every step is done. False with the reason RolledBack or Stopped:
	// every step was undone.
	ConditionComplete = "Complete"
)

// The conditions of a Migration and of a Change that tools read which know nothing of this group (kstatus). They follow
// from the other conditions. Exactly one is true.
const (
	// ConditionReconciling: the run is under way, or waits for an approval, a window, or a person who has paused it.
	ConditionReconciling = "Reconciling"
	// ConditionStalled: the object does not reach the requested state until a person acts.
	ConditionStalled = "Stalled"
	// ConditionReady: every step is done.
	ConditionReady = "Ready"
)

// The reasons of conditions.
const (
	// Approved is true because of enough approvals, or false because of too few, or because the policy that proves who
	// approved is missing or is not the one of this version.
	ReasonEnoughApprovals = "EnoughApprovals"
	ReasonTooFewApprovals = "TooFewApprovals"
	ReasonPolicyMissing   = "PolicyMissing"
	ReasonPolicyChanged   = "PolicyChanged"
	// Approved is also false because approvals lack a valid signature where one is demanded, or because the controller
	// has no list of those who may sign, or cannot read it.
	ReasonUnsigned       = "Unsigned"
	ReasonSignersMissing = "SignersMissing"
	ReasonSignersInvalid = "SignersInvalid"
	// Progressing is true while the run goes forward or back, or false because it waits.
	ReasonRunning       = "Running"
	ReasonRollingBack   = "RollingBack"
	ReasonWaiting       = "Waiting" // for approvals, a person, or another migration
	ReasonHeldByAnother = "HeldByAnother"
	ReasonRetrying      = "Retrying"   // after an error that may go away, such as an outage of the API server
	ReasonHandedOver    = "HandedOver" // a command line runs the migration now
	ReasonEnded         = "Ended"
	// Paused is true because a person asked for it, or because of the cluster.
	ReasonAsked     = "Asked"
	ReasonHindered  = "Hindered"
	ReasonNotPaused = "NotPaused"
	// Both Progressing and Paused have these until a window opens, or the freeze ends. Then the run continues by
	// itself.
	ReasonOutsideWindow = "OutsideWindow"
	// The run stands at the end of a window of its plan until a person continues it.
	ReasonWindowEnded = "WindowEnded"
	ReasonFrozen      = "Frozen"
	// Both have this one while a guard measures what others change. `theseus guard stop` ends it.
	ReasonMeasuring = "Measuring"
	// Degraded is true because the run needs a person, or the preconditions of its start do not hold.
	ReasonNeedsPerson   = "NeedsPerson"
	ReasonRightsMissing = "RightsMissing"
	ReasonBlocked       = "Blocked"       // findings of the checks block the change
	ReasonStalePlan     = "StalePlan"     // the cluster has changed since the plan was made
	ReasonWrongCluster  = "WrongCluster"  // the plan was made for another cluster
	ReasonNotSupported  = "NotSupported"  // the controller runs no plans of this kind
	ReasonUnknownFormat = "UnknownFormat" // another release wrote the plan or the journal
	ReasonBadWindows    = "BadWindows"    // a window is not valid, or none is long enough for the next step
	ReasonChangeEdited  = "ChangeEdited"  // its Change was edited or deleted, and the controller makes no plans
	ReasonTooLarge      = "TooLarge"      // the controller has too little memory for the plan
	ReasonHealthy       = "Healthy"

	// Degraded, or Planned is false, because a rule of the cluster refuses what Theseus writes.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	ReasonQuotaExceeded        = "QuotaExceeded"
	ReasonPodSecurity          = "PodSecurity"
	ReasonAdmissionDenied      = "AdmissionDenied"  // by a webhook or a ValidatingAdmissionPolicy
	ReasonImageUnavailable     = "ImageUnavailable" // a node cannot get the image of a pod that the run waits for
	ReasonOldCRDs              = "OldCRDs"          // the CRDs in the cluster are of an older version, and drop fields
	// Complete is true because every step is done, or false.
	ReasonDone       = "Done"
	ReasonRolledBack = "RolledBack" // after a failure
	ReasonStopped    = "Stopped"    // as requested
	ReasonNotYet     = "NotYet"
)

// PlanPage contains a part of the plan of one migration. It is written once, before the Migration that refers to it.
type PlanPage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Migration         string `json:"migration"`
	Page              int    `json:"page"` // from 1 on
	// Data is this part of the gzipped plan.
	Data []byte `json:"data"`
}

// JournalPage contains consecutive journal records of one migration. Paging keeps each object far below the API
// server's limit of 1.5 MiB.
type JournalPage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Migration         string            `json:"migration"`
	Page              int               `json:"page"`
	Records           []json.RawMessage `json:"records"`
}
