package plan_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/step"
)

// pooled asks for another range on three nodes, whose pool encapsulates as vxlan says.
func pooled(t *testing.T, vxlan string) *request {
	r := onThree(t, "bird")
	r.change.Dataplane, r.change.Pool = "", "10.98.0.0/16"
	_ = unstructured.SetNestedField(poolIn(r), vxlan, "spec", "vxlanMode")
	return r
}

func poolIn(r *request) map[string]any {
	i := slices.IndexFunc(r.snapshot.Other, func(o unstructured.Unstructured) bool { return o.GetKind() == "IPPool" })
	return r.snapshot.Other[i].Object
}

// stepOf finds a step of a plan.
func stepOf(t *testing.T, p *plan.Plan, id string) step.Step {
	t.Helper()
	i := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == id })
	if i < 0 {
		t.Fatalf("there is no step %s", id)
	}
	return p.Steps[i]
}

func TestPool(t *testing.T) {
	for vxlan, close := range map[string]string{"Never": `{"spec":{"disabled":true}}`,
		"Always": `{"spec":{"allowedUses":["Tunnel"]}}`} {
		r := pooled(t, vxlan)
		_ = unstructured.SetNestedField(poolIn(r), "has(pods)", "spec", "nodeSelector")
		p := mustMake(t, r)
		made, _, _ := unstructured.NestedMap(stepOf(t, p, "pool/create").Actions[0].Object().Object, "spec")
		if made["cidr"] != "10.98.0.0/16" || made["nodeSelector"] != "!all()" || made["vxlanMode"] != vxlan ||
			made["natOutgoing"] != poolIn(r)["spec"].(map[string]any)["natOutgoing"] {
			t.Errorf("%s: the new pool is %v", vxlan, made)
		}
		for _, a := range stepOf(t, p, "pool/create").Actions {
			if do, is := a.Do.(step.Apply); is && do.Object.GetKind() == "Pod" &&
				do.Object.GetAnnotations()["cni.projectcalico.org/ipv4pools"] != `["pods-10-98-0-0-16"]` {
				t.Errorf("%s: the probe pod %s does not ask for the new pool", vxlan, do.Object.GetName())
			}
		}
		open := stepOf(t, p, "pool/open")
		opens, closes := open.Actions[0].Do.(step.Patch), open.Actions[1].Do.(step.Patch)
		if string(opens.Merge) != `{"spec":{"nodeSelector":"has(pods)"}}` ||
			string(closes.Merge) != close {
			t.Errorf("%s: opened by %s, closed by %s", vxlan, opens.Merge, closes.Merge)
		}
		if removed := slices.ContainsFunc(p.Steps,
			func(s step.Step) bool { return s.ID == "pool/remove" }); removed != (vxlan == "Never") {
			t.Errorf("%s: the old pool is removed: %t", vxlan, removed)
		}
		data, err := plan.Write(p)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := plan.Read(data); err != nil || again.Hash != p.Hash {
			t.Errorf("%v", err)
		}
		book := plan.Runbook(p)
		if !strings.Contains(book, "Pods of Calico from IPPool ") ||
			!strings.Contains(book, "What happens to every workload") ||
			strings.Contains(book, "stays for the addresses of the nodes' tunnels") != (vxlan == "Always") {
			t.Errorf("the runbook:\n%s", book)
		}
	}
}

// TestPoolUses: a pool that nodes' tunnels may not use goes, and is given back its uses.
func TestPoolUses(t *testing.T) {
	for uses, stays := range map[string]bool{"Workload": false, "Workload Tunnel": true} {
		r := pooled(t, "Always")
		_ = unstructured.SetNestedStringSlice(poolIn(r), strings.Fields(uses), "spec", "allowedUses")
		p := mustMake(t, r)
		back := string(stepOf(t, p, "pool/open").Undo[0].Do.(step.Patch).Merge)
		if p.Pools.Stays != stays || strings.Contains(back, `["Workload","Tunnel"]`) != stays {
			t.Errorf("%s: it stays: %t, and is given back %s", uses, p.Pools.Stays, back)
		}
	}
}

// TestPoolCannotDoWithout: no plan does without any of what it does to pools and pods, their way back, or their gates.
func TestPoolCannotDoWithout(t *testing.T) {
	for _, vxlan := range []string{"Never", "Always"} {
		p := mustMake(t, pooled(t, vxlan))
		for i, s := range p.Steps {
			vital := func(a step.Action) bool {
				return a.Op() == step.OpPatch || a.Op() == step.OpProbe && !strings.HasPrefix(s.ID, "prepare/") ||
					a.Op() == step.OpApply && a.Object().GetKind() == "IPPool" ||
					a.Op() == step.OpDelete && a.Ref().Kind == "IPPool"
			}
			for j, a := range s.Actions {
				steps := slices.Clone(p.Steps)
				steps[i].Actions = slices.Delete(slices.Clone(s.Actions), j, j+1)
				if vital(a) && plan.Verify(mutant(p, steps)) == nil {
					t.Errorf("%s: %s without %q passes", vxlan, s.ID, a.Title)
				}
			}
			for j, a := range s.Undo {
				steps := slices.Clone(p.Steps)
				steps[i].Undo = slices.Delete(slices.Clone(s.Undo), j, j+1)
				if vital(a) && plan.Verify(mutant(p, steps)) == nil {
					t.Errorf("%s: the undo of %s without %q passes", vxlan, s.ID, a.Title)
				}
			}
			if s.Gate != nil && !s.NoReturn {
				steps := slices.Clone(p.Steps)
				steps[i].Gate = nil
				if plan.Verify(mutant(p, steps)) == nil {
					t.Errorf("%s: %s without its gate passes", vxlan, s.ID)
				}
			}
		}
		order := slices.Clone(p.Steps) // pods may not move before the pools are open and closed
		i := slices.IndexFunc(order, func(s step.Step) bool { return s.ID == "pool/open" })
		order[i], order[i+1] = order[i+1], order[i]
		if plan.Verify(mutant(p, order)) == nil {
			t.Errorf("%s: pods that move first pass", vxlan)
		}
	}
}

// asks is a pod that asks for an address.
func asks(name string, phase corev1.PodPhase) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
		Annotations: map[string]string{"cni.projectcalico.org/ipAddrs": `["10.0.0.9"]`}},
		Status: corev1.PodStatus{Phase: phase}}
}

// TestPoolAskedOfNobody: what asks for addresses and gets none any more stands in nobody's way, nor do annotations that
// mean nothing.
func TestPoolAskedOfNobody(t *testing.T) {
	r := pooled(t, "Never")
	ended := asks("report", corev1.PodSucceeded)
	host := asks("agent", corev1.PodRunning)
	host.Spec.HostNetwork = true
	r.snapshot.Pods = append(r.snapshot.Pods, ended, host)
	r.snapshot.Namespaces = append(r.snapshot.Namespaces,
		corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Annotations: ended.Annotations}})
	mustMake(t, r)
}

func TestPoolRefused(t *testing.T) {
	with := func(edit func(*request)) *request { r := pooled(t, "Never"); edit(r); return r }
	set := func(value any, fields ...string) *request {
		return with(func(r *request) { _ = unstructured.SetNestedField(poolIn(r), value, fields...) })
	}
	for want, r := range map[string]*request{
		"no IPv4 range of 64":             with(func(r *request) { r.change.Pool = "10.98.0.0/28" }),
		`"10.98.0.1/16" is no IPv4 range`: with(func(r *request) { r.change.Pool = "10.98.0.1/16" }),
		`"fd00::/64" is no IPv4 range`:    with(func(r *request) { r.change.Pool = "fd00::/64" }),
		"overlaps IPPool": with(func(r *request) {
			r.change.Pool = poolIn(r)["spec"].(map[string]any)["cidr"].(string)
		}),
		"a plan makes one change": with(func(r *request) { r.change.Dataplane = "nftables" }),
		"no image of the agent":   with(func(r *request) { r.change.AgentImage = "" }),
		"leave out 2 nodes":       with(func(r *request) { r.change.Waves = []int{1} }),
		"namespace shop (cni.projectcalico.o": with(func(r *request) {
			r.snapshot.Namespaces = append(r.snapshot.Namespaces, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "shop", Annotations: map[string]string{"cni.projectcalico.org/ipv4pools": "[]"}}})
		}),
		"pod shop/db (cni.projectcalico.org/ipAddrs)": with(func(r *request) {
			r.snapshot.Pods = append(r.snapshot.Pods, asks("db", corev1.PodRunning))
		}),
		"belongs to Calico's operator": set(
			map[string]any{"app.kubernetes.io/managed-by": "tigera-operator"}, "metadata", "labels"),
		"from 2 IPv4 IPPools": with(func(r *request) {
			second := unstructured.Unstructured{Object: poolIn(r)}
			second = *second.DeepCopy()
			second.SetName("second")
			r.snapshot.Other = append(r.snapshot.Other, second)
		}),
		"an IPPool pods-10-98-0-0-16 with another": with(func(r *request) {
			r.snapshot.Other[slices.IndexFunc(r.snapshot.Other, func(o unstructured.Unstructured) bool {
				return o.GetKind() == "IPPool"
			})].SetName("pods-10-98-0-0-16")
		}),
		"a change of its pool was never run": set("Always", "spec", "ipipMode"),
		"serves only some namespaces":        set("all()", "spec", "namespaceSelector"),
		"this cluster is on flannel":         with(func(r *request) { r.snapshot = flannelToCalico(t).snapshot }),
	} {
		if _, err := r.make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
