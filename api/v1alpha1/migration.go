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

// MigrationSpec refers to the plan in the cluster, so that a run can be resumed without other files. It is small, because
// it is read and written often.
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
}

// MigrationStatus is the progress, for people and `kubectl get`. The journal's pages are authoritative.
type MigrationStatus struct {
	Phase string `json:"phase,omitempty"`
	Step  string `json:"step,omitempty"`
	Done  int    `json:"done,omitempty"`
	Total int    `json:"total,omitempty"`
	// Pages is the number of the journal's pages.
	Pages int `json:"pages,omitempty"`
}

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
