package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
)

// leases is the kind of the lock.
var leases = coordinationv1.SchemeGroupVersion.WithResource("leases")

// maxMessage bounds the message of a task, in bytes.
const maxMessage = 2000

// lockAway is how long a task waits for an API server that does not answer with the lock: as long as a run waits for
// the API server. A task that is refused earlier would stop the run.
const lockAway = 5 * time.Minute

// tasks does the node's tasks, one after the other in the order in which they were made. Tasks that a
// former agent left running are run again: verbs are idempotent.
func (a *Agent) tasks(ctx context.Context) {
	latest := make(chan []v1alpha1.NodeTask, 1)
	options := metav1.ListOptions{LabelSelector: manifest.LabelNode + "=" + manifest.NodeValue(a.Name)}
	go func() { // ends with the context
		defer close(latest)
		a.follow(ctx, "tasks", a.resource("NodeTask"), options, func(objects map[string]*unstructured.Unstructured) {
			open := a.open(objects)
			select { // only the latest list counts
			case <-latest:
			default:
			}
			latest <- open
		})
	}()
	answered := map[types.UID]bool{}
	for open := range latest {
		for _, task := range open {
			if ctx.Err() == nil && !answered[task.UID] {
				answered[task.UID] = a.run(ctx, task)
			}
		}
	}
}

// open are the tasks that this node has still to do, oldest first.
func (a *Agent) open(objects map[string]*unstructured.Unstructured) []v1alpha1.NodeTask {
	var open []v1alpha1.NodeTask
	for _, object := range objects {
		var task v1alpha1.NodeTask
		if err := decode(object, &task); err != nil {
			a.Log.Error("a task cannot be read", "task", object.GetName(), "error", err)
			continue
		}
		phase := task.Status.Phase
		if task.Spec.Node == a.Name && task.DeletionTimestamp == nil &&
			phase != v1alpha1.TaskDone && phase != v1alpha1.TaskFailed {
			open = append(open, task)
		}
	}
	slices.SortFunc(open, func(x, y v1alpha1.NodeTask) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	return open
}

// run does one task and publishes its answer. It returns false if the task was withdrawn before it began, while it
// waited for the lock or for the tasks before it.
func (a *Agent) run(ctx context.Context, task v1alpha1.NodeTask) bool {
	log := a.Log.With("task", task.Name, "verb", task.Spec.Verb)
	if err := a.outdated(ctx, task); err != nil {
		log.Error("task refused", "error", err)
		a.answerAtLast(ctx, task, v1alpha1.NodeTaskStatus{Phase: v1alpha1.TaskFailed, Message: err.Error(),
			FinishedAt: new(metav1.Now())})
		return true
	}
	if err := a.answer(ctx, task, v1alpha1.NodeTaskStatus{Phase: v1alpha1.TaskRunning}); withdrawn(err) {
		log.Warn("the task was withdrawn", "error", err)
		return false
	} else if err != nil {
		log.Warn("cannot say that the task is running", "error", err) // it runs all the same
	}
	bounded, cancel := context.WithTimeout(ctx, verbTimeout)
	got, err := a.Node.Do(bounded, task.Spec.Verb, task.Spec.Args)
	cancel()
	if ctx.Err() != nil {
		return true // the agent ends; the next one runs the task again
	}
	now := metav1.Now()
	status := v1alpha1.NodeTaskStatus{
		Phase: v1alpha1.TaskDone, Changed: got.Changed, Message: got.Message, Result: got.Result, FinishedAt: &now,
	}
	if err != nil {
		status.Phase, status.Message = v1alpha1.TaskFailed, strings.ReplaceAll(err.Error(), "\n", "; ")
		log.Error("task failed", "error", err)
	} else {
		log.Info("task done", "changed", got.Changed, "message", got.Message)
	}
	if len(status.Message) > maxMessage {
		status.Message = status.Message[:maxMessage] + "..."
	}
	a.answerAtLast(ctx, task, status)
	return true
}

// withdrawn is true if the error of an answer says that its task is gone. A task that was made again under the name has
// another UID, which is an invalid change.
func withdrawn(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
}

// outdated refuses a task of an older epoch than the lock's: its creator lost the lock to another process, and may not
// know yet.
func (a *Agent) outdated(ctx context.Context, task v1alpha1.NodeTask) error {
	limits := outage.Limits{Away: lockAway, Refused: outage.Bound}.Reading()
	var lock *unstructured.Unstructured
	err := outage.Retry(ctx, limits, nil, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		lock, err = a.Client.Resource(leases).Namespace(v1alpha1.Namespace).Get(ctx,
			manifest.Lease, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot tell whether the task is outdated: read the lock: %w", err)
	}
	epoch, _, err := unstructured.NestedInt64(lock.Object, "spec", "leaseTransitions")
	if err == nil && task.Spec.Epoch < epoch {
		err = fmt.Errorf("the task is outdated: it was created in epoch %d of the lock, which another process holds "+
			"now, in epoch %d", task.Spec.Epoch, epoch)
	}
	return err
}

// answerAtLast retries the publication until it succeeds or the task is gone.
func (a *Agent) answerAtLast(ctx context.Context, task v1alpha1.NodeTask, status v1alpha1.NodeTaskStatus) {
	trouble := trouble{log: a.Log.With("task", task.Name), what: "cannot publish the answer"}
	for ; ctx.Err() == nil; _ = outage.Sleep(ctx, retryInterval) {
		err := a.answer(ctx, task, status)
		trouble.note(ctx, err)
		if err == nil || withdrawn(err) {
			return
		}
	}
}

// answer writes a task's status, and can write nothing else of it. The test of the UID makes it fail on another task of
// the same name.
func (a *Agent) answer(ctx context.Context, task v1alpha1.NodeTask, status v1alpha1.NodeTaskStatus) error {
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": task.UID},
		{"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = a.resource("NodeTask").Patch(ctx, task.Name, types.JSONPatchType, patch,
		metav1.PatchOptions{FieldManager: manifest.AgentName}, "status")
	return err
}
