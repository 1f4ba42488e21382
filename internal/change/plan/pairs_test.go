package plan_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// peopled is a snapshot with pods of the user's: servers and clients of some namespaces on every node. Each policy
// selects the servers of a namespace, and allows the clients of that namespace alone.
func peopled(t *testing.T, namespaces, pods int, denying ...string) *cluster.Snapshot {
	t.Helper()
	s := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
	s.Pods, s.NetworkPolicies = nil, nil
	for _, kind := range []string{"networkpolicies", "pods", "namespaces"} {
		s.Sources = append(s.Sources, cluster.Source{Resource: kind, From: "live"})
	}
	for n := range namespaces {
		name := fmt.Sprint("ns", n)
		s.Namespaces = append(s.Namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		for i := range pods {
			for _, app := range []string{"server", "client"} {
				s.Pods = append(s.Pods, userPod(name, fmt.Sprint(app, "-", i), app,
					s.Nodes[(n+i)%len(s.Nodes)].Name, len(s.Pods)))
			}
		}
	}
	for _, namespace := range denying {
		s.NetworkPolicies = append(s.NetworkPolicies, networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "server"}},
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
				Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{
					PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "client"}}}}}}}})
	}
	return s
}

func userPod(namespace, name, app, node string, n int) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		UID: types.UID("uid-" + namespace + "-" + name), Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.244.%d.%d", n/250, n%250+2),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}
	if app == "server" {
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080},
			{ContainerPort: 53, Protocol: "UDP"}}
	}
	return pod
}

func samples(t *testing.T, s *cluster.Snapshot, most int) *plan.Plan {
	t.Helper()
	guarded := upgradeGuarded()
	guarded.SamplePolicies = most
	p, err := guards(t, s, v1alpha1.ChangeSpec{AgentImage: "a"}, guarded)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPairs: pairs are half allowed and half denied where there are such, never more than asked, spread over namespaces
// and nodes, and the same each time. Their ends are Ready pods with addresses of their own.
func TestPairs(t *testing.T) {
	denying := []string{"ns0", "ns1", "ns2", "ns3"}
	for name, test := range map[string]struct {
		snapshot              *cluster.Snapshot
		most, allowed, denied int
	}{
		"both":             {peopled(t, 4, 3, denying...), 10, 5, 5},
		"odd":              {peopled(t, 4, 3, denying...), 5, 3, 2},
		"one":              {peopled(t, 4, 3, denying...), 1, 1, 0},
		"nothing denied":   {peopled(t, 4, 3), 10, 10, 0},
		"few":              {peopled(t, 1, 2), 50, 6, 0},
		"one policy of 40": {peopled(t, 40, 3, "ns17"), 10, 5, 5},
	} {
		p := samples(t, test.snapshot, test.most)
		pairs := p.Pairs()
		denied := 0
		used := map[string]int{}
		for _, pair := range pairs {
			if pair.Denied {
				denied++
			}
			selected := slices.ContainsFunc(test.snapshot.NetworkPolicies,
				func(n networkingv1.NetworkPolicy) bool { return n.Namespace == pair.To.Namespace })
			own := pair.From.Namespace == pair.To.Namespace && strings.HasPrefix(pair.From.Name, "client")
			if want := selected && !own; want != pair.Denied {
				t.Errorf("%s: %s is %s", name, pair, pair.Verdict())
			}
			used["from "+pair.From.Namespace]++
			used["on "+pair.Node]++
		}
		if len(pairs)-denied != test.allowed || denied != test.denied {
			t.Errorf("%s: %d allowed, %d denied: %v", name, len(pairs)-denied, denied, pairs)
		}
		if name == "both" {
			for use, n := range used {
				if n > 5 {
					t.Errorf("%d of %d pairs are %s: %v", n, len(pairs), use, pairs)
				}
			}
		}
		if again := samples(t, test.snapshot, test.most).Pairs(); !reflect.DeepEqual(again, pairs) {
			t.Errorf("%s: other pairs the second time", name)
		}
		at := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == guard.StepProbes })
		if !slices.ContainsFunc(p.Steps[at].Actions, func(a step.Action) bool { return a.Op() == step.OpSample }) {
			t.Errorf("%s: the plan does not connect them", name)
		}
	}
}

// TestPairsOfWhichPods: pods that are not Ready, that end, that have their node's address, or are Theseus' own are no
// ends of pairs, and neither are ports that no container declares for TCP.
func TestPairsOfWhichPods(t *testing.T) {
	for name, spoil := range map[string]func(*corev1.Pod){
		"not Ready":    func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse },
		"ended":        func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		"ends":         func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) },
		"host network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"no address":   func(p *corev1.Pod) { p.Status.PodIP = "" },
		"Theseus' own": func(p *corev1.Pod) { p.Labels = map[string]string{v1alpha1.LabelManaged: "true"} },
	} {
		s := peopled(t, 2, 2)
		for i := range s.Pods {
			if s.Pods[i].Name == "server-0" {
				spoil(&s.Pods[i])
			}
		}
		pairs := samples(t, s, 50).Pairs()
		if len(pairs) == 0 || slices.ContainsFunc(pairs, func(p step.Pair) bool {
			return p.From.Name == "server-0" || p.To.Name == "server-0" || p.Port != 8080
		}) {
			t.Errorf("%s: %v", name, pairs)
		}
	}
}

// TestPairsRefused: without policies to sample, or pods, there is no plan, and the reason is told.
func TestPairsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*cluster.Snapshot)
		says  string
	}{
		"unknown network": {nobody, "0 networks were found that Theseus knows"},
		"nothing enforces": {func(s *cluster.Snapshot) {
			s.DaemonSets = slices.DeleteFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool {
				return d.Name == "kube-router"
			})
		}, "flannel enforces no policies"},
		"unread": {func(s *cluster.Snapshot) { s.Sources[0].Missing = "forbidden" },
			"without the networkpolicies: forbidden"},
		"no pods": {func(s *cluster.Snapshot) { s.Pods = nil }, "no pair of pods was found"},
	} {
		s := peopled(t, 2, 2)
		test.spoil(s)
		guarded := upgradeGuarded()
		guarded.SamplePolicies = 4
		if _, err := guards(t, s, v1alpha1.ChangeSpec{AgentImage: "a"}, guarded); err == nil ||
			!strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPairsUnevaluated: no pair has a pod about which a policy may decide that Theseus does not evaluate. The plan
// names these policies; if only they decide, there is no plan.
func TestPairsUnevaluated(t *testing.T) {
	admin := func(subject string) unstructured.Unstructured {
		return cnitest.Snapshot(t, cnitest.Documents(t, []byte("apiVersion: policy.networking.k8s.io/v1alpha1\n"+
			"kind: AdminNetworkPolicy\nmetadata: {name: a}\nspec: {subject: {namespaces: "+subject+"}}\n"))).Other[0]
	}
	s := peopled(t, 3, 3, "ns0", "ns1")
	s.Namespaces[len(s.Namespaces)-3].Labels = map[string]string{"team": "a"} // ns0
	s.Other = append(s.Other, admin("{matchLabels: {team: a}}"))
	p := samples(t, s, 50)
	if len(p.Pairs()) == 0 || len(p.Guarded.Unevaluated) != 1 ||
		!strings.HasPrefix(p.Guarded.Unevaluated[0], "AdminNetworkPolicy/a: ") {
		t.Errorf("%d pairs; %q", len(p.Pairs()), p.Guarded.Unevaluated)
	}
	for _, pair := range p.Pairs() {
		if pair.From.Namespace == "ns0" || pair.To.Namespace == "ns0" {
			t.Errorf("%s may be decided by the policy that is not evaluated", pair)
		}
	}
	const without = "leave out --sample-policies"
	for hint, spoil := range map[string]func(s *cluster.Snapshot){
		without: func(s *cluster.Snapshot) { s.Other = append(s.Other, admin("{}")) },
		"theseus rights operate prints the rights that are missing; or " + without: func(s *cluster.Snapshot) {
			s.Sources = append(s.Sources, cluster.Source{Missing: "forbidden",
				Resource: "adminnetworkpolicies.policy.networking.k8s.io"})
		},
	} {
		s := peopled(t, 2, 2)
		spoil(s)
		guarded := upgradeGuarded()
		guarded.SamplePolicies = 4
		_, err := guards(t, s, v1alpha1.ChangeSpec{AgentImage: "a"}, guarded)
		var refusal *cni.Refusal
		if !errors.As(err, &refusal) || refusal.Hint != hint || !strings.Contains(err.Error(),
			"no pair of pods was found about which only policies decide that Theseus evaluates") {
			t.Errorf("%s: %+v", hint, err)
		}
	}
}

// TestPairsCannotDoWithout: no plan connects more pairs than the user allows, other ones than a task may name, or only
// after the change.
func TestPairsCannotDoWithout(t *testing.T) {
	at := func(p *plan.Plan, id string) *step.Step {
		return &p.Steps[slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == id })]
	}
	is := func(a step.Action) bool { return a.Op() == step.OpSample }
	if err := plan.Verify(samples(t, peopled(t, 2, 2, "ns0"), 4)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(p *plan.Plan){
		"more than allowed": func(p *plan.Plan) { p.Guarded.SamplePolicies = 3 },
		"without a flag":    func(p *plan.Plan) { p.Guarded.SamplePolicies = 0 },
		"another node":      func(p *plan.Plan) { p.Guarded.Pairs[0].Node = "elsewhere" },
		"the node itself":   func(p *plan.Plan) { p.Guarded.Pairs[0].To.Address = "127.0.0.1" },
		"not before": func(p *plan.Plan) {
			s := at(p, guard.StepProbes)
			s.Actions = slices.DeleteFunc(s.Actions, is)
		},
		"pairs of nobody": func(p *plan.Plan) { p.Guarded.Pairs = nil },
		"after the command": func(p *plan.Plan) {
			from, to := at(p, guard.StepProbes), at(p, guard.StepWatch)
			i := slices.IndexFunc(from.Actions, is)
			to.Actions = append([]step.Action{from.Actions[i]}, to.Actions...)
			from.Actions = slices.Delete(from.Actions, i, i+1)
		},
		"in a plan of another kind": func(p *plan.Plan) { p.Guarded = nil },
	} {
		p := samples(t, peopled(t, 2, 2, "ns0"), 4)
		if change(p); plan.Verify(p) == nil {
			t.Errorf("%s: it was not refused", name)
		}
	}
}
