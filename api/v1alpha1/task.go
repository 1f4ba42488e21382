package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeTask asks the agent of one node for one idempotent verb; the agent answers in Status.
type NodeTask struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              NodeTaskSpec   `json:"spec"`
	Status            NodeTaskStatus `json:"status,omitempty"`
}

// NodeTaskSpec is a verb with its arguments, for one node. It never changes once written.
type NodeTaskSpec struct {
	Node string          `json:"node"`
	Verb string          `json:"verb"`
	Args json.RawMessage `json:"args,omitempty"`
	// Epoch is how often the lock on the cluster had changed hands when its holder created this task. An agent refuses a task of an
	// epoch before that of the lock: its creator holds the lock no more.
	Epoch int64 `json:"epoch,omitempty"`
}

// TaskPhase is how far a task is.
type TaskPhase string

// The phases of a task; empty means not seen by the agent yet.
const (
	TaskRunning TaskPhase = "Running"
	TaskDone    TaskPhase = "Done"
	TaskFailed  TaskPhase = "Failed"
)

// NodeTaskStatus is the agent's answer.
type NodeTaskStatus struct {
	Phase TaskPhase `json:"phase,omitempty"`
	// Changed is false when everything was already as asked.
	Changed bool `json:"changed,omitempty"`
	// Message is one line for a person; on failure it says what failed.
	Message string `json:"message,omitempty"`
	// Result is the verb's own answer, such as an inventory.
	Result     json.RawMessage `json:"result,omitempty"`
	FinishedAt *metav1.Time    `json:"finishedAt,omitempty"`
}
