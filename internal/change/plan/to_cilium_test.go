package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// flannelToCilium is a change from flannel with kube-router to what Cilium's chart makes.
func flannelToCilium(t testing.TB) *request {
	r := flannelToCalico(t)
	for i := range r.snapshot.Nodes {
		r.snapshot.Nodes[i].Status.NodeInfo.KernelVersion = "6.8.0-45-generic"
	}
	r.change.To, r.change.Manifest = "cilium", "cilium.yaml"
	r.options.Manifest = cnitest.Fixture(t, "charts/cilium-v1.19.0.yaml")
	return r
}

// calicoToCilium is a change from Calico over VXLAN to what Cilium's chart makes.
func calicoToCilium(t testing.TB) *request {
	r := flannelToCilium(t)
	nodes := r.snapshot.Nodes
	r.snapshot = cnitest.Golden(t, "calico")
	for i := range r.snapshot.Nodes {
		r.snapshot.Nodes[i].Status.NodeInfo.KernelVersion = nodes[0].Status.NodeInfo.KernelVersion
	}
	return r
}

// TestCalicoToCilium: pods are created again, while those of Calico are introduced to Cilium's agents, and Felix's own
// bits of marks stay as they are.
func TestCalicoToCilium(t *testing.T) {
	p := mustMake(t, calicoToCilium(t))
	golden(t, "calico-to-cilium-runbook.txt", []byte(plan.Runbook(p)))
	if marks := p.Target.Capabilities.Marks; p.Strategy != "recreate" || len(marks) != 1 || marks[0].Hook != step.Sent {
		t.Errorf("strategy %s to %+v", p.Strategy, p.Target)
	}
	introduced := false
	for _, s := range p.Steps {
		for _, a := range s.Actions {
			introduced = introduced || a.Op() == step.OpApply && step.RefOf(a.Object()) == joint.IntroducerRef()
		}
	}
	if !introduced {
		t.Error("nothing introduces Calico's pods to Cilium")
	}
	mustNeedOrder(t, p, nil)
}

// TestToCiliumEncrypted: no change ends encryption without a word.
func TestToCiliumEncrypted(t *testing.T) {
	r := calicoToCilium(t)
	r.snapshot.Other = append(r.snapshot.Other, cnitest.Documents(t, []byte("apiVersion: crd.projectcalico.org/v1\n"+
		"kind: FelixConfiguration\nmetadata: {name: node.node-2}\nspec: {wireguardEnabled: true}\n"))...)
	if hint := mustRefuse(t, r, "encrypts traffic between nodes (WireGuard)"); !strings.Contains(hint,
		"wireguardEnabled: false") {
		t.Errorf("the hint is %q", hint)
	}
}

// globalPolicy denies everything to a workload, as Calico's policy and as Cilium's.
const (
	globalPolicy = "apiVersion: crd.projectcalico.org/v1\nkind: GlobalNetworkPolicy\nmetadata: {name: db}\n" +
		"spec: {selector: app == 'db', types: [Ingress]}\n"
	ciliumPolicy = "apiVersion: cilium.io/v2\nkind: CiliumClusterwideNetworkPolicy\nmetadata: {name: db}\n" +
		"spec: {endpointSelector: {matchLabels: {app: db}}, ingress: [{}]}\n"
)

// TestCalicoPoliciesToCilium: policies that only Calico reads stop a change to Cilium, until the manifest has Cilium's.
// Those are there before the first pod is on Cilium, stay, and a rollback deletes them.
func TestCalicoPoliciesToCilium(t *testing.T) {
	r := calicoToCilium(t)
	r.snapshot.Other = append(r.snapshot.Other, cnitest.Documents(t, []byte(globalPolicy))...)
	if hint := mustRefuse(t, r, "GlobalNetworkPolicy db"); !strings.Contains(hint,
		"theseus policy translate --from calico --to cilium") {
		t.Errorf("the hint is %q", hint)
	}
	// the sets that policies select go with them, and nobody is told to delete them before
	r.snapshot.Other = append(r.snapshot.Other, cnitest.Documents(t, []byte(
		"apiVersion: crd.projectcalico.org/v1\nkind: GlobalNetworkSet\nmetadata: {name: offices}\n"))...)
	if hint := mustRefuse(t, r, "GlobalNetworkSet offices"); !strings.Contains(hint, "theseus policy translate") ||
		strings.Contains(hint, "delete") {
		t.Errorf("the hint is %q", hint)
	}
	r.options.Manifest = append(r.options.Manifest, cnitest.Documents(t, []byte(strings.Replace(
		strings.Replace(ciliumPolicy, "Clusterwide", "", 1), "name: db", "name: db, namespace: none", 1)))...)
	if hint := mustRefuse(t, r, "is in namespace none"); !strings.Contains(hint, "leave the policy out") ||
		strings.Contains(hint, "privileged") {
		t.Errorf("the hint is %q", hint)
	}
	r.options.Manifest = r.options.Manifest[:len(r.options.Manifest)-1]
	r.options.Manifest = append(r.options.Manifest, cnitest.Documents(t, []byte(ciliumPolicy))...)
	p := mustMake(t, r)
	wanted := func(ref step.Ref) bool { return ref.Kind == "CiliumClusterwideNetworkPolicy" && ref.Name == "db" }
	applied, undone, waited := -1, false, false
	for i, s := range p.Steps {
		for _, a := range s.Actions {
			switch do := a.Do.(type) {
			case step.Apply:
				if wanted(step.RefOf(do.Object)) {
					applied = i
				}
			case step.Wait:
				is, established := do.Condition.Is.(step.Established)
				waited = waited || established && applied < 0 &&
					is.Ref.Name == "ciliumclusterwidenetworkpolicies.cilium.io"
			case step.Delete:
				if wanted(do.Ref) {
					t.Errorf("step %s deletes the policy", s.ID)
				}
			case step.Node:
				if do.Verb == step.VerbActivate && applied < 0 {
					t.Errorf("%s is switched before the policy is there", do.NodeName)
				}
			}
		}
		for _, a := range s.Undo {
			do, is := a.Do.(step.Delete)
			undone = undone || is && wanted(do.Ref) && i == applied
		}
	}
	if applied < 0 || !undone || !waited {
		t.Errorf("applied by step %d, undone: %t, its CRD is waited for: %t", applied, undone, waited)
	}
	for name, harm := range map[string]func(*step.Step){
		"without the policy": func(s *step.Step) {
			s.Actions = slices.DeleteFunc(slices.Clone(s.Actions), func(a step.Action) bool {
				return a.Op() == step.OpApply && wanted(step.RefOf(a.Object()))
			})
			s.Undo = slices.DeleteFunc(slices.Clone(s.Undo), func(a step.Action) bool {
				do, is := a.Do.(step.Delete)
				return is && wanted(do.Ref)
			})
		},
		"with a policy that stays after a rollback": func(s *step.Step) {
			s.Undo = slices.DeleteFunc(slices.Clone(s.Undo), func(a step.Action) bool {
				do, is := a.Do.(step.Delete)
				return is && wanted(do.Ref)
			})
		},
	} {
		p := mustMake(t, r)
		harm(&p.Steps[applied])
		p.Steps[applied].Number()
		if plan.Verify(p) == nil {
			t.Errorf("a plan %s passes", name)
		}
	}
	r.snapshot.Other = append(r.snapshot.Other, cnitest.Documents(t, []byte(
		"apiVersion: crd.projectcalico.org/v1\nkind: BGPPeer\nmetadata: {name: rack}\n"))...)
	if hint := mustRefuse(t, r, "1 object that would be deleted with calico: BGPPeer rack"); strings.Contains(hint,
		"translate") {
		t.Errorf("what is no policy: %q", hint)
	}
}

// TestToCilium: pods are created again, while a program makes those of flannel known to Cilium's agents.
func TestToCilium(t *testing.T) {
	p := mustMake(t, flannelToCilium(t))
	golden(t, "to-cilium-runbook.txt", []byte(plan.Runbook(p)))
	if p.Strategy != "recreate" || len(p.Target.Capabilities.Marks) != 2 {
		t.Errorf("strategy %s to %+v", p.Strategy, p.Target)
	}
}

// TestVerifyToCiliumOrder: no step of such a plan may be left out or stand anywhere else.
func TestVerifyToCiliumOrder(t *testing.T) {
	mustNeedOrder(t, mustMake(t, flannelToCilium(t)), nil)
}

// TestVerifyToCilium: nodes are joined with the changes of marks, pods are introduced by Theseus' own program, and
// every CRD of Cilium is looked for, and deleted by a rollback.
func TestVerifyToCilium(t *testing.T) {
	for name, harm := range map[string]func(s *step.Step, a *step.Action) bool{
		"marks": func(_ *step.Step, a *step.Action) bool {
			if a.Verb() != step.VerbJoin {
				return false
			}
			step.Edit(a, func(do *step.Node) {
				do.Args = []byte(`{"old": ["10.244.0.0/16"], "new": ["10.96.0.0/16"]}`)
			})
			return true
		},
		"a writer of other pods": writer(func(o map[string]any) error {
			return unstructured.SetNestedStringSlice(o,
				[]string{"introduce", "--to", "cilium", "--pods", "10.99.0.0/16"}, "args")
		}),
		"no writer at all": applied("Deployment", func(o map[string]any) error {
			return unstructured.SetNestedField(o, int64(0), "spec", "replicas")
		}),
		"a writer with all rights": applied("ClusterRole", func(o map[string]any) error {
			return unstructured.SetNestedSlice(o,
				[]any{map[string]any{"apiGroups": []any{"*"}, "resources": []any{"*"}, "verbs": []any{"*"}}}, "rules")
		}),
		"a writer that is somebody else": applied("ClusterRoleBinding", func(o map[string]any) error {
			return unstructured.SetNestedField(o, "cluster-admin", "roleRef", "name")
		}),
		"a CRD that is not looked for": func(s *step.Step, _ *step.Action) bool {
			if s.Does != "own-definitions" {
				return false
			}
			s.Before, s.Undo = s.Before[1:], s.Undo[1:]
			return true
		},
		"a CRD that is looked for when the step has an undo already": func(s *step.Step, _ *step.Action) bool {
			if s.Does != "own-definitions" {
				return false
			}
			s.Actions = append(s.Actions, joint.Wait("wait", s.Before[0], time.Minute))
			s.Before = s.Before[1:]
			s.Number()
			return true
		},
		"a CRD that stays": func(s *step.Step, _ *step.Action) bool {
			if s.Does != "own-definitions" {
				return false
			}
			s.Undo = s.Undo[1:]
			return true
		},
		"an undo that has no action before it": func(s *step.Step, _ *step.Action) bool {
			if s.Does != "own-definitions" {
				return false
			}
			s.Actions = nil
			return true
		},
	} {
		p := mustMake(t, flannelToCilium(t))
		harmed := false
		for i := range p.Steps {
			s := &p.Steps[i]
			s.Actions, s.Undo = slices.Clone(s.Actions), slices.Clone(s.Undo)
			for j := 0; j < len(s.Actions) && !harmed; j++ {
				harmed = harm(s, &s.Actions[j])
			}
		}
		if !harmed {
			t.Errorf("%s: the plan has nothing of it", name)
		} else if plan.Verify(p) == nil {
			t.Errorf("%s: the plan passes", name)
		}
	}
}

// applied harms an object that introduces pods.
func applied(kind string, harm func(object map[string]any) error) func(*step.Step, *step.Action) bool {
	return func(_ *step.Step, a *step.Action) bool {
		if a.Op() != step.OpApply || a.Object().GetKind() != kind || a.Object().GetName() != "theseus-introduce" {
			return false
		}
		a.Do = step.Apply{Object: a.Object().DeepCopy()}
		return harm(a.Object().Object) == nil
	}
}

// writer harms the container that introduces pods.
func writer(harm func(container map[string]any) error) func(*step.Step, *step.Action) bool {
	return applied("Deployment", func(o map[string]any) error {
		at := []string{"spec", "template", "spec", "containers"}
		all, _, err := unstructured.NestedSlice(o, at...)
		if err != nil {
			return err
		}
		return errors.Join(harm(all[0].(map[string]any)), unstructured.SetNestedSlice(o, all, at...))
	})
}

// TestToCiliumRefuses: which sources were never run, and what would be lost.
func TestToCiliumRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*request)
		words  string // of the refusal
		hint   string
	}{
		{"adoption", func(r *request) { r.change.Strategy, r.change.PodCIDR = "adopt", "" },
			"cilium cannot give a pod the address", "--pod-cidr"},
		{"no policy agent", func(r *request) {
			r.snapshot.DaemonSets = slices.DeleteFunc(r.snapshot.DaemonSets, func(d appsv1.DaemonSet) bool {
				return d.Name == "kube-router"
			})
		}, "only from flannel over VXLAN with kube-router", "docs/networks.md"},
		{"an old kernel", func(r *request) { r.snapshot.Nodes[1].Status.NodeInfo.KernelVersion = "5.15.0-91-generic" },
			"node node-2 has Linux 5.15.0-91-generic", "6.6"},
		{"CRDs of a former Cilium", func(r *request) {
			r.snapshot.Other = append(r.snapshot.Other, definition(t, "tracingpolicies.cilium.io"),
				definition(t, "ciliumnodes.cilium.io"))
		}, "already has 1 CRD of Cilium (ciliumnodes.cilium.io)", "kubectl delete crd ciliumnodes.cilium.io"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := flannelToCilium(t)
			test.change(r)
			if hint := mustRefuse(t, r, test.words); !strings.Contains(hint, test.hint) ||
				strings.Contains(hint, "tracingpolicies") {
				t.Errorf("the hint is %q, want %q", hint, test.hint)
			}
		})
	}
}

// TestToCiliumStale: what a team installs between plan and apply must survive a rollback.
func TestToCiliumStale(t *testing.T) {
	p, r := mustMake(t, flannelToCilium(t)), flannelToCilium(t)
	r.snapshot.Other = append(r.snapshot.Other, definition(t, "tracingpolicies.cilium.io"))
	if changed := plan.Stale(p, r.snapshot); len(changed) > 0 {
		t.Errorf("with another project's CRD: %q", changed)
	}
	r.snapshot.Other = append(r.snapshot.Other, definition(t, "ciliumnetworkpolicies.cilium.io"))
	changed := strings.Join(plan.Stale(p, r.snapshot), "; ")
	if !strings.Contains(changed, "CustomResourceDefinition/ciliumnetworkpolicies.cilium.io was created") {
		t.Errorf("with one of Cilium's CRDs: %q", changed)
	}
}

func definition(t testing.TB, name string) unstructured.Unstructured {
	return cnitest.Documents(t,
		[]byte("apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: "+name+"}\n"))[0]
}

// TestToCiliumUndoes: a rollback deletes the CRDs that Cilium's operator has made, and stops the program that
// introduces pods.
func TestToCiliumUndoes(t *testing.T) {
	p := mustMake(t, flannelToCilium(t))
	undone := map[string]bool{}
	for _, s := range p.Steps {
		for _, a := range s.Undo {
			if do, is := a.Do.(step.Delete); is {
				undone[do.Ref.String()] = true
			}
		}
	}
	for _, want := range []string{"CustomResourceDefinition/ciliumidentities.cilium.io",
		"CustomResourceDefinition/ciliumendpoints.cilium.io",
		"Deployment/theseus-system/theseus-introduce", "ClusterRole/theseus-introduce"} {
		if !undone[want] {
			t.Errorf("%s is not undone: %v", want, undone)
		}
	}
}
