package scratch

import (
	"context"
	gomaps "maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube/kubetest"
	"github.com/theseus-cni/theseus/internal/mirror/rehearsal"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

// odd is the copy of an odd cluster on a scratch cluster, as in the tests of package rehearsal.
func odd(t *testing.T) (*cluster.Snapshot, *rehearsal.Copy) {
	t.Helper()
	var both []*cluster.Snapshot
	for _, name := range []string{"odd.yaml", "scratch.yaml"} {
		data, err := os.ReadFile(filepath.Join("..", "rehearsal", "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, cnitest.Snapshot(t, cnitest.Documents(t, data)))
	}
	made, err := rehearsal.Make(both[0], both[1], nil, nil,
		rehearsal.Options{Image: "registry.example.com/agent:1", Certify: Certify})
	if err != nil {
		t.Fatal(err)
	}
	return both[1], made
}

// TestAPIServer: a real API server takes every object of the copy, twice; a user without rights is refused, and told
// which; everything is found again and deleted, and the nodes are as before. What others made stays, even with the
// copy's label or a node's annotation, and is not taken over.
func TestAPIServer(t *testing.T) {
	program := clustertest.Program(t, "a rehearsal's copy with a real API server")
	config := clustertest.ControlPlane(t, program, clustertest.Options{Users: []string{"nobody"}})
	user := kubetest.Users(t, config)
	as := func(token string) *Scratch {
		return &Scratch{Client: user(token), Note: func(text string) { t.Log(text) }}
	}
	s := as("token")
	before, made := odd(t)
	nodes := s.Client.Typed.CoreV1().Nodes()
	for i := range before.Nodes {
		node := before.Nodes[i].DeepCopy()
		node.Status = corev1.NodeStatus{}
		if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := as("nobody").May(t.Context(), made, rehearsal.Relabel{Node: "s-2"}); err == nil ||
		!strings.Contains(err.Error(), "create deployments.apps") || !strings.Contains(err.Error(), "patch nodes") ||
		!strings.Contains(err.Error(), "create pods/eviction") {
		t.Errorf("a user without rights: %v", err)
	}
	if err := s.May(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*time.Second, func() { // as the controller does, a while after the namespace is there
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := s.Client.Typed.CoreV1().ServiceAccounts("default").Create(context.Background(), account,
			metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	// Others have an object with the label, a node with the annotation, and one that is in the way.
	maps := s.Client.Typed.CoreV1().ConfigMaps("default")
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "theirs",
		Labels: map[string]string{rehearsal.MarkLabel: made.Of}}}
	if _, err := maps.Create(t.Context(), theirs, metav1.CreateOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"metadata":{"labels":{"keep":"yes"},"annotations":{"` + rehearsal.BeforeAnnotation +
		`":"{\"labels\":{\"keep\":{\"now\":\"yes\"}}}"}}}`)
	if _, err := nodes.Patch(t.Context(), "s-0", types.MergePatchType, text,
		metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
	priorities := s.Client.Typed.SchedulingV1().PriorityClasses()
	inTheWay := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "important",
		Labels: map[string]string{rehearsal.MarkLabel: made.Of}}, Value: 1000}
	if _, err := priorities.Create(t.Context(), inTheWay, metav1.CreateOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Make(t.Context(), made); err == nil ||
		!strings.Contains(err.Error(), "PriorityClass important: the scratch cluster has such an object already") {
		t.Errorf("an object of others is in the way: %v", err)
	}
	parts, err := s.Find(t.Context())
	if err != nil || len(parts.Others) != 2 || len(parts.Objects) != 0 || len(parts.Namespaces) != 1 ||
		len(parts.Nodes) != 4 {
		t.Errorf("%v: %+v", err, parts)
	}
	if err := s.Empty(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "is not empty: it has ConfigMap default/theirs") {
		t.Errorf("a ConfigMap of others: %v", err)
	}
	if err := priorities.Delete(t.Context(), "important", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Make(t.Context(), made); err != nil {
			t.Fatal(err)
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := s.Client.Typed.CoreV1().ServiceAccounts("shop").Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	held := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "held", Namespace: "shop",
		Finalizers: []string{rehearsal.HeldPrefix + "sink", "example.com/theirs"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	if _, err := s.Client.Typed.CoreV1().Pods("shop").Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bounded(t, s, made)
	for range 2 {
		if err := s.Hook(t.Context(), made); err != nil {
			t.Fatal(err)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "asked", Namespace: "shop"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	if _, err := s.Client.Typed.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), `failed calling webhook "shop.example.com"`) {
		t.Errorf("a pod that a webhook is asked about, which nothing answers: %v", err)
	}
	later := []byte(
		`{"spec":{"taints":[{"key":"later","effect":"NoSchedule"},{"key":"gpu","value":"yes","effect":"NoSchedule"}]}}`)
	if _, err := nodes.Patch(t.Context(), "s-2", types.MergePatchType, later,
		metav1.PatchOptions{FieldManager: "kubectl"}); err != nil {
		t.Fatal(err)
	}
	if node, err := nodes.Get(t.Context(), "s-2", metav1.GetOptions{}); err != nil || node.Labels["gpu"] != "yes" ||
		node.Labels["topology.kubernetes.io/zone"] != "b" || len(node.Spec.Taints) == 0 {
		t.Errorf("s-2: %v, %v", err, node)
	}
	if _, err := s.Ready(t.Context(), made, time.Second); err == nil ||
		!strings.Contains(err.Error(), "the copy is not ready after 1s") {
		t.Errorf("no pod runs here: %v", err) // there is no scheduler and no controller
	}
	relabeled(t, s)
	// Nothing ends a namespace here either, so the wait for it is cut short.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if parts, err = s.Find(t.Context()); err != nil {
		t.Fatal(err)
	}
	parts.Unread = append(parts.Unread, "API group late.example.com/v1 (down)")
	done, err := s.Remove(ctx, parts)
	if err == nil || !strings.Contains(err.Error(), "still there") {
		t.Errorf("a namespace that nothing ends: %v", err)
	}
	if held, err := s.Client.Typed.CoreV1().Pods("shop").Get(t.Context(), "held", metav1.GetOptions{}); err != nil ||
		!slices.Equal(held.Finalizers, []string{"example.com/theirs"}) {
		t.Errorf("a pod that a finalizer of the copy keeps: %v, %v", err, held.Finalizers)
	}
	if want := (Removed{Objects: 3, Namespaces: 1, Nodes: 4}); done != want {
		t.Errorf("removed %+v, want %+v", done, want)
	}
	for i := range before.Nodes {
		node, err := nodes.Get(t.Context(), before.Nodes[i].Name, metav1.GetOptions{})
		if err != nil || i > 0 && node.Annotations[rehearsal.BeforeAnnotation] != "" || node.Labels["gpu"] != "" ||
			node.Labels["added"] != "" ||
			node.Labels["kubernetes.io/hostname"] != before.Nodes[i].Labels["kubernetes.io/hostname"] ||
			node.Labels["topology.kubernetes.io/zone"] != before.Nodes[i].Labels["topology.kubernetes.io/zone"] {
			t.Errorf("%s: %v, %v", before.Nodes[i].Name, err, node.ObjectMeta)
		}
	}
	if node, err := nodes.Get(t.Context(), "s-2", metav1.GetOptions{}); err != nil || len(node.Spec.Taints) != 1 ||
		node.Spec.Taints[0].Key != "later" {
		t.Errorf("s-2: %v, %v", err, node.Spec.Taints)
	}
	if _, err := maps.Get(t.Context(), "theirs", metav1.GetOptions{}); err != nil {
		t.Errorf("an object of others: %v", err)
	}
	if node, err := nodes.Get(t.Context(), "s-0", metav1.GetOptions{}); err != nil || node.Labels["keep"] != "yes" {
		t.Errorf("a node of others: %v", err)
	}
	if _, err := s.Remove(t.Context(), Parts{Unread: parts.Unread}); err == nil || !strings.Contains(err.Error(),
		"objects of the copy may be left: could not be read: API group late.example.com/v1") {
		t.Errorf("a group that could not be read: %v", err)
	}
	if shop, err := s.Client.Typed.CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{}); err == nil &&
		shop.DeletionTimestamp == nil {
		t.Error("the namespace is not being deleted")
	}
}

// relabeled changes labels of a node that a rehearsal gave and that it had, takes that back, and changes them again:
// the removal of the copy takes that back, too.
func relabeled(t *testing.T, s *Scratch) {
	t.Helper()
	all := []rehearsal.Relabel{{Node: "s-2", Labels: map[string]*string{"gpu": nil, "kubernetes.io/hostname": nil,
		"added": new("yes")}}}
	nodes := s.Client.Typed.CoreV1().Nodes()
	labels := func() map[string]string {
		node, err := nodes.Get(t.Context(), "s-2", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return node.Labels
	}
	before := labels()
	for range 2 {
		if err := s.Unlabel(t.Context(), all); err != nil { // nothing to take back
			t.Fatal(err)
		}
		for range 2 { // the answer to the first was lost
			if err := s.Relabel(t.Context(), all); err != nil {
				t.Fatal(err)
			}
		}
		now := labels()
		_, gpu := now["gpu"]
		_, host := now["kubernetes.io/hostname"]
		if gpu || host || now["added"] != "yes" || now["topology.kubernetes.io/zone"] != "b" {
			t.Errorf("changed: %v", now)
		}
		if err := s.Unlabel(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		if now := labels(); !gomaps.Equal(now, before) {
			t.Errorf("taken back: %v, before: %v", now, before)
		}
	}
	if err := s.Relabel(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	if err := s.Relabel(t.Context(), []rehearsal.Relabel{{Node: "none", Labels: all[0].Labels}}); err == nil ||
		!strings.Contains(err.Error(), "the labels of Node none") {
		t.Errorf("a node that is not there: %v", err)
	}
}

// bounded makes the copy's quota, counts its pods as kube-controller-manager does, and demands that the API server then
// refuses a pod.
func bounded(t *testing.T, s *Scratch, made *rehearsal.Copy) {
	t.Helper()
	made.Bound(&cluster.Snapshot{}, &cluster.Snapshot{})
	quotas := s.Client.Typed.CoreV1().ResourceQuotas("shop")
	counted := make(chan error, 1)
	go func() {
		for {
			live, err := quotas.Get(t.Context(), "shop", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				continue
			}
			if err == nil {
				live.Status.Hard, live.Status.Used = live.Spec.Hard, corev1.ResourceList{}
				for name := range live.Spec.Hard {
					live.Status.Used[name] = resource.MustParse("0")
				}
				_, err = quotas.UpdateStatus(t.Context(), live, metav1.UpdateOptions{})
			}
			counted <- err
			return
		}
	}()
	if err := s.Bound(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	if err := <-counted; err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "one-more", Namespace: "shop"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}}
	if _, err := s.Client.Typed.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), "exceeded quota: shop") {
		t.Errorf("a pod over the quota: %v", err)
	}
}

// TestIdle: a DaemonSet that selects no node of the copy is not ready, if it has pods in the original.
func TestIdle(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{"kind": "DaemonSet", "metadata": map[string]any{
		"name": "log", "namespace": "shop"}, "status": map[string]any{"desiredNumberScheduled": int64(0)}}}
	for original, want := range map[int32]bool{0: false, 2: true} {
		made := &rehearsal.Copy{Workloads: []rehearsal.Workload{{Kind: "DaemonSet", Namespace: "shop",
			Name: "log", Original: original}}}
		if got := idle(made, live); got != want {
			t.Errorf("%d pods in the original: %v", original, got)
		}
	}
}
