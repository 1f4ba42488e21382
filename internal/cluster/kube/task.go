package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// observeTask never reports a verb as done: the agent itself observes first, and verbs are idempotent. It does not ask
// for the node, either: runTask finds out if that is gone.
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
// older epoch that no agent has begun, which the agent would refuse. It waits for a task that an agent has begun, no
// matter which process created it. If the node was removed from the cluster, there is nothing left to do, and no
// answer.
func (a *Actor) runTask(ctx context.Context, id string, do step.Node) (json.RawMessage, error) {
	client, err := a.tasks()
	if err != nil {
		return nil, err
	}
	name := a.taskName(id, do.Verb)
	news, done := a.answers.expect(name)
	defer done()
	task, err := a.createTask(ctx, client, name, do)
	if apierrors.IsAlreadyExists(err) {
		node, unread := a.node(ctx, do.NodeName)
		if unread != nil {
			return nil, unread
		}
		task, err = a.readTask(ctx, client, name)
		if node == nil {
			if err == nil && task != nil && task.Status.Phase != v1alpha1.TaskDone &&
				task.Status.Phase != v1alpha1.TaskFailed {
				err = withdraw(ctx, client, task)
			}
			return nil, err
		}
		if err == nil && (task == nil || task.Status.Phase != v1alpha1.TaskRunning &&
			(task.Status.Phase != "" || task.Spec.Epoch < a.Epoch)) {
			task, err = a.replaceTask(ctx, client, name, do)
		}
	}
	if err != nil {
		return nil, err
	}
	answer, err := a.awaitTask(ctx, client, *task, news)
	if _, failed := errors.AsType[taskFailed](err); failed && task.Spec.Epoch < a.Epoch {
		// An agent that restarted refuses to do it again.
		if task, err = a.replaceTask(ctx, client, name, do); err != nil {
			return nil, err
		}
		return a.awaitTask(ctx, client, *task, news)
	}
	return answer, err
}

// replaceTask creates a task in the place of the one that has its name, once that is gone.
func (a *Actor) replaceTask(ctx context.Context, client dynamic.ResourceInterface, name string,
	do step.Node) (*v1alpha1.NodeTask, error) {
	for {
		if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		task, err := a.createTask(ctx, client, name, do)
		if !apierrors.IsAlreadyExists(err) {
			return task, err
		}
		if err := a.pause(ctx, poll); err != nil {
			return nil, fmt.Errorf("task %s of an earlier try does not end: %w", name, err)
		}
	}
}

func (a *Actor) createTask(ctx context.Context, client dynamic.ResourceInterface, name string,
	do step.Node) (*v1alpha1.NodeTask, error) {
	object, err := manifest.Task(name, do.NodeName, do.Verb, do.Args, a.Epoch)
	if err != nil {
		return nil, err
	}
	if object, err = client.Create(ctx, object, metav1.CreateOptions{FieldManager: FieldManager}); err != nil {
		return nil, err
	}
	return toTask(object)
}

// taskFailed is an agent's answer that a task failed.
type taskFailed struct{ node, message string }

func (t taskFailed) Error() string { return fmt.Sprintf("the agent of %s says: %s", t.node, t.message) }

// awaitTask waits until the agent has answered.
func (a *Actor) awaitTask(ctx context.Context, client dynamic.ResourceInterface, task v1alpha1.NodeTask,
	news <-chan *v1alpha1.NodeTask) (json.RawMessage, error) {
	name, node := task.Name, task.Spec.Node
	bearing := patience{looked: a.Clock.Now()} // most agents answer before the first look at their node
	for {
		switch task.Status.Phase {
		case v1alpha1.TaskDone:
			a.relieved(&bearing)
			return task.Status.Result, nil
		case v1alpha1.TaskFailed:
			return task.Status.Result, taskFailed{node, task.Status.Message}
		}
		gone, removed := false, false
		err := a.bear(ctx, &bearing, func(ctx context.Context) (trouble, error) {
			found, err := a.node(ctx, node)
			removed = err == nil && found == nil
			if gone = removed && task.Status.Phase == ""; gone {
				return trouble{}, nil
			}
			return lasting(a.down(ctx, node))
		})
		if err != nil {
			if removed {
				_ = withdraw(ctx, client, &task) // else the next try does it, if there is one
			}
			return nil, fmt.Errorf("no answer from the agent of %s: %w", node, err)
		}
		if gone {
			return nil, withdraw(ctx, client, &task)
		}
		latest, err := a.brought(ctx, news, &task)
		if err != nil {
			return nil, fmt.Errorf("no answer from the agent of %s, task %s is %q: %w",
				node, name, task.Status.Phase, err)
		}
		if latest == nil {
			if latest, err = a.readTask(ctx, client, name); err != nil {
				return nil, err
			}
		}
		if latest == nil {
			return nil, fmt.Errorf("task %s was deleted while the agent of %s worked on it", name, node)
		}
		task = *latest
	}
}

// withdraw deletes a task of a node that is gone: a node that gets its name later must not begin it.
func withdraw(ctx context.Context, client dynamic.ResourceInterface, task *v1alpha1.NodeTask) error {
	err := client.Delete(ctx, task.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(task.UID))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// brought waits for what the watch brings of a task, stuckEvery at most, or until it is time to read the task, if the
// watch does not run. It returns nil if the task must be read. A watch may also bring what became of a former task of
// the same name.
func (a *Actor) brought(ctx context.Context, news <-chan *v1alpha1.NodeTask,
	task *v1alpha1.NodeTask) (*v1alpha1.NodeTask, error) {
	if !a.answers.from(task.ResourceVersion) {
		return nil, a.pause(ctx, poll/2)
	}
	timer := time.NewTimer(stuckEvery)
	defer timer.Stop()
	select {
	case latest := <-news:
		if latest == nil || latest.UID != task.UID {
			return nil, a.pause(ctx, poll/2)
		}
		return latest, nil
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, a.Clock.Sleep(ctx, poll/2) // fails as any wait that is ended
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
	return toTask(object)
}

func toTask(object *unstructured.Unstructured) (*v1alpha1.NodeTask, error) {
	var task v1alpha1.NodeTask
	if err := decode(object.Object, &task); err != nil {
		return nil, fmt.Errorf("task %s: %w", object.GetName(), err)
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
