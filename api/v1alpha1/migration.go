package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Migration is one change under way: the plan, what was asked of it, and its journal. It is the
// cluster's copy, from which anybody with the rights can take over.
type Migration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              MigrationSpec   `json:"spec"`
	Status            MigrationStatus `json:"status,omitempty"`
}

// Desire is what an operator asks of a running migration.
type Desire string

// The desires; empty means run.
const (
	DesireRun      Desire = ""
	DesirePause    Desire = "Pause"
	DesireRollback Desire = "Rollback"
)

// MigrationSpec says where the plan is, so that the cluster alone is enough to resume. It is small, as it is read and written often.
type MigrationSpec struct {
	// PlanPages are the names of the PlanPages whose data, joined in this order, are the plan as gzipped JSON.
	PlanPages []string `json:"planPages,omitempty"`
	// PlanDigest is the SHA-256 of the joined data, in hex.
	PlanDigest string `json:"planDigest,omitempty"`
	// PlanGzip is the plan as gzipped YAML, in a Migration of a version that wrote no PlanPages.
	PlanGzip []byte `json:"planGzip,omitempty"`
	// PlanHash is the plan's own hash.
	PlanHash string `json:"planHash"`
	// Desire is what the engine is asked to do next.
	Desire Desire `json:"desire,omitempty"`
}

// MigrationStatus is where it stands, for people and `kubectl get`; the journal's pages are the truth.
type MigrationStatus struct {
	Phase string `json:"phase,omitempty"`
	Step  string `json:"step,omitempty"`
	Done  int    `json:"done,omitempty"`
	Total int    `json:"total,omitempty"`
	// Pages counts the journal's pages.
	Pages int `json:"pages,omitempty"`
}

// PlanPage holds a part of the plan of one migration. It is written once, before the Migration that names it.
type PlanPage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Migration         string `json:"migration"`
	Page              int    `json:"page"` // from 1 on
	// Data is this part of the gzipped plan.
	Data []byte `json:"data"`
}

// JournalPage holds a run of records of one migration; pages keep each object far below the
// API server's limit of 1.5 MiB.
type JournalPage struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Migration         string            `json:"migration"`
	Page              int               `json:"page"`
	Records           []json.RawMessage `json:"records"`
}
