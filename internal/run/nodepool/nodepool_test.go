package nodepool_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/nodepool"
	"github.com/theseus-cni/theseus/internal/step"
)

// patience ends only a test that has failed.
const patience = 20 * time.Second

// cloud makes and removes nodes for hooks that touch or remove a file of a node's name in its folder.
type cloud struct {
	t      *testing.T
	dir    string
	client *fake.Clientset
	inner  inner
	*nodepool.Actor
}

// inner hears what is passed on.
type inner struct {
	engine.Actor
	actions    []step.Action
	conditions []step.Condition
}

func (i *inner) Do(_ context.Context, a step.Action, _ json.RawMessage) (json.RawMessage, error) {
	i.actions = append(i.actions, a)
	return nil, nil
}

func (i *inner) Observe(_ context.Context, a step.Action, _ json.RawMessage) (engine.Observation, error) {
	i.actions = append(i.actions, a)
	return engine.Observation{}, nil
}

func (i *inner) Holds(_ context.Context, c step.Condition) (bool, string, error) {
	i.conditions = append(i.conditions, c)
	return true, "", nil
}

type clock struct{}

func (clock) Now() time.Time { return time.Now() }
func (clock) Sleep(ctx context.Context, _ time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Millisecond):
		return nil
	}
}

func node(name string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-" + "1"}}
	for _, f := range change {
		f(n)
	}
	return n
}

func newCloud(t *testing.T, nodes ...*corev1.Node) *cloud {
	c := &cloud{t: t, dir: t.TempDir(), client: fake.NewClientset()}
	for _, n := range nodes {
		c.join(n)
	}
	c.Actor = &nodepool.Actor{Actor: &c.inner, Typed: c.client, Clock: clock{}, Slots: []string{"new-1", "new-2"},
		Known: []string{"old-1", "old-2"}, Migration: "m"}
	return c
}

func (c *cloud) join(n *corev1.Node) {
	c.t.Helper()
	if _, err := c.client.CoreV1().Nodes().Create(context.Background(), n, metav1.CreateOptions{}); err != nil {
		c.t.Error(err)
	}
}

// when calls f once the hook has made a file.
func (c *cloud) when(file string, f func()) (path string) {
	path = filepath.Join(c.dir, file)
	go func() {
		for c.t.Context().Err() == nil {
			if _, err := os.Stat(path); err == nil {
				f()
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return path
}

func hook(verb, node string, script string) step.Action {
	args, _ := json.Marshal(step.HookArgs{Command: []string{"sh", "-c", script}, Wave: "wave-1"})
	return step.Action{ID: "h", Do: step.Hook{Verb: verb, NodeName: node, Args: args}}
}

func (c *cloud) do(action step.Action) (nodepool.Ran, error) { return c.doIn(c.t.Context(), action) }

func (c *cloud) doIn(ctx context.Context, action step.Action) (nodepool.Ran, error) {
	answer, err := c.Do(ctx, action, nil)
	var ran nodepool.Ran
	if err == nil {
		err = json.Unmarshal(answer, &ran)
	}
	return ran, err
}

func (c *cloud) get(name string) *corev1.Node {
	c.t.Helper()
	n, err := c.client.CoreV1().Nodes().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return n
}

// TestAdd: the node that comes while the hook runs gets the slot and is shut in one write, and from then on the slot's
// name is its.
func TestAdd(t *testing.T) {
	c := newCloud(t, node("old-1"), node("old-2"))
	file := c.when("called", func() { c.join(node("ip-10-0-0-7")) })
	if seen, err := c.Observe(t.Context(), hook(step.VerbAdd, "new-1", ""), nil); err != nil || seen.Done {
		t.Fatalf("before: %+v, %v", seen, err)
	}
	told := filepath.Join(t.TempDir(), "told")
	ran, err := c.do(hook(step.VerbAdd, "new-1",
		`echo "$THESEUS_ACTION $THESEUS_NODE $THESEUS_WAVE $THESEUS_MIGRATION $THESEUS_TAINT" >`+told+`; touch `+file))
	if err != nil || ran.Node != "ip-10-0-0-7" || ran.Found {
		t.Fatalf("%+v, %v", ran, err)
	}
	if got, err := os.ReadFile(told); string(got) != "add new-1 wave-1 m theseus.dev/pending=true:NoSchedule\n" {
		t.Errorf("it was told %q, %v", got, err)
	}
	now := c.get("ip-10-0-0-7")
	if now.Labels[v1alpha1.LabelSlot] != "new-1" || len(now.Spec.Taints) != 1 ||
		now.Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("labels %v, taints %v", now.Labels, now.Spec.Taints)
	}
	if seen, err := c.Observe(t.Context(), hook(step.VerbAdd, "new-1", ""), nil); err != nil || !seen.Done ||
		!strings.Contains(string(seen.Before), `"ip-10-0-0-7"`) {
		t.Errorf("after: %+v, %v", seen, err)
	}
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "probe-new-1"}, "spec": map[string]any{"nodeName": "new-1"}}}
	actions := []step.Action{
		{Do: step.Taint{NodeName: "new-1"}},
		{Do: step.Apply{Object: pod}},
		{Do: step.Patch{Ref: step.Ref{APIVersion: "v1", Kind: "Node", Name: "new-1"}}},
		{Do: step.Evict{Pods: step.PodSet{Node: "new-1"}}},
		{Do: step.Probe{Paths: step.PathSet{Old: []string{"*"}, Leaving: []string{"new-1", "new-2"}}}},
	}
	object := step.Ref{APIVersion: "v1", Kind: "Node", Name: "new-1"}
	for _, is := range []step.Fact{step.NodeReady{Node: "new-1"}, step.PodReady{Node: "new-1"},
		step.NoPods{Node: "new-1"}, step.PodGone{Node: "new-1"}, step.AgentSays{Node: "new-1"},
		step.NodesAmong{Nodes: []string{"old-1", "new-1"}}, step.Gone{Ref: object},
		step.Has{Ref: object, Fields: json.RawMessage(`{}`)}, step.Reports{Ref: object}} {
		actions = append(actions, step.Action{Do: step.Wait{Condition: step.Condition{Is: is}}})
	}
	for _, a := range actions {
		if _, err := c.Do(t.Context(), a, nil); err != nil {
			t.Error(err)
		}
	}
	got, _ := json.Marshal(c.inner.actions)
	if n := strings.Count(string(got), `"ip-10-0-0-7"`); n != 14 || strings.Count(string(got), `"new-1"`) != 0 ||
		!strings.Contains(string(got), `"probe-new-1"`) {
		t.Errorf("%d of 14 names: %s", n, got)
	}
	if name, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName"); name != "new-1" {
		t.Error("the plan itself was changed")
	}
	if _, _, err := c.Holds(t.Context(), step.Condition{Is: step.NodeReady{Node: "new-1"}}); err != nil ||
		c.inner.conditions[0].Node() != "ip-10-0-0-7" {
		t.Errorf("%v, %v", c.inner.conditions, err)
	}
}

// TestAddFinds: a node that has come already, such as by a process that was killed, is taken without running anything;
// a node of the slot's own name goes before an older one, and one that another slot has stays that one's.
func TestAddFinds(t *testing.T) {
	labelled := func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.LabelSlot: "new-2"} }
	young := func(n *corev1.Node) { n.CreationTimestamp = metav1.Now() }
	for want, nodes := range map[string][]*corev1.Node{
		"x":     {node("old-1"), node("taken", labelled), node("x")},
		"y":     {node("z", young), node("y")},
		"new-1": {node("a"), node("new-1", young)},
	} {
		ran, err := newCloud(t, nodes...).do(hook(step.VerbAdd, "new-1", "exit 9"))
		if err != nil || ran.Node != want || !ran.Found {
			t.Errorf("%s: %+v, %v", want, ran, err)
		}
	}
}

func TestHooksThatFail(t *testing.T) {
	for _, test := range []struct {
		name, verb, script string
		words              []string
	}{
		{"fails", step.VerbAdd, "echo one; echo quota exceeded >&2; exit 3",
			[]string{"exit status 3", "quota exceeded", "no node has joined"}},
		{"hangs", step.VerbAdd, "echo asking; touch $0; sleep 600",
			[]string{"exceeded its timeout and was terminated", "asking", "no node has joined"}},
		{"no node", step.VerbAdd, "true",
			[]string{"succeeded, but the timeout expired while waiting for node for new-1 to join"}},
		{"does not go", step.VerbRemove, "true", []string{"timeout expired while waiting for node old-1 to leave",
			"still in the cluster"}},
		{"removing fails", step.VerbRemove, "echo denied; exit 1", []string{"exit status 1", "denied"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCloud(t, node("old-1", func(n *corev1.Node) {
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			}))
			name := map[string]string{step.VerbAdd: "new-1", step.VerbRemove: "old-1"}[test.verb]
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c.Note = func(string) { cancel() } // it has ended well, and its node does not come or go
			script := strings.ReplaceAll(test.script, "$0", c.when("called", cancel))
			_, err := c.doIn(ctx, hook(test.verb, name, script))
			if err == nil || errors.Is(err, engine.ErrUnavailable) {
				t.Fatalf("not refused: %v", err)
			}
			for _, words := range test.words {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q does not say %q", err, words)
				}
			}
		})
	}
	c := newCloud(t)
	action := hook(step.VerbAdd, "new-1", "")
	step.Edit(&action, func(do *step.Hook) { do.Args = []byte(`{"command":["/no/such/program"]}`) })
	if _, err := c.do(action); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no program: %v", err)
	}
	if err := nodepool.Runnable([]string{"sh"}, []string{"/no/such/program", "x"}); err == nil ||
		!strings.Contains(err.Error(), "cannot be run here") {
		t.Errorf("Runnable: %v", err)
	}
}

// TestFailsWithNode: what has come by a hook that failed is bound all the same, so that taking it back finds it.
func TestFailsWithNode(t *testing.T) {
	c := newCloud(t)
	file := c.when("called", func() { c.join(node("half")) })
	go func() { // the hook fails once its node is bound
		for t.Context().Err() == nil {
			if n, err := c.client.CoreV1().Nodes().Get(t.Context(), "half", metav1.GetOptions{}); err == nil &&
				n.Labels[v1alpha1.LabelSlot] != "" {
				_ = os.WriteFile(file+".bound", nil, 0o600)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, err := c.do(hook(step.VerbAdd, "new-1", "touch "+file+"; while ! test -e "+file+
		".bound; do sleep 0.01; done; exit 1"))
	if err == nil || !strings.Contains(err.Error(), "node half has joined") {
		t.Fatalf("%v", err)
	}
	removed := c.when("removed", func() {
		_ = c.client.CoreV1().Nodes().Delete(context.Background(), "half", metav1.DeleteOptions{})
	})
	ran, err := c.do(hook(step.VerbRemove, "new-1", "test $THESEUS_NODE = half && touch "+removed))
	if err != nil || ran.Node != "half" {
		t.Errorf("%+v, %v", ran, err)
	}
}

// TestNothingRunsOn: a hook that is ended takes with it what it started.
func TestNothingRunsOn(t *testing.T) {
	c := newCloud(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := c.when("pid", cancel)
	if _, err := c.doIn(ctx,
		hook(step.VerbAdd, "new-1", "sleep 600 & echo $! >"+file+".new; mv "+file+".new "+file+"; wait")); err == nil {
		t.Fatal("it did not fail")
	}
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(patience)
	for {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("its child runs on: %s", stat)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestRemove: a Node object that outlives its machine is deleted, with the pods that were there, and one that is gone
// is not asked for.
func TestRemove(t *testing.T) {
	c := newCloud(t, node("old-1"), node("old-2"))
	for _, on := range []string{"old-1", "old-2"} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "on-" + on},
			Spec: corev1.PodSpec{NodeName: on}}
		if _, err := c.client.CoreV1().Pods("shop").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if ran, err := c.do(hook(step.VerbRemove, "old-1", "true")); err != nil || ran.Node != "old-1" {
		t.Fatalf("%+v, %v", ran, err)
	}
	pods, err := c.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) != 1 || pods.Items[0].Name != "on-old-2" {
		t.Errorf("pods left: %v, %v", pods.Items, err)
	}
	for name, done := range map[string]bool{"old-1": true, "old-2": false, "new-1": true} {
		if seen, err := c.Observe(t.Context(), hook(step.VerbRemove, name, ""), nil); err != nil || seen.Done != done {
			t.Errorf("%s: %+v, %v", name, seen, err)
		}
	}
}

// TestOutput: what a hook prints stays out of the journal where it ends well. Where it fails, its last words are in the
// error, cut and printable, and a hook that never stops talking costs no memory.
func TestOutput(t *testing.T) {
	c := newCloud(t)
	file := c.when("called", func() { c.join(node("x")) })
	answer, err := c.Do(t.Context(), hook(step.VerbAdd, "new-1", "echo token=hunter2; touch "+file), nil)
	if err != nil || strings.Contains(string(answer), "hunter2") {
		t.Errorf("%s, %v", answer, err)
	}
	_, err = c.Do(t.Context(), hook(step.VerbAdd, "new-2",
		`head -c 3000000 /dev/zero | tr '\0' x; echo; printf '\033]0;t\007last\n'; exit 1`), nil)
	if err == nil || len(err.Error()) > 1000 || strings.ContainsAny(err.Error(), "\x1b\x07\n") ||
		!strings.Contains(err.Error(), `\u0007last`) {
		t.Errorf("%v", err)
	}
}
