package v1alpha1

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeTask asks the agent of one node to run one idempotent verb; the agent answers in Status.
type NodeTask struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              NodeTaskSpec   `json:"spec"`
	Status            NodeTaskStatus `json:"status,omitempty"`
}

// NodeTaskSpec is a verb with its arguments, for one node. It is immutable.
type NodeTaskSpec struct {
	Node string          `json:"node"`
	Verb string          `json:"verb"`
	Args json.RawMessage `json:"args,omitempty"`
	// Epoch is the number of times that the cluster's lock had changed hands when its holder created this task. An
	// agent refuses a task with an older epoch than the lock's, because its creator no longer holds the lock.
	Epoch int64 `json:"epoch,omitempty"`
}

// TaskPhase is the phase of a task.
type TaskPhase string

// The phases of a task; empty means that the agent has not seen the task yet.
const (
	TaskRunning TaskPhase = "Running"
	TaskDone    TaskPhase = "Done"
	TaskFailed  TaskPhase = "Failed"
)

// NodeTaskStatus is the agent's answer.
type NodeTaskStatus struct {
	Phase TaskPhase `json:"phase,omitempty"`
	// Changed is false if the node was already in the requested state.
	Changed bool `json:"changed,omitempty"`
	// Message is one line for people; after a failure it is the error.
	Message string `json:"message,omitempty"`
	// Result is the verb's result, such as an inventory.
	Result     json.RawMessage `json:"result,omitempty"`
	FinishedAt *metav1.Time    `json:"finishedAt,omitempty"`
}
