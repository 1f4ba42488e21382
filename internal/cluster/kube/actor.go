package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// FieldManager is the name under which Theseus owns fields.
const FieldManager = "theseus"

// poll is how often a condition is checked.
const poll = 250 * time.Millisecond

// lookEvery is the time between two looks of all actions that wait at the same time: together they ask the API server
// 50 times a second, half of what a client may ask.
const lookEvery = 20 * time.Millisecond

// pause sleeps between two looks of an action that waits: at least for d, and longer if many actions wait.
func (a *Actor) pause(ctx context.Context, d time.Duration) error {
	return a.Clock.Sleep(ctx, max(d, time.Duration(a.acting.Load())*lookEvery))
}

// quiet is how long a wait goes on before it is reported: most waits are shorter.
const quiet = time.Second

// Actor executes actions through the Kubernetes API. For work on a node, it creates a task for the node's agent.
type Actor struct {
	Typed   kubernetes.Interface
	Dynamic dynamic.Interface
	Mapper  meta.ResettableRESTMapper
	Clock   engine.Clock
	// Migration is the name of the running migration; node tasks are named after it.
	Migration string
	// Epoch is the lock's epoch when this process took it; agents refuse tasks with an older epoch.
	Epoch int64
	// Measured has the facts that the choice of paths depends on.
	Measured Measured
	// Note is called with a line that says what a long action is waiting for. It may be nil.
	Note func(string)
	// Denied is called each time that a budget denies the eviction of a pod, with what the API server says about the
	// budget. It may be nil.
	Denied func(pod *corev1.Pod, why string)

	turns turns
	moved moved
	// plans and reports are watched; nil if each look lists them.
	plans, reports *watched
	answers        answers
	// acting is the number of actions that are being carried out.
	acting atomic.Int64
	// heard is when nodes were heard of, by all who read their reports.
	heard  loss.Hearing
	looks  looks
	cutOff cutOff
	// sets are the DaemonSets whose pods are restarted, shared by the restarts of many nodes.
	sets sets
	// nodePods are the reads of pods that have the label of their node, shared by the waits of many nodes.
	nodePods nodePods
	// foreign are the nodes whose reports contained results of paths that start on other nodes, with one such path
	// each.
	foreign sync.Map
	// unread are the nodes whose reports could not be read.
	unread sync.Map
}

// Observe implements engine.Actor.
func (a *Actor) Observe(ctx context.Context, action step.Action, before json.RawMessage) (engine.Observation, error) {
	var seen engine.Observation
	var err error
	switch do := action.Do.(type) {
	case step.Apply:
		seen, err = a.observeApply(ctx, action.ID, do)
	case step.Delete:
		seen, err = a.observeDelete(ctx, action.ID, do)
	case step.Patch:
		seen, err = a.observePatch(ctx, action.ID, do)
	case step.Evict:
		a.moved.begin(action.ID)
		seen, err = a.observeEvict(ctx, do.Pods, before)
	case step.Node:
		seen, err = a.observeTask(ctx, action.ID, do)
	case step.Wait:
		seen.Done, _, err = a.holds(ctx, do.Condition)
	case step.Taint, step.Untaint:
		seen, err = a.observeTaint(ctx, action)
	case step.Restart:
		seen, err = a.observeRestart(ctx, do, before)
	case step.Probe:
		seen.Done = false // paths depend on pods; remaking the plan is cheap and idempotent
	default:
		err = fmt.Errorf("action %s: unknown operation %q", action.ID, action.Op())
	}
	return seen, classify(err)
}

// Do implements engine.Actor.
func (a *Actor) Do(ctx context.Context, action step.Action, before json.RawMessage) (json.RawMessage, error) {
	a.acting.Add(1)
	defer a.acting.Add(-1)
	var answer json.RawMessage
	var err error
	switch do := action.Do.(type) {
	case step.Apply:
		_, err = a.apply(ctx, do.Object, false)
	case step.Delete:
		err = a.remove(ctx, do.Ref, do.LeaveEnding)
	case step.Patch:
		err = a.patch(ctx, do)
	case step.Evict:
		answer, err = a.evict(ctx, action.ID, do.Pods, before)
	case step.Node:
		answer, err = a.nodeVerb(ctx, action.ID, do)
	case step.Wait:
		err = a.await(ctx, do.Condition)
	case step.Taint, step.Untaint:
		err = a.taint(ctx, action)
	case step.Restart:
		err = a.restart(ctx, do, before)
	case step.Probe:
		answer, err = a.setPaths(ctx, do.Paths)
	default:
		err = fmt.Errorf("unknown operation %q", action.Op())
	}
	return answer, classify(err)
}

// nodeGone is what is observed of an action on a node that was removed from the cluster: there is nothing left to do,
// so a migration can be rolled back even if a node died permanently.
//
// Only an action that finds nothing on its node asks for the node. To ask before each action would double the requests
// of a change.
func nodeGone() engine.Observation {
	return engine.Observation{Done: true, Before: jsonOf(map[string]string{"node": "not in the cluster any more"})}
}

// resource finds the client for an object's kind. If the kind is unknown, it refreshes discovery, since the CRD may be
// new.
func (a *Actor) resource(apiVersion, kind, namespace string) (dynamic.ResourceInterface, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return nil, err
	}
	mapping, err := a.Mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: kind}, gv.Version)
	if meta.IsNoMatchError(err) {
		a.Mapper.Reset()
		mapping, err = a.Mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: kind}, gv.Version)
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return a.Dynamic.Resource(mapping.Resource).Namespace(namespace), nil
	}
	return a.Dynamic.Resource(mapping.Resource), nil
}

// get reads an object; nil if it, or its kind, does not exist.
func (a *Actor) get(ctx context.Context, ref step.Ref) (*unstructured.Unstructured, error) {
	client, err := a.resource(ref.APIVersion, ref.Kind, ref.Namespace)
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	object, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

func (a *Actor) observeApply(ctx context.Context, id string, do step.Apply) (engine.Observation, error) {
	ref := step.RefOf(do.Object)
	present, err := a.get(ctx, ref)
	if err != nil {
		return engine.Observation{}, err
	}
	if present == nil {
		return engine.Observation{Inverse: inverse(id,
			step.Action{Do: step.Delete{Ref: ref}, Title: "delete " + ref.String()})}, nil
	}
	wanted, err := a.apply(ctx, do.Object, true)
	if err != nil {
		return engine.Observation{}, err
	}
	before := stripped(present)
	if err := keepsSecret(ref, before.Object); err != nil {
		return engine.Observation{}, err
	}
	return engine.Observation{
		Done:    jsonpatch.Equal(jsonOf(before), jsonOf(stripped(wanted))),
		Before:  jsonOf(before),
		Inverse: inverse(id, step.Action{Do: step.Apply{Object: before}, Title: "restore " + ref.String()}),
	}, nil
}

func (a *Actor) apply(ctx context.Context, object *unstructured.Unstructured,
	dry bool) (*unstructured.Unstructured, error) {
	client, err := a.resource(object.GetAPIVersion(), object.GetKind(), object.GetNamespace())
	if err != nil {
		return nil, err
	}
	options := metav1.ApplyOptions{FieldManager: FieldManager, Force: true}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	return client.Apply(ctx, object.GetName(), object, options)
}

func (a *Actor) observeDelete(ctx context.Context, id string, do step.Delete) (engine.Observation, error) {
	present, err := a.get(ctx, do.Ref)
	if err != nil || present == nil {
		return engine.Observation{Done: err == nil}, err
	}
	before := stripped(present)
	if err := keepsSecret(do.Ref, before.Object); err != nil {
		return engine.Observation{}, err
	}
	return engine.Observation{
		Done:    do.LeaveEnding && present.GetDeletionTimestamp() != nil,
		Before:  jsonOf(before),
		Inverse: inverse(id, step.Action{Do: step.Apply{Object: before}, Title: "restore " + do.Ref.String()}),
	}, nil
}

// remove deletes an object and waits until it and its dependents are gone, unless the action does not wait for that.
func (a *Actor) remove(ctx context.Context, ref step.Ref, leaveEnding bool) error {
	client, err := a.resource(ref.APIVersion, ref.Kind, ref.Namespace)
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return err
	}
	policy := metav1.DeletePropagationForeground
	err = client.Delete(ctx, ref.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if leaveEnding {
		return nil
	}
	return a.await(ctx, step.Condition{Is: step.Gone{Ref: ref}})
}

func (a *Actor) observePatch(ctx context.Context, id string, do step.Patch) (engine.Observation, error) {
	present, err := a.get(ctx, do.Ref)
	if err != nil {
		return engine.Observation{}, err
	}
	if present == nil && do.Ref.Kind == "Node" && do.Ref.APIVersion == "v1" {
		return nodeGone(), nil
	}
	if present == nil {
		return engine.Observation{}, fmt.Errorf("%s does not exist", do.Ref)
	}
	now := jsonOf(present)
	after, err := jsonpatch.MergePatch(now, do.Merge)
	if err != nil {
		return engine.Observation{}, fmt.Errorf("patch of %s: %w", do.Ref, err)
	}
	back, err := jsonpatch.CreateMergePatch(after, now)
	if err != nil {
		return engine.Observation{}, err
	}
	var replaced map[string]any
	if err := json.Unmarshal(back, &replaced); err != nil {
		return engine.Observation{}, err
	}
	if err := keepsSecret(do.Ref, replaced); err != nil {
		return engine.Observation{}, err
	}
	return engine.Observation{
		Done:   jsonpatch.Equal(now, after),
		Before: back,
		Inverse: inverse(id, step.Action{Do: step.Patch{Ref: do.Ref, Merge: back},
			Title: "restore " + do.Ref.String()}),
	}, nil
}

func (a *Actor) patch(ctx context.Context, do step.Patch) error {
	client, err := a.resource(do.Ref.APIVersion, do.Ref.Kind, do.Ref.Namespace)
	if err != nil {
		return err
	}
	return a.persist(ctx, func() error {
		_, err := client.Patch(ctx, do.Ref.Name, types.MergePatchType, do.Merge,
			metav1.PatchOptions{FieldManager: FieldManager})
		return err
	})
}

// persist retries a write on conflicts, as other writers such as kubelets and controllers cause them.
func (a *Actor) persist(ctx context.Context, write func() error) error {
	for {
		err := write()
		if !apierrors.IsConflict(err) {
			return err
		}
		if wait := a.Clock.Sleep(ctx, poll/5); wait != nil {
			return fmt.Errorf("other clients keep changing the object: %w", err)
		}
	}
}

// inverse names an action that reverts another one.
func inverse(of string, back step.Action) *step.Action {
	back.ID = of + "/back"
	return &back
}

// stripped is an object without the fields that the server sets, so that it can be compared and applied again.
func stripped(object *unstructured.Unstructured) *unstructured.Unstructured {
	bare := object.DeepCopy()
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp",
		"generation", "selfLink"} {
		unstructured.RemoveNestedField(bare.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(bare.Object, "status")
	return bare
}

// jsonOf encodes plain data, which cannot fail.
func jsonOf(value any) json.RawMessage {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding plain data: %v", err))
	}
	return data
}
