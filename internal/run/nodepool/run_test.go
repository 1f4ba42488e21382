package nodepool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/flannel"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// site is where a real plan is carried out by the real engine: its commands run, and what they make comes as Nodes;
// nodes are waited for, shut and drained, and probe pods waited for, as ever. Everything else of the plan is taken for
// done.
type site struct {
	*cloud
	*plan.Plan
	real    *kube.Actor
	journal journal.Memory
	// born is what a new node is like, and address what its probe pod gets.
	born    func(*corev1.Node)
	address string
}

// quick is a clock on which a wait is over as soon as it began.
type quick struct {
	lock sync.Mutex
	now  time.Time
}

func (q *quick) Now() time.Time {
	q.lock.Lock()
	defer q.lock.Unlock()
	return q.now
}

func (q *quick) Sleep(ctx context.Context, d time.Duration) error {
	q.lock.Lock()
	q.now = q.now.Add(d)
	q.lock.Unlock()
	return clock{}.Sleep(ctx, d)
}

func conditions(status corev1.ConditionStatus, message string) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: message}}
	}
}

// newSite plans to replace two workers by two new ones, with a command that adds and one that removes. Both find $DIR,
// in which a file of a node's name makes it come or go.
func newSite(t *testing.T, add, remove string) *site {
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
	s := &site{cloud: newCloud(t), born: conditions(corev1.ConditionTrue, ""), address: "10.96.0.9"}
	for i := range snapshot.Nodes {
		s.join(&snapshot.Nodes[i])
	}
	command := func(script string) string { return "env 'DIR=" + s.dir + "' sh -c '" + script + "'" }
	made, err := plan.Make(snapshot, v1alpha1.ChangeSpec{To: "calico", Manifest: "calico.yaml", PodCIDR: "10.96.0.0/16",
		AgentImage: "agent:dev", Strategy: "surge", Waves: []int{0}, AddHook: command(add),
		RemoveHook: command(remove)},
		cni.Registry{flannel.Driver{}, calico.Driver{}}, nil,
		plan.Options{Manifest: cnitest.Fixture(t, "calico-manifest.yaml"), Now: time.Unix(1_800_000_000, 0)})
	if err != nil {
		t.Fatal(err)
	}
	s.Plan = made
	time := &quick{now: time.Unix(1_800_000_000, 0)}
	s.real = &kube.Actor{Typed: s.client, Clock: time, Migration: made.Name}
	s.Actor.Actor, s.Actor.Clock, s.Actor.Slots, s.Actor.Known = s, time, made.Surge.Slots(), made.Cluster.Nodes
	s.client.PrependReactor("list", "pods", s.podsOfNode)
	go s.provide()
	return s
}

// provide makes nodes come and go by the files of the commands.
func (s *site) provide() {
	seen := map[string]bool{}
	for s.t.Context().Err() == nil {
		files, _ := os.ReadDir(s.dir)
		for _, file := range files {
			verb, name, _ := strings.Cut(file.Name(), "-")
			switch {
			case seen[file.Name()]:
			case verb == step.VerbAdd:
				s.join(node("ip-"+name, s.born))
			default:
				_ = s.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{})
			}
			seen[file.Name()] = true
		}
		time.Sleep(time.Millisecond)
	}
}

// podsOfNode adds what the fake leaves out: selecting by node.
func (s *site) podsOfNode(action clienttesting.Action) (bool, runtime.Object, error) {
	list := action.(clienttesting.ListAction)
	all, err := s.client.Tracker().List(list.GetResource(), corev1.SchemeGroupVersion.WithKind("Pod"),
		list.GetNamespace())
	if err != nil {
		return true, nil, err
	}
	pods := all.(*corev1.PodList)
	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return !list.GetListRestrictions().Fields.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName})
	})
	return true, pods, nil
}

// played says whether an action is taken for done.
func played(a step.Action) bool {
	switch do := a.Do.(type) {
	case step.Taint, step.Untaint, step.Evict:
		return false
	case step.Wait:
		return !asked(do.Condition)
	}
	return true
}

func asked(c step.Condition) bool {
	switch is := c.Is.(type) {
	case step.NodeReady, step.NoPods:
		return true
	case step.PodReady:
		return len(is.CIDRs) > 0
	}
	return false
}

// Observe implements engine.Actor.
func (s *site) Observe(ctx context.Context, a step.Action, before json.RawMessage) (engine.Observation, error) {
	if played(a) {
		return engine.Observation{}, nil
	}
	return s.real.Observe(ctx, a, before)
}

// Do implements engine.Actor.
func (s *site) Do(ctx context.Context, a step.Action, before json.RawMessage) (json.RawMessage, error) {
	if !played(a) {
		return s.real.Do(ctx, a, before)
	}
	pod := &corev1.Pod{}
	if a.Op() != step.OpApply || a.Object().GetKind() != "Pod" {
		return nil, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(a.Object().Object, pod); err != nil {
		return nil, err
	}
	address := s.address
	if pod.Name == manifest.ProbePodName(pod.Spec.NodeName, "old") {
		address = "10.244.0.9"
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: address,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	_, err := s.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
	return nil, err
}

// Holds implements engine.Actor.
func (s *site) Holds(ctx context.Context, c step.Condition) (bool, string, error) {
	if !asked(c) {
		return true, "", nil
	}
	return s.real.Holds(ctx, c)
}

// Ask implements engine.Gate.
func (s *site) Ask(context.Context, step.Gate, func(context.Context) error) (engine.Verdict, error) {
	return engine.Verdict{Pass: true, Reason: "played"}, nil
}

// Desire implements engine.Control.
func (s *site) Desire(context.Context) (v1alpha1.Desire, error) { return v1alpha1.DesireRun, nil }

// hurry gives some actions of the plan no time.
func (s *site) hurry(these func(step.Action) bool) {
	for i := range s.Steps {
		for j := range s.Steps[i].Actions {
			if a := &s.Steps[i].Actions[j]; these(*a) {
				a.Timeout = step.Duration(time.Second)
			}
		}
	}
}

// apply carries the plan out from where it stands.
func (s *site) apply() engine.Outcome {
	s.t.Helper()
	outcome, err := engine.Run(s.t.Context(), s.Plan,
		engine.Deps{Actor: s.cloud.Actor, Gate: s, Journal: &s.journal, Control: s, Clock: s.Actor.Clock})
	if err != nil {
		s.t.Fatal(err)
	}
	return outcome
}

// stand says which nodes there are, with what Theseus left on them.
func (s *site) stand() string {
	list, err := s.client.CoreV1().Nodes().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for _, n := range list.Items {
		text := n.Name
		if slot := n.Labels[v1alpha1.LabelSlot]; slot != "" {
			text += " as " + slot
		}
		for _, taint := range n.Spec.Taints {
			if taint.Key == v1alpha1.TaintPending {
				text += " " + string(taint.Effect)
			}
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

const (
	comes, goes = "touch $DIR/add-$THESEUS_NODE", "touch $DIR/remove-$THESEUS_NODE"
	before      = "control-1, node-1, node-2"
	stuck       = "control-1 PreferNoSchedule, ip-new-1 as new-1, ip-new-2 as new-2, node-2 PreferNoSchedule NoSchedule"
)

// TestCommandsAndNodesThatFail: before the first node is removed everything is taken back, every node that came is
// removed by the user's own command, and what is said leads on; from then on a person is asked.
func TestCommandsAndNodesThatFail(t *testing.T) {
	second := func(verb, what string) string { // of the two that come or go
		return "case $THESEUS_NODE in *-2) " + what + ";; *) touch $DIR/" + verb + "-$THESEUS_NODE;; esac"
	}
	hooks := func(verb, node string) func(step.Action) bool {
		return func(a step.Action) bool { return a.Op() == step.OpHook && a.Verb() == verb && a.Node() == node }
	}
	waits := func(kind step.ConditionKind) func(step.Action) bool {
		return func(a step.Action) bool { return a.Op() == step.OpWait && a.Do.(step.Wait).Condition.Kind() == kind }
	}
	for _, test := range []struct {
		name, add, remove string
		like              func(*site)
		hurry             func(step.Action) bool
		end               engine.End
		nodes             string
		cause, hint       string
	}{
		{"the command to add fails", second("add", "echo quota exceeded; exit 3"), goes, nil,
			nil, engine.EndRolledBack, before,
			"exit status 3; its last output: quota exceeded; no node has joined", "fix the command of --add-hook"},
		{"it hangs", second("add", "echo asking; exec sleep 600"), goes, nil, hooks(step.VerbAdd, "new-2"),
			engine.EndRolledBack, before,
			"not finished within 1s: the command exceeded its timeout and was terminated; its last output: asking; " +
				"no node has joined", "--hook-timeout"},
		{"it hangs when its node has joined", second("add", comes+"; exec sleep 600"), goes, nil,
			hooks(step.VerbAdd, "new-2"), engine.EndRolledBack, before, "was terminated; node ip-new-2 has joined",
			"make the command of --add-hook end in time"},
		{"it is done, and no node comes", second("add", "true"), goes, nil, hooks(step.VerbAdd, "new-2"),
			engine.EndRolledBack, before, "timeout expired while waiting for node for new-2 to join",
			"remove a node that still joins yourself"},
		{"a new node does not become Ready", comes, goes, func(s *site) {
			s.born = conditions(corev1.ConditionFalse, "cni plugin not initialized")
		}, waits(step.KindNodeReady),
			engine.EndRolledBack, before, "node ip-new-1 is not Ready: cni plugin not initialized", "make a new plan"},
		{"a new node has the old network's configuration first",
			comes, goes, func(s *site) { s.address = "10.244.9.9" }, nil, engine.EndRolledBack, before,
			"has the address 10.244.9.9, which is not of 10.96.0.0/16: another network serves new pods of ip-new-1",
			"make a new plan"},
		{"a budget lets no pod go", comes, goes, (*site).holdPod, func(a step.Action) bool {
			return a.Op() == step.OpEvict && a.Do.(step.Evict).Pods.Node == "node-1"
		}, engine.EndRolledBack, before,
			"pod shop/report: its PodDisruptionBudget denies the eviction: The disruption budget report needs 1 " +
				"healthy " +
				"pods and " +
				"has 1 currently", "make a new plan"},
		{"the command to remove fails", comes, second("remove", "echo denied; exit 1"), nil, nil,
			engine.EndNeedsPerson, stuck,
			"exit status 1; its last output: denied; node node-2 is still in the cluster",
			"fix the command of --remove-hook"},
		{"the node stays, and is Ready", comes, second("remove", "true"), nil, hooks(step.VerbRemove, "node-2"),
			engine.EndNeedsPerson, stuck,
			"timeout expired while waiting for node node-2 to leave; node node-2 is still in the cluster",
			"kubectl delete node"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t, test.add, test.remove)
			if test.like != nil {
				test.like(s)
			}
			if test.hurry != nil {
				s.hurry(test.hurry)
			}
			got := s.apply()
			if got.End != test.end || !strings.Contains(got.Cause, test.cause) ||
				!strings.Contains(got.Hint, test.hint) {
				t.Errorf("%s: %s\nhint: %s\nwant %s: %s\nhint: %s",
					got.End, got.Cause, got.Hint, test.end, test.cause, test.hint)
			}
			if nodes := s.stand(); nodes != test.nodes {
				t.Errorf("the nodes are %s; want %s", nodes, test.nodes)
			}
			if test.end != engine.EndNeedsPerson {
				return
			}
			if err := s.client.CoreV1().Nodes().Delete(t.Context(), "node-2", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if again := s.apply(); again.End != engine.EndDone {
				t.Errorf("when a person has removed the node: %s: %s", again.End, again.Cause)
			}
		})
	}
}

// holdPod puts a pod on node-1 that its budget never lets go.
func (s *site) holdPod() {
	yes := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "report", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "batch/v1", Kind: "Job", Name: "report", UID: "j", Controller: &yes}}},
		Spec:   corev1.PodSpec{NodeName: "node-1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.1.5"},
	}
	if err := s.client.Tracker().Add(pod); err != nil {
		s.t.Fatal(err)
	}
	s.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		held := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		held.ErrStatus.Details.Causes = append(held.ErrStatus.Details.Causes,
			metav1.StatusCause{Type: policyv1.DisruptionBudgetCause,
				Message: "The disruption budget report needs 1 healthy pods and has 1 currently"})
		return true, nil, held
	})
}

// TestNodeComesAtTheEnd: a node that comes while its command is being ended is known, so that taking it back finds it.
func TestNodeComesAtTheEnd(t *testing.T) {
	c := newCloud(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	joined := filepath.Join(c.dir, "joined")
	called, told := c.when("called", cancel), c.when("told", func() {
		c.join(node("late"))
		if err := os.WriteFile(joined, nil, 0o600); err != nil {
			t.Error(err)
		}
	})
	_, err := c.doIn(ctx, hook(step.VerbAdd, "new-1",
		fmt.Sprintf(`trap "touch %s; while ! test -e %s; do :; done; exit 1" TERM; touch %s; sleep 600 & wait`,
			told, joined, called)))
	if err == nil || !strings.Contains(err.Error(), "exceeded its timeout and was terminated") ||
		!strings.Contains(err.Error(), "; node late has joined") ||
		c.get("late").Labels[v1alpha1.LabelSlot] != "new-1" {
		t.Errorf("%v, %v", err, c.get("late").Labels)
	}
}

// TestCommandThatLeavesSomethingRunning: who runs on in the background with the command's output would be ended at any
// moment, so that it is said.
func TestCommandThatLeavesSomethingRunning(t *testing.T) {
	c := newCloud(t)
	_, err := c.do(hook(step.VerbAdd, "new-1",
		fmt.Sprintf("echo begun; sleep 600 & touch %s", filepath.Join(c.dir, "called"))))
	if err == nil || !strings.Contains(err.Error(), "succeeded, but processes that it left running kept its output "+
		"open for 5s more and were killed; its last output: begun") ||
		!strings.Contains(engine.HintOf(err), "--add-hook wait for what it starts") {
		t.Errorf("%v (%s)", err, engine.HintOf(err))
	}
}
