package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Holds implements engine.Actor. If a condition is polled, missing also reports problems of its pods, and a problem
// that does not resolve by itself is an error.
func (a *Actor) Holds(ctx context.Context, c step.Condition) (bool, string, error) {
	holds, missing, err := a.holds(ctx, c)
	bearing := a.looks.of(c, a.Clock.Now(), holds)
	if holds {
		a.relieved(bearing)
	}
	if err != nil || holds {
		return holds, missing, classify(err)
	}
	err = a.bear(ctx, bearing, func(ctx context.Context) (trouble, error) { return a.ailingOf(ctx, bearing, c) })
	if err != nil {
		return false, missing, classify(fmt.Errorf("%s: %w", missing, err))
	}
	if bearing.why != "" {
		missing += ": " + bearing.why
	}
	return false, missing, nil
}

func (a *Actor) holds(ctx context.Context, c step.Condition) (bool, string, error) {
	switch is := c.Is.(type) {
	case step.Gone:
		object, err := a.get(ctx, is.Ref)
		return object == nil && err == nil, is.Ref.String() + " still exists" + writtenBy(object), err
	case step.Established:
		object, err := a.get(ctx, is.Ref)
		if err != nil || object == nil {
			return false, is.Ref.String() + " does not exist", err
		}
		return conditionTrue(object, "Established"), is.Ref.String() + " is not established", nil
	case step.Rolled:
		object, err := a.get(ctx, is.Ref)
		if err != nil || object == nil {
			return false, is.Ref.String() + " does not exist", err
		}
		missing := unrolled(object)
		return missing == "", is.Ref.String() + ": " + missing, nil
	case step.Renders:
		object, err := a.get(ctx, is.Ref)
		if err != nil || object == nil {
			return false, is.Ref.String() + " does not exist", err
		}
		tags := imageTags(object)
		return slices.Contains(tags, is.Version), fmt.Sprintf("new pods of %s are made from %s, not %s",
			is.Ref, strings.Join(tags, ", "), is.Version) + writtenBy(object), nil
	case step.Reports:
		object, err := a.get(ctx, is.Ref)
		if err != nil || object == nil {
			return false, is.Ref.String() + " does not exist", err
		}
		missing := unreported(object, is.Status)
		return missing == "", is.Ref.String() + " " + missing, nil
	case step.Has:
		return a.has(ctx, is)
	case step.Held:
		return a.held(ctx, is)
	case step.PodReady:
		return a.podsReady(ctx, is)
	case step.NodeReady:
		node, err := a.Typed.CoreV1().Nodes().Get(ctx, is.Node, metav1.GetOptions{})
		if err != nil {
			return false, "", err
		}
		return cluster.NodeReady(node), "node " + is.Node + " is not Ready" + unreadyFor(node), nil
	case step.PodGone:
		pods, err := a.podsOn(ctx, is.Node, is.Namespace, is.Selector)
		return len(pods) == 0 && err == nil, fmt.Sprintf("still there: %s of %s",
			cluster.Count(len(pods), "pod"), is.Selector), err
	case step.NoPods:
		return a.noPods(ctx, is)
	case step.AgentSays:
		said, _, err := Said(ctx, a.Typed, is.Namespace, is.Selector, is.Node, is.Says)
		return err == nil && strings.EqualFold(said, is.Says.Value),
			fmt.Sprintf("the agent of %s says %s=%s, not %s",
				is.Node, is.Says.Parameter, cmp.Or(said, "?"), is.Says.Value), err
	case step.NodesAmong:
		return a.nodesAmong(ctx, is.Nodes)
	}
	return false, "", fmt.Errorf("unknown condition %q", c.Kind())
}

// unreadyFor returns a node's reason for not being Ready, after a colon; empty if it gives none.
func unreadyFor(node *corev1.Node) string {
	for _, c := range node.Status.Conditions {
		if words := strings.TrimSpace(c.Reason + " " + c.Message); c.Type == corev1.NodeReady && words != "" {
			return ": " + printable(words)
		}
	}
	return ""
}

func (a *Actor) has(ctx context.Context, is step.Has) (bool, string, error) {
	var fields any
	if err := json.Unmarshal(is.Fields, &fields); err != nil {
		return false, "", err
	}
	object, err := a.get(ctx, is.Ref)
	if err != nil || object == nil {
		return false, is.Ref.String() + " does not exist", err
	}
	return part(fields, object.Object), fmt.Sprintf("%s does not have %s", is.Ref, is.Fields) + writtenBy(object), nil
}

// writtenBy names the manager that wrote an object last, and when, if that is not Theseus: it may have taken back what
// a plan wrote. It is empty for an object that is ending, and if managedFields do not say it.
func writtenBy(object *unstructured.Unstructured) string {
	by, at := lastWriter(object)
	if by == "" {
		return ""
	}
	return fmt.Sprintf("; %s wrote it last, at %s", by, at.UTC().Format(time.RFC3339))
}

// lastWriter is what writtenBy names.
func lastWriter(object *unstructured.Unstructured) (manager string, at time.Time) {
	if object == nil || object.GetDeletionTimestamp() != nil {
		return "", time.Time{}
	}
	var last metav1.ManagedFieldsEntry
	for _, entry := range object.GetManagedFields() {
		if entry.Time != nil && entry.Subresource == "" && (last.Time == nil || last.Time.Before(entry.Time) ||
			last.Manager == FieldManager && last.Time.Equal(entry.Time)) {
			last = entry
		}
	}
	if last.Time == nil || last.Manager == FieldManager {
		return "", time.Time{}
	}
	return printable(last.Manager), last.Time.Time
}

// part reports whether one tree is part of another: each item of a list must be part of an item of the other list, and
// null means absent.
func part(one, whole any) bool {
	switch one := one.(type) {
	case map[string]any:
		in, ok := whole.(map[string]any)
		ok = ok || whole == nil // true if only absent fields are required
		for key, value := range one {
			ok = ok && part(value, in[key])
		}
		return ok
	case []any:
		in, ok := whole.([]any)
		for _, item := range one {
			ok = ok && slices.ContainsFunc(in, func(other any) bool { return part(item, other) })
		}
		return ok
	}
	return fmt.Sprint(one) == fmt.Sprint(whole)
}

// await polls a condition until it holds or the context ends; then the error says what was missing.
func (a *Actor) await(ctx context.Context, c step.Condition) (err error) {
	said, begun := "", a.Clock.Now()
	bearing, leave := a.patient(string(jsonOf(c)), patience{})
	defer func() { leave(err) }()
	for {
		holds, missing, err := a.holds(ctx, c)
		if err == nil && holds {
			a.relieved(bearing)
			return nil
		}
		if err != nil {
			return classify(err)
		}
		if missing != said && a.Note != nil && a.Clock.Now().Sub(begun) >= quiet {
			a.Note("waiting: " + missing)
			said = missing
		}
		err = a.bear(ctx, bearing, func(ctx context.Context) (trouble, error) { return a.stuck(ctx, bearing, c) })
		if err != nil {
			return fmt.Errorf("%s: %w", missing, err)
		}
		if err := a.pause(ctx, poll); err != nil {
			return bearing.late(missing, err)
		}
	}
}

func (a *Actor) podsReady(ctx context.Context, is step.PodReady) (bool, string, error) {
	pods, err := a.podsOn(ctx, is.Node, is.Namespace, is.Selector)
	if err != nil {
		return false, "", err
	}
	where := is.Selector + " on " + is.Node
	if len(pods) == 0 {
		return false, "no pod of " + where, nil
	}
	for i := range pods {
		if pods[i].DeletionTimestamp != nil || !cluster.PodReady(&pods[i]) {
			return false, fmt.Sprintf("pod %s/%s on %s is not Ready", pods[i].Namespace, pods[i].Name, is.Node), nil
		}
	}
	stray, err := strayPod(pods, is.CIDRs)
	return stray == "" && err == nil, stray, err
}

// held tries to delete a pod with a dry run.
func (a *Actor) held(ctx context.Context, is step.Held) (bool, string, error) {
	pods, err := a.podsOn(ctx, "", is.Namespace, is.Selector)
	if err != nil {
		return false, "", err
	}
	for i := range pods {
		pod := &pods[i]
		_, marked := pod.Annotations[v1alpha1.AnnotationReplace]
		if marked || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		err := a.Typed.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
			metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "'"+is.Ref.Name+"'"):
			return true, "", nil
		case err == nil:
			return false, is.Ref.String() + " is not in force yet: pod " + pod.Name + " could be deleted", nil
		case !apierrors.IsNotFound(err):
			return false, "", err
		}
	}
	return false, "no pod of " + is.Selector + " runs on which " + is.Ref.String() + " could be tried", nil
}

// imageTags returns the distinct tags of the images of a workload's containers.
func imageTags(workload *unstructured.Unstructured) []string {
	var tags []string
	for _, container := range cni.ContainersOf(workload, "containers") {
		image, _ := container["image"].(string)
		if tag := cluster.ImageOf(image).Tag; !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// strayPod names a pod whose address is in none of the ranges, if there is one.
func strayPod(pods []corev1.Pod, cidrs []string) (string, error) {
	prefixes, err := prefixesOf(cidrs)
	if err != nil || len(cidrs) == 0 {
		return "", err
	}
	for i := range pods {
		if pod := &pods[i]; pod.Status.PodIP != "" && !within(prefixes, pod.Status.PodIP) {
			return fmt.Sprintf("pod %s/%s on %s has the address %s, which is not of %s",
				pod.Namespace, pod.Name, pod.Spec.NodeName, pod.Status.PodIP, strings.Join(cidrs, ", ")), nil
		}
	}
	return "", nil
}

func (a *Actor) noPods(ctx context.Context, is step.NoPods) (bool, string, error) {
	pods, err := a.podsOn(ctx, is.Node, "", "")
	if err != nil {
		return false, "", err
	}
	left, err := inNetworks(pods, is.CIDRs)
	left = slices.DeleteFunc(left, func(pod corev1.Pod) bool {
		return is.LeaveEnding && pod.DeletionTimestamp != nil || is.LeaveDaemons && ofDaemonSet(&pod)
	})
	if err != nil || len(left) == 0 {
		return err == nil, "", err
	}
	return false, fmt.Sprintf("still with an address in %s: %s, such as %s/%s",
		strings.Join(is.CIDRs, ", "), cluster.Count(len(left), "pod"), left[0].Namespace, left[0].Name), nil
}

// nodesAmong finds nodes that joined since a list was made.
func (a *Actor) nodesAmong(ctx context.Context, known []string) (bool, string, error) {
	nodes, err := a.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, "", err
	}
	for i := range nodes.Items {
		if name := nodes.Items[i].Name; !slices.Contains(known, name) {
			return false, "node " + name + " joined since the plan was made: the plan has no step for it", nil
		}
	}
	return true, "", nil
}

// inNetworks keeps the pods that have their own address in one of the ranges. Finished pods have released
// their addresses. It leaves out hostNetwork pods, Theseus' own pods, and mirror pods, which cannot be moved
// through the API.
func inNetworks(pods []corev1.Pod, cidrs []string) ([]corev1.Pod, error) {
	prefixes, err := prefixesOf(cidrs)
	if err != nil {
		return nil, err
	}
	var found []corev1.Pod
	for _, pod := range pods {
		_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
		if mirror || pod.Spec.HostNetwork || pod.Namespace == v1alpha1.Namespace ||
			pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if within(prefixes, pod.Status.PodIP) {
			found = append(found, pod)
		}
	}
	return found, nil
}

func prefixesOf(cidrs []string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, 0, len(cidrs))
	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, err
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

func within(prefixes []netip.Prefix, ip string) bool {
	address, err := netip.ParseAddr(ip)
	return err == nil && slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(address) })
}

func conditionTrue(object *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, ok := c.(map[string]any)
		return ok && condition["type"] == kind && condition["status"] == "True"
	})
}

// unreported names a condition of an object that is not as wanted, with the object's own message; empty if all are.
func unreported(object *unstructured.Unstructured, want map[string]string) string {
	var all struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &all); err != nil {
		return "has a status that cannot be read: " + err.Error()
	}
	for _, kind := range slices.Sorted(maps.Keys(want)) {
		c := meta.FindStatusCondition(all.Status.Conditions, kind)
		switch {
		case c == nil:
			return "does not report whether it is " + kind
		case string(c.Status) != want[kind]:
			return strings.TrimSuffix(fmt.Sprintf("reports %s=%s (%s): %s", kind, c.Status,
				c.Reason, printable(c.Message)), ": ")
		}
	}
	return ""
}

// unrolled says why the rollout of a DaemonSet, Deployment or StatefulSet is not complete; empty if it is.
func unrolled(object *unstructured.Unstructured) string {
	number := func(fields ...string) int64 {
		n, _, _ := unstructured.NestedInt64(object.Object, fields...)
		return n
	}
	if number("status", "observedGeneration") < object.GetGeneration() {
		return "its controller has not observed the latest change"
	}
	wanted, updated, ready := number("spec", "replicas"), number("status", "updatedReplicas"),
		number("status", "readyReplicas")
	if object.GetKind() == "DaemonSet" {
		wanted = number("status", "desiredNumberScheduled")
		updated, ready = number("status", "updatedNumberScheduled"), number("status", "numberReady")
	}
	if updated < wanted {
		return fmt.Sprintf("%d of %d pods are updated", updated, wanted)
	}
	// A Deployment counts its old pods among the ready ones.
	if old := number("status", "replicas") - updated; object.GetKind() == "Deployment" && old > 0 {
		return "still there: " + cluster.Count(int(old), "old pod")
	}
	if ready < wanted {
		return fmt.Sprintf("%d of %d pods are ready", ready, wanted)
	}
	return ""
}
