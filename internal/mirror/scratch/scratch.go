// Package scratch makes a copy of a cluster (package rehearsal) on a scratch cluster, waits until its pods are ready,
// and removes it.
//
// Everything can be repeated: objects are found by their label, and an annotation of a node has its former labels and
// taints.
package scratch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Scratch is a scratch cluster.
type Scratch struct {
	Client *kube.Client
	// Note is told what is waited for.
	Note func(string)
}

// patience bounds the retries of one call while the API server is unavailable, or refuses.
var patience = outage.Limits{Away: time.Minute, Refused: 5 * time.Second}

// call retries a call while the API server is unavailable.
func (s *Scratch) call(ctx context.Context, do func(context.Context) error) error {
	return s.callWithin(ctx, patience, do)
}

func (s *Scratch) callWithin(ctx context.Context, limits outage.Limits, do func(context.Context) error) error {
	return outage.Retry(ctx, limits, func(err error) { s.Note("waiting for the API server: " + err.Error()) },
		func(ctx context.Context) error {
			ctx, cancel := s.Client.Call(ctx)
			defer cancel()
			return do(ctx)
		})
}

// May refuses a user who lacks permissions to make the copy, to relabel nodes and evict pods, or to remove it, and
// names them.
func (s *Scratch) May(ctx context.Context, made *rehearsal.Copy, relabels ...rehearsal.Relabel) error {
	var all step.Step
	for _, object := range slices.Concat(made.Network.All(), made.All()) {
		all.Actions = append(all.Actions, step.Action{Do: step.Apply{Object: object}})
	}
	for _, node := range made.Nodes {
		all.Actions = append(all.Actions,
			step.Action{Do: step.Patch{Ref: step.Ref{APIVersion: "v1", Kind: "Node", Name: node.Name}}})
	}
	for _, one := range relabels {
		all.Actions = append(all.Actions,
			step.Action{Do: step.Patch{Ref: step.Ref{APIVersion: "v1", Kind: "Node", Name: one.Node}}})
	}
	if len(relabels) > 0 { // Renew
		all.Actions = append(all.Actions, step.Action{Do: step.Evict{}})
	}
	rights, err := kube.Rights(ctx, s.Client, nil, []step.Step{all})
	if err != nil {
		return err
	}
	lacks := map[string]bool{}
	for _, right := range rights {
		if !right.Allowed {
			lacks[right.Verb+" "+schema.GroupResource{Group: right.Group, Resource: right.Resource}.String()] = true
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	var names []string
	for name := range lacks {
		names = append(names, name)
	}
	slices.Sort(names)
	return &cni.Refusal{Message: "this user may not, on the scratch cluster: " + strings.Join(names, ", "),
		Hint: "use a cluster administrator of the scratch cluster"}
}

// Unchanged refuses a scratch cluster whose network an earlier rehearsal installed or changed: it may have been
// interrupted before it made anything else.
func (s *Scratch) Unchanged(ctx context.Context) error {
	parts, err := s.Find(ctx)
	if err != nil {
		return fmt.Errorf("whether an earlier rehearsal left anything on the scratch cluster: %w", err)
	}
	var kept []string
	for _, part := range slices.Concat(parts.Network, parts.Changed) {
		kept = append(kept, part.String())
	}
	if len(kept) > 0 {
		return rehearsal.Kept(kept)
	}
	return nil
}

// Empty refuses a scratch cluster that has objects of users which snapshots do not have: claims and CronJobs anywhere,
// and Secrets and ConfigMaps in the namespace default.
func (s *Scratch) Empty(ctx context.Context) error {
	var found []string
	for _, one := range []struct{ group, version, resource, kind, namespace string }{
		{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", ""}, {"batch", "v1", "cronjobs", "CronJob", ""},
		{"", "v1", "secrets", "Secret", metav1.NamespaceDefault},
		{"", "v1", "configmaps", "ConfigMap", metav1.NamespaceDefault},
	} {
		var list *unstructured.UnstructuredList
		if err := s.call(ctx, func(ctx context.Context) (err error) {
			resource := s.Client.Dynamic.Resource(schema.GroupVersionResource{Group: one.group,
				Version: one.version, Resource: one.resource})
			list, err = resource.Namespace(one.namespace).List(ctx, metav1.ListOptions{Limit: 100})
			return err
		}); err != nil {
			return fmt.Errorf("whether the scratch cluster is empty: %s: %w", one.resource, err)
		}
		for i := range list.Items {
			item := &list.Items[i]
			if kind, _, _ := unstructured.NestedString(item.Object,
				"type"); kind != string(corev1.SecretTypeServiceAccountToken) && item.GetName() != "kube-root-ca.crt" {
				found = append(found, named(one.kind, item.GetNamespace(), item.GetName()))
			}
		}
	}
	if len(found) > 0 {
		return rehearsal.NotEmpty(found)
	}
	return nil
}

// Make changes the nodes and makes the objects. An object that is there already, and that this copy did not make, is an
// error: it is neither changed nor removed.
func (s *Scratch) Make(ctx context.Context, made *rehearsal.Copy) error {
	for _, node := range made.Nodes {
		if _, err := s.patch(ctx, node.Name, node.Patch); err != nil {
			return fmt.Errorf("Node %s: %w", node.Name, err)
		}
	}
	return s.create(ctx, made.Of, made.Objects)
}

// Hook makes the webhook configurations of a copy whose pods are ready: from then on, the API server asks them.
func (s *Scratch) Hook(ctx context.Context, made *rehearsal.Copy) error {
	return s.create(ctx, made.Of, made.Webhooks)
}

// countAtMost bounds the wait for the controller that counts what a new quota bounds.
const countAtMost = time.Minute

// Bound makes the quotas of a copy whose pods are ready, with the bounds that rehearsal.Copy.Bound decided on, and
// waits until the scratch cluster enforces them.
func (s *Scratch) Bound(ctx context.Context, made *rehearsal.Copy) error {
	if err := s.create(ctx, made.Of, made.Bounding()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, countAtMost)
	defer cancel()
	for _, quota := range made.Quotas {
		for counted := false; !counted; {
			var live *corev1.ResourceQuota
			if err := s.call(ctx, func(ctx context.Context) (err error) {
				live, err = s.Client.Typed.CoreV1().ResourceQuotas(quota.Namespace).Get(ctx, quota.Name,
					metav1.GetOptions{})
				return err
			}); err != nil {
				return err
			}
			counted = equality.Semantic.DeepEqual(live.Spec.Hard, live.Status.Hard)
			if !counted && outage.Sleep(ctx, lookAgain/4) != nil {
				return &cni.Refusal{Message: fmt.Sprintf("%s: nothing counted its pods within %s",
					named("ResourceQuota", quota.Namespace, quota.Name), countAtMost),
					Hint: "kubectl get resourcequotas shows it; kube-controller-manager counts them"}
			}
		}
	}
	return nil
}

func (s *Scratch) create(ctx context.Context, of string, all []*unstructured.Unstructured) error {
	for _, object := range all {
		resource, err := s.resource(object)
		if err != nil {
			return err
		}
		if object, err = s.addressed(ctx, object); err != nil {
			return err
		}
		create := func() error {
			return s.call(ctx, func(ctx context.Context) error {
				_, err := resource.Create(ctx, object, metav1.CreateOptions{FieldManager: rehearsal.Manager})
				return err
			})
		}
		err = create()
		for end := time.Now().Add(accountAtMost); unborn(err) && time.Now().Before(end) &&
			outage.Sleep(ctx, lookAgain) == nil; {
			err = create()
		}
		if apierrors.IsAlreadyExists(err) {
			err = s.taken(ctx, resource, object, of)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", named(object.GetKind(), object.GetNamespace(), object.GetName()), err)
		}
	}
	return nil
}

// addressed is an object whose stand-ins ask Services that are there, by their addresses.
func (s *Scratch) addressed(ctx context.Context, object *unstructured.Unstructured) (*unstructured.Unstructured,
	error) {
	object = object.DeepCopy()
	return object, rehearsal.Address(object, func(service string) (string, error) {
		namespace, name, _ := strings.Cut(service, "/")
		var live *corev1.Service
		err := s.call(ctx, func(ctx context.Context) (err error) {
			live, err = s.Client.Typed.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
			return err
		})
		if err != nil {
			return "", fmt.Errorf("the address of %s: %w", named("Service", namespace, name), err)
		}
		return live.Spec.ClusterIP, nil
	})
}

func named(kind, namespace, name string) string {
	return kind + " " + strings.TrimPrefix(namespace+"/"+name, "/")
}

// taken is the error for an object that is there already; nil if this copy made it, when its answer was lost.
func (s *Scratch) taken(ctx context.Context, resource dynamic.ResourceInterface,
	object *unstructured.Unstructured, of string) error {
	var live *unstructured.Unstructured
	if err := s.call(ctx, func(ctx context.Context) (err error) {
		live, err = resource.Get(ctx, object.GetName(), metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	if rehearsal.Made(live) && live.GetLabels()[rehearsal.MarkLabel] == of && live.GetDeletionTimestamp() == nil {
		return nil
	}
	return &cni.Refusal{Message: "the scratch cluster has such an object already, which this rehearsal did not make; " +
		"it stays as it is", Hint: "name another scratch cluster with --context, or delete the object there"}
}

// patch changes a node by what make decides from the node as it is, again if it has changed meanwhile. It reports
// whether it did.
func (s *Scratch) patch(ctx context.Context, name string,
	decide func(*corev1.Node) ([]byte, error)) (done bool, err error) {
	nodes := s.Client.Typed.CoreV1().Nodes()
	for tries := 0; ; tries++ {
		var patch []byte
		err := s.call(ctx, func(ctx context.Context) error {
			live, err := nodes.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if patch, err = decide(live); err != nil || patch == nil {
				return err
			}
			_, err = nodes.Patch(ctx, name, types.MergePatchType, patch,
				metav1.PatchOptions{FieldManager: rehearsal.Manager})
			return err
		})
		if !apierrors.IsConflict(err) || tries == mostConflicts || outage.Sleep(ctx, lookAgain/4) != nil {
			return err == nil && patch != nil, err
		}
	}
}

// mostConflicts bounds how often a node is read again because it has changed.
const mostConflicts = 20

// accountAtMost bounds the wait for the ServiceAccount that a controller makes in a new namespace.
const accountAtMost = 30 * time.Second

// unborn reports whether a pod was refused because its namespace has no ServiceAccount yet.
func unborn(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "error looking up service account")
}

func (s *Scratch) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := object.GroupVersionKind()
	mapping, err := s.Client.Mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if object.GetNamespace() == "" {
		return s.Client.Dynamic.Resource(mapping.Resource), nil
	}
	return s.Client.Dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
}

// lookAgain is the time between two looks at what is waited for.
const lookAgain = time.Second

// unplacedShare is the part of the wait after which pods that find no node are taken to find none, if they are all that
// is missing.
const unplacedShare = 5

// Ready waits until the pods of the copy are ready, at most so long. It returns the workloads whose pods find no node,
// with the scheduler's reason: the original may be like that, too. Pods that do not start for other reasons are an
// error.
func (s *Scratch) Ready(ctx context.Context, made *rehearsal.Copy,
	atMost time.Duration) (unplaced []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	said, since := "", time.Now()
	for {
		waits, err := s.waits(ctx, made)
		if err == nil && len(waits) == 0 {
			return nil, nil
		}
		if err != nil || slices.ContainsFunc(waits, func(w wait) bool { return !w.unplaced }) {
			since = time.Now()
		} else if time.Since(since) > atMost/unplacedShare {
			break
		}
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		if text := cluster.Count(len(waits), "workload") + " not ready yet"; err == nil && text != said {
			s.Note(text)
			said = text
		}
		if outage.Sleep(ctx, lookAgain) == nil {
			continue
		}
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, ctx.Err()
		}
		break
	}
	late, end := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer end()
	waits, err := s.waits(late, made)
	if err != nil {
		return nil, err
	}
	var stuck []string
	for _, w := range waits {
		if w.unplaced {
			unplaced = append(unplaced, w.name+": "+w.why)
		} else {
			stuck = append(stuck, w.name+": "+w.why)
		}
	}
	if len(stuck) > 0 {
		return nil, &cni.Refusal{Message: fmt.Sprintf("the copy is not ready after %s: %s",
			atMost, strings.Join(stuck[:min(3, len(stuck))], "; ")),
			Hint: "kubectl describe pods says why; the nodes must be able to pull the agent's image, and " +
				"--wait sets how long to wait"}
	}
	return unplaced, nil
}

// wait is a workload that is not ready.
type wait struct {
	name, why string
	unplaced  bool
}

// waits lists the copy's workloads that are not ready.
func (s *Scratch) waits(ctx context.Context, made *rehearsal.Copy) ([]wait, error) {
	var all []wait
	for _, object := range made.Objects {
		if !slices.Contains([]string{"Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Job", "Pod"},
			object.GetKind()) {
			continue
		}
		resource, err := s.resource(object)
		if err != nil {
			return nil, err
		}
		var live *unstructured.Unstructured
		if err := s.call(ctx, func(ctx context.Context) (err error) {
			live, err = resource.Get(ctx, object.GetName(), metav1.GetOptions{})
			return err
		}); err != nil {
			return nil, err
		}
		switch {
		case !ready(live):
		case idle(made, live):
			all = append(all, wait{named(object.GetKind(), object.GetNamespace(), object.GetName()),
				"it selects no node of the copy", true})
			continue
		default:
			continue
		}
		w := wait{name: object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()}
		if w.why, w.unplaced, err = s.why(ctx, live); err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// idle reports whether a DaemonSet that has pods in the original has none in the copy.
func idle(made *rehearsal.Copy, live *unstructured.Unstructured) bool {
	desired, _, _ := unstructured.NestedInt64(live.Object, "status", "desiredNumberScheduled")
	return live.GetKind() == "DaemonSet" && desired == 0 &&
		slices.ContainsFunc(made.Workloads, func(w rehearsal.Workload) bool {
			return w.Kind == "DaemonSet" && w.Namespace == live.GetNamespace() &&
				w.Name == live.GetName() && w.Original > 0
		})
}

// ready reports whether all pods of a workload are ready, by its status.
func ready(live *unstructured.Unstructured) bool {
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(live.Object, path...)
		return n
	}
	if observed, ok, _ := unstructured.NestedInt64(live.Object, "status",
		"observedGeneration"); live.GetKind() != "Job" && live.GetKind() != "Pod" &&
		(!ok || observed < live.GetGeneration()) {
		return false
	}
	switch live.GetKind() {
	case "DaemonSet":
		return number("status", "numberReady") == number("status", "desiredNumberScheduled")
	case "Job":
		return number("status", "ready") >= number("spec", "parallelism")
	case "Pod":
		conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(one any) bool {
			fields, _ := one.(map[string]any)
			return fields["type"] == "Ready" && fields["status"] == "True"
		})
	}
	return number("status", "readyReplicas") >= number("spec", "replicas")
}

// why says why the pods of a workload are not ready; unplaced is true if the only reason is that they find no node.
func (s *Scratch) why(ctx context.Context, live *unstructured.Unstructured) (why string, unplaced bool, err error) {
	var pods *corev1.PodList
	selector, _, _ := unstructured.NestedMap(live.Object, "spec", "selector")
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + live.GetName()}
	if live.GetKind() != "Pod" {
		encoded, err := json.Marshal(selector)
		if err != nil {
			return "", false, err
		}
		var labels metav1.LabelSelector
		if err := json.Unmarshal(encoded, &labels); err != nil {
			return "", false, err
		}
		options = metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&labels)}
	}
	if err := s.call(ctx, func(ctx context.Context) (err error) {
		pods, err = s.Client.Typed.CoreV1().Pods(live.GetNamespace()).List(ctx, options)
		return err
	}); err != nil {
		return "", false, err
	}
	why = "it has no pods"
	if len(pods.Items) > 0 {
		why = "it lacks pods: it has only " + cluster.Count(len(pods.Items), "pod")
	}
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, one := range conditions { // such as a quota
		if fields, _ := one.(map[string]any); fields["type"] == "ReplicaFailure" && fields["status"] == "True" {
			return fmt.Sprint(fields["message"]), false, nil
		}
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
				why, unplaced = condition.Message, true
			}
		}
	}
	for i := range pods.Items { // what does not start counts more than what has no node
		pod := &pods.Items[i]
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if waiting := status.State.Waiting; waiting != nil && waiting.Reason != "" &&
				waiting.Reason != "PodInitializing" {
				return strings.TrimSuffix(status.Name+": "+waiting.Reason+": "+waiting.Message, ": "), false, nil
			}
			if !status.Ready && status.State.Running != nil {
				return status.Name + " is not ready", false, nil
			}
		}
	}
	return why, unplaced, nil
}
