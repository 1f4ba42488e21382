package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/guard"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// guards plans to guard a command on a snapshot.
func guards(t *testing.T, snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec,
	guarded kind.Guard) (*plan.Plan, error) {
	t.Helper()
	draft, err := guard.Propose(&kind.Request{Snapshot: snapshot, Change: change, Drivers: drivers(),
		Options: plan.Options{Version: "v0.0.0-test", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}, guarded)
	if err != nil {
		return nil, err
	}
	return plan.Seal(snapshot, draft)
}

func upgradeGuarded() kind.Guard {
	return kind.Guard{Command: []string{"helm", "upgrade", "net", "--set", "a=b c"},
		Quiet: step.Duration(30 * time.Second), AtMost: step.Duration(time.Minute)}
}

// nobody leaves nothing in a snapshot by which a driver knows its network.
func nobody(snapshot *cluster.Snapshot) {
	snapshot.DaemonSets, snapshot.ConfigMaps = nil, nil
	for i := range snapshot.Nodes {
		snapshot.Nodes[i].Annotations = nil
	}
}

// TestGuard: a command is guarded on a network that is known and on one that is not; the plan is written and read as it
// is.
func TestGuard(t *testing.T) {
	for name, source := range map[string]string{"flannel.yaml": "flannel", "calico.yaml": "calico", "unknown": ""} {
		fixture := name
		if source == "" {
			fixture = "flannel.yaml"
		}
		snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, fixture))
		if source == "" {
			nobody(snapshot)
		}
		p, err := guards(t, snapshot, v1alpha1.ChangeSpec{AgentImage: "theseus.dev/agent:dev"}, upgradeGuarded())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		from := source
		if from == "" {
			from = "unknown network"
		}
		if p.From() != from || p.To() != "helm upgrade net --set 'a=b c'" || !p.Foreign() ||
			!p.InPlace() || !p.OnNodes() {
			t.Errorf("%s: from %q to %q", name, p.From(), p.To())
		}
		data, err := plan.Write(p)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := plan.Read(data); err != nil || again.Hash != p.Hash {
			t.Errorf("%s: read again: %v", name, err)
		}
		if book := plan.Runbook(p); !strings.Contains(book, "helm upgrade net --set 'a=b c'") ||
			!strings.Contains(book, "what the command did stays") {
			t.Errorf("%s: the runbook:\n%s", name, book)
		}
		if reach := plan.ReachOf(p); !slices.Contains(reach.Commands, "helm upgrade net --set 'a=b c'") {
			t.Errorf("%s: it reaches %+v", name, reach)
		}
	}
}

// TestGuardOthers: changes of others are measured by a plan without a command; nothing may be put in the place of the
// user's word.
func TestGuardOthers(t *testing.T) {
	made := func() *plan.Plan {
		guarded := upgradeGuarded()
		guarded.Command, guarded.Others = nil, true
		p, err := guards(t, cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml")),
			v1alpha1.ChangeSpec{AgentImage: "a"}, guarded)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := made()
	at := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.Awaits() })
	if err := plan.Verify(p); err != nil || p.To() != "changes by others" || at < 0 ||
		p.Steps[at].ID != guard.StepChange || !p.Foreign() {
		t.Fatalf("%v; to %q, step %d", err, p.To(), at)
	}
	if reach := plan.ReachOf(p); len(reach.Commands) > 0 {
		t.Errorf("it reaches %+v", reach)
	}
	for name, change := range map[string]func(p *plan.Plan){
		"a command as well":   func(p *plan.Plan) { p.Guarded.Command = []string{"true"} },
		"a command instead":   func(p *plan.Plan) { p.Steps[at].Actions[0].Do = step.Command{} },
		"nothing in place":    func(p *plan.Plan) { p.Steps[at].Actions = nil },
		"a way back":          func(p *plan.Plan) { p.Guarded.OnLoss = []string{"true"} },
		"before the baseline": func(p *plan.Plan) { p.Steps[at], p.Steps[at-1] = p.Steps[at-1], p.Steps[at] },
	} {
		p := made()
		if change(p); plan.Verify(p) == nil {
			t.Errorf("%s: it was not refused", name)
		}
	}
}

// TestGuardRefuses: a node that is not Ready could not be measured, and without an image nothing can.
func TestGuardRefuses(t *testing.T) {
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
	if _, err := guards(t, snapshot, v1alpha1.ChangeSpec{}, upgradeGuarded()); err == nil ||
		!strings.Contains(err.Error(), "no image of the agent") {
		t.Errorf("without an image: %v", err)
	}
	snapshot.Nodes[0].Status.Conditions = nil
	if _, err := guards(t, snapshot, v1alpha1.ChangeSpec{AgentImage: "a"}, upgradeGuarded()); err == nil ||
		!strings.Contains(err.Error(), "is not Ready") {
		t.Errorf("with a node that is not Ready: %v", err)
	}
}

// TestGuardCannotDoWithout: no plan does without the baseline, the watching, the gate that is the result, or the
// removal; and a plan of another kind has no such gate and runs no command.
func TestGuardCannotDoWithout(t *testing.T) {
	made := func() *plan.Plan {
		p, err := guards(t, cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml")),
			v1alpha1.ChangeSpec{AgentImage: "a"}, upgradeGuarded())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	at := func(p *plan.Plan, id string) *step.Step {
		return &p.Steps[slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == id })]
	}
	if err := plan.Verify(made()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(p *plan.Plan){
		"no baseline": func(p *plan.Plan) { at(p, guard.StepProbes).Gate = nil },
		"no command":  func(p *plan.Plan) { p.Guarded.Command = nil },
		"twice": func(p *plan.Plan) {
			s := at(p, guard.StepCommand)
			s.Actions = append(s.Actions, s.Actions[0])
			s.Actions[1].ID = "again"
		},
		"no watching":    func(p *plan.Plan) { at(p, guard.StepWatch).Actions = nil },
		"no result":      func(p *plan.Plan) { at(p, guard.StepWatch).Gate = nil },
		"a gate instead": func(p *plan.Plan) { at(p, guard.StepWatch).Gate.Result = false },
		"no new pods before": func(p *plan.Plan) {
			s := at(p, guard.StepProbes)
			s.Actions = slices.DeleteFunc(s.Actions, func(a step.Action) bool { return a.Op() == step.OpNewPods })
		},
		"new pods that nobody asked for": func(p *plan.Plan) { p.Guarded.NewPods = 0 },
		"new pods after the command": func(p *plan.Plan) {
			from, to := at(p, guard.StepProbes), at(p, guard.StepWatch)
			i := slices.IndexFunc(from.Actions, func(a step.Action) bool { return a.Op() == step.OpNewPods })
			to.Actions = append([]step.Action{from.Actions[i]}, to.Actions...)
			from.Actions = slices.Delete(from.Actions, i, i+1)
		},
		"measured on": func(p *plan.Plan) { s := at(p, "finish/probes"); s.Actions = s.Actions[1:] },
		"no way back": func(p *plan.Plan) { s := at(p, guard.StepProbes); s.Undo = s.Undo[1:] },
		"another's": func(p *plan.Plan) {
			at(p, "finish/theseus").Actions[0].Do = step.Delete{
				Ref: step.Ref{Kind: "Pod", Namespace: "default", Name: "x"}}
		},
		"of another kind": func(p *plan.Plan) { p.Guarded = nil },
	} {
		p := made()
		change(p)
		if err := plan.Verify(p); err == nil {
			t.Errorf("%s: it was not refused", name)
		}
	}
}

// TestGuardLocal: a guard has the Services that lead to a pod's own node, and removes them; its probe pods have ports
// of their nodes unless another pod has one of them; and the name server of each node is the one that its DaemonSet
// names.
func TestGuardLocal(t *testing.T) {
	taken := func(port corev1.ContainerPort, hostNetwork bool) func(*cluster.Snapshot) {
		return func(snapshot *cluster.Snapshot) {
			pod := corev1.Pod{}
			pod.Spec.HostNetwork = hostNetwork
			pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{port}}}
			snapshot.Pods = append(snapshot.Pods, pod)
		}
	}
	cached := func(args ...string) func(*cluster.Snapshot) {
		return func(snapshot *cluster.Snapshot) {
			set := appsv1.DaemonSet{}
			set.Name, set.Namespace = "node-local-dns", "kube-system"
			set.Spec.Template.Spec.Containers = []corev1.Container{{Args: args}}
			snapshot.DaemonSets = append(snapshot.DaemonSets, set)
		}
	}
	for name, test := range map[string]struct {
		change    func(*cluster.Snapshot)
		hostPorts bool
		dns       string
	}{
		"nothing special":          {func(*cluster.Snapshot) {}, true, ""},
		"no pod was read":          {func(s *cluster.Snapshot) { s.Sources = nil }, false, ""},
		"a pod has the hostPort":   {taken(corev1.ContainerPort{ContainerPort: 80, HostPort: 7202}, false), false, ""},
		"the other one":            {taken(corev1.ContainerPort{ContainerPort: 80, HostPort: 7204}, false), false, ""},
		"a node's program has it":  {taken(corev1.ContainerPort{ContainerPort: 7202}, true), false, ""},
		"a pod's own port":         {taken(corev1.ContainerPort{ContainerPort: 7202}, false), true, ""},
		"a cache":                  {cached("-localip", "10.96.0.10,169.254.20.10", "-conf"), true, "169.254.20.10"},
		"a cache, in one word":     {cached("--localip=169.254.25.10"), true, "169.254.25.10"},
		"a cache in kube-dns only": {cached("-localip", "10.96.0.10"), true, ""},
		"a cache without a value":  {cached("-conf", "x", "-localip"), true, ""},
		"a cache of IPv6":          {cached("-localip", "fe80::10"), true, ""},
	} {
		snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
		snapshot.Sources = append(snapshot.Sources, cluster.Source{Resource: "pods"})
		test.change(snapshot)
		p, err := guards(t, snapshot, v1alpha1.ChangeSpec{AgentImage: "a"}, upgradeGuarded())
		if err != nil {
			t.Fatal(err)
		}
		if g := p.Guarded; g.HostPorts != test.hostPorts || (g.NoHostPorts == "") != test.hostPorts ||
			g.LocalDNS != test.dns {
			t.Errorf("%s: hostPorts %v, name server %q", name, g.HostPorts, g.LocalDNS)
		}
		made, removed, ports := map[string]bool{}, map[string]bool{}, 0
		for i := range p.Steps {
			for _, action := range p.Steps[i].Actions {
				switch do := action.Do.(type) {
				case step.Apply:
					made[do.Object.GetName()] = true
					text, err := do.Object.MarshalJSON()
					if err != nil || strings.Contains(string(text), `"hostPort":7202`) {
						ports++
					}
				case step.Delete:
					removed[do.Ref.Name] = true
				}
			}
		}
		for _, service := range []string{"theseus-probe-old-local", "theseus-probe-old-port-local"} {
			if !made[service] || !removed[service] {
				t.Errorf("%s: %s: made %v, removed %v", name, service, made[service], removed[service])
			}
		}
		if (ports == len(p.Cluster.Nodes)) != test.hostPorts || !test.hostPorts && ports > 0 {
			t.Errorf("%s: %d pods with ports of nodes", name, ports)
		}
		if p.Guarded.LocalDNS = "192.0.2.1"; plan.Verify(p) == nil {
			t.Errorf("%s: a name server elsewhere was not refused", name)
		}
	}
}
