package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// taskName is unique for an action of a migration, so that a resumed run finds the task that it created.
func (a *Actor) taskName(id, verb string) string {
	sum := sha256.Sum256([]byte(a.Migration + "\x00" + id))
	return verb + "-" + hex.EncodeToString(sum[:8])
}

func (a *Actor) tasks() (dynamic.ResourceInterface, error) {
	return a.resource(v1alpha1.APIVersion, "NodeTask", v1alpha1.Namespace)
}

// observeTask never reports a verb as done: the agent itself observes first, and verbs are idempotent.
func (a *Actor) observeTask(_ context.Context, id string, do step.Node) (engine.Observation, error) {
	return engine.Observation{Inverse: inverseOf(id, do)}, nil
}

// inverseOf returns the action that reverts a verb, or nil.
func inverseOf(id string, do step.Node) *step.Action {
	verb, ok := step.InverseVerb(do.Verb)
	if !ok {
		return nil
	}
	return inverse(id, step.Action{Do: step.Node{NodeName: do.NodeName, Verb: verb, Args: do.Args},
		Title: fmt.Sprintf("%s on %s", verb, do.NodeName)})
}

// runTask creates a task for a node's agent and waits for the answer. It replaces a finished task, and a task of an
// older epoch that no agent has begun, which the agent would refuse. It waits for a task that an agent has begun,
// whoever created it.
func (a *Actor) runTask(ctx context.Context, id string, do step.Node) (json.RawMessage, error) {
	client, err := a.tasks()
	if err != nil {
		return nil, err
	}
	name := a.taskName(id, do.Verb)
	task, err := a.readTask(ctx, client, name)
	if err != nil {
		return nil, err
	}
	begun := task != nil && task.Status.Phase == v1alpha1.TaskRunning
	if task == nil || !begun && (task.Status.Phase != "" || task.Spec.Epoch < a.Epoch) {
		return a.replaceTask(ctx, client, name, do)
	}
	answer, err := a.awaitTask(ctx, client, name, do.NodeName)
	if _, failed := errors.AsType[taskFailed](err); failed && task.Spec.Epoch < a.Epoch {
		return a.replaceTask(ctx, client, name, do) // an agent that restarted refuses to do it again
	}
	return answer, err
}

// replaceTask replaces the task of this name, if there is one, and waits for the answer.
func (a *Actor) replaceTask(ctx context.Context, client dynamic.ResourceInterface, name string,
	do step.Node) (json.RawMessage, error) {
	if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	object, err := manifest.Task(name, do.NodeName, do.Verb, do.Args, a.Epoch)
	if err != nil {
		return nil, err
	}
	if _, err := client.Create(ctx, object, metav1.CreateOptions{FieldManager: FieldManager}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	return a.awaitTask(ctx, client, name, do.NodeName)
}

// taskFailed is an agent's answer that a task failed.
type taskFailed struct{ node, message string }

func (t taskFailed) Error() string { return fmt.Sprintf("the agent of %s says: %s", t.node, t.message) }

func (a *Actor) awaitTask(ctx context.Context, client dynamic.ResourceInterface, name,
	node string) (json.RawMessage, error) {
	var bearing patience
	for {
		task, err := a.readTask(ctx, client, name)
		switch {
		case err != nil:
			return nil, err
		case task == nil:
			return nil, fmt.Errorf("task %s was deleted while the agent of %s worked on it", name, node)
		case task.Status.Phase == v1alpha1.TaskDone:
			return task.Status.Result, nil
		case task.Status.Phase == v1alpha1.TaskFailed:
			return task.Status.Result, taskFailed{node, task.Status.Message}
		}
		err = a.bear(ctx, &bearing, func(ctx context.Context) (trouble, error) { return lasting(a.down(ctx, node)) })
		if err != nil {
			return nil, fmt.Errorf("no answer from the agent of %s: %w", node, err)
		}
		if err := a.pause(ctx, poll/2); err != nil {
			return nil, fmt.Errorf("no answer from the agent of %s, task %s is %q: %w",
				node, name, task.Status.Phase, err)
		}
	}
}

func (a *Actor) readTask(ctx context.Context, client dynamic.ResourceInterface,
	name string) (*v1alpha1.NodeTask, error) {
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var task v1alpha1.NodeTask
	if err := decode(object.Object, &task); err != nil {
		return nil, fmt.Errorf("task %s: %w", name, err)
	}
	return &task, nil
}

// decode converts through JSON, which keeps raw messages unchanged.
func decode(object map[string]any, into any) error {
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// encode is the inverse of decode.
func encode(from any) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(from)
}
