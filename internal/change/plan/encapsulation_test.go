package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// carried asks for another encapsulation on three nodes of one subnet, whose pool says mode, and where BIRD runs.
func carried(t *testing.T, mode, to string) *request {
	r := onThree(t, "bird")
	r.change.Dataplane, r.change.Encapsulation, r.change.Waves = "", to, []int{1, 0}
	_ = unstructured.SetNestedField(poolIn(r), mode, "spec", "vxlanMode")
	for i := range r.snapshot.Nodes {
		n := &r.snapshot.Nodes[i]
		n.Annotations = maps.Clone(n.Annotations)
		if mode != "Never" {
			n.Annotations["projectcalico.org/IPv4VXLANTunnelAddr"] = fmt.Sprintf("10.96.%d.1", i)
		}
	}
	return r
}

// onNodes are the verbs of a step with the arguments that matter, each once.
func onNodes(t *testing.T, s step.Step) string {
	t.Helper()
	var said []string
	for _, a := range s.Actions {
		word := string(a.Op())
		if do, is := a.Do.(step.Node); is {
			args, err := step.Arguments[step.PinArgs](a)
			if err != nil {
				t.Fatal(err)
			}
			word = strings.TrimSpace(fmt.Sprintf("%s %s %s", do.Verb, args.Far, args.Way))
			if args.Linger {
				word += " linger"
			}
		}
		if len(said) == 0 || said[len(said)-1] != word {
			said = append(said, word)
		}
	}
	return strings.Join(said, ", ")
}

func TestEncapsulation(t *testing.T) {
	for name, c := range map[string]struct{ mode, to, change, follow, set, restore string }{
		"vxlan to none": {"Always", "none", "apply, pin refuse linger, patch, routed refuse bgp",
			"follow refuse bgp", "Never", "Always"},
		"cross to none": {"CrossSubnet", "none", "apply, pin refuse linger, patch, routed refuse bgp",
			"follow refuse bgp", "Never", "CrossSubnet"},
		"none to vxlan": {"Never", "vxlan", "pin route, patch, routed route tunnel",
			"follow route tunnel", "Always", "Never"},
		"none to cross": {"Never", "vxlan-cross-subnet", "pin route, patch, routed route cross-subnet",
			"follow route cross-subnet", "CrossSubnet", "Never"},
		"vxlan to cross": {"Always", "vxlan-cross-subnet", "pin leave, patch, routed leave cross-subnet",
			"follow leave cross-subnet", "CrossSubnet", "Always"},
		"cross to vxlan": {"CrossSubnet", "vxlan", "pin leave, patch, routed leave tunnel",
			"follow leave tunnel", "Always", "CrossSubnet"},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustMake(t, carried(t, c.mode, c.to))
			change := stepOf(t, p, "encapsulation/pool")
			if got := onNodes(t, change); got != c.change {
				t.Errorf("the change does %s", got)
			}
			if got := onNodes(t, stepOf(t, p, "follow/wave-1")); got != c.follow {
				t.Errorf("the first wave does %s", got)
			}
			for _, a := range change.Actions {
				if do, is := a.Do.(step.Patch); is && string(do.Merge) != `{"spec":{"vxlanMode":"`+c.set+`"}}` {
					t.Errorf("the pool gets %s", do.Merge)
				}
				if do, is := a.Do.(step.Apply); is &&
					fmt.Sprint(do.Object.Object["spec"]) != "map[reservedCIDRs:[10.96.0.1/32 "+
						"10.96.1.1/32 10.96.2.1/32]]" {
					t.Errorf("what is reserved is %v", do.Object.Object["spec"])
				}
			}
			if string(change.Undo[0].Do.(step.Patch).Merge) != `{"spec":{"vxlanMode":"`+c.restore+`"}}` {
				t.Errorf("the pool is given back %s", change.Undo[0].Do.(step.Patch).Merge)
			}
			if got := p.Target.Capabilities.Encapsulation; (got == "none") != (c.to == "none") {
				t.Errorf("the network to come says %s of itself", got)
			}
			data, err := plan.Write(p)
			if err != nil {
				t.Fatal(err)
			}
			if again, err := plan.Read(data); err != nil || again.Hash != p.Hash || !again.InPlace() {
				t.Errorf("%v", err)
			}
			if book := plan.Runbook(p); !strings.Contains(book, "to encapsulation "+c.to) ||
				!strings.Contains(book, "Pods keep running") ||
				strings.Contains(book, "The IPReservation theseus-tunnels stays") != (c.to == "none") {
				t.Errorf("the runbook:\n%s", book)
			}
		})
	}
}

func TestEncapsulationGolden(t *testing.T) {
	golden(t, "encapsulation-runbook.txt", []byte(plan.Runbook(mustMake(t, carried(t, "Always", "none")))))
}

// TestEncapsulationAgain: a pool without the field gets it taken away again, and addresses that tunnels had before stay
// reserved.
func TestEncapsulationAgain(t *testing.T) {
	r := carried(t, "Never", "vxlan")
	unstructured.RemoveNestedField(poolIn(r), "spec", "vxlanMode")
	if undo := stepOf(t, mustMake(t, r),
		"encapsulation/pool").Undo[0]; string(undo.Do.(step.Patch).Merge) != `{"spec":{"vxlanMode":null}}` {
		t.Errorf("the pool is given back %s", undo.Do.(step.Patch).Merge)
	}
	r = carried(t, "Always", "none")
	r.snapshot.Other = append(r.snapshot.Other, cnitest.Documents(t,
		[]byte("apiVersion: crd.projectcalico.org/v1\nkind: IPReservation\nmetadata: {name: theseus-tunnels}\n"+
			"spec: {reservedCIDRs: [10.96.7.7/32]}\n"))...)
	if spec := fmt.Sprint(stepOf(t, mustMake(t, r), "encapsulation/pool").
		Actions[0].Object().Object["spec"]); !strings.Contains(spec, "10.96.1.1/32 10.96.2.1/32 10.96.7.7/32") {
		t.Errorf("what is reserved is %s", spec)
	}
}

// TestEncapsulationCannotDoWithout: no plan does without any of what it does to nodes and to the pool, the way back,
// the gates, or the order.
func TestEncapsulationCannotDoWithout(t *testing.T) {
	vital := func(a step.Action) bool {
		return a.Op() == step.OpNode || a.Op() == step.OpPatch ||
			a.Op() == step.OpApply && a.Ref().Kind == "IPReservation"
	}
	for mode, to := range map[string]string{"Always": "none", "Never": "vxlan", "CrossSubnet": "vxlan"} {
		p := mustMake(t, carried(t, mode, to))
		fails := func(i int, s step.Step, what string) {
			t.Helper()
			steps := slices.Clone(p.Steps)
			steps[i] = s
			if plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("%s to %s: %s %s passes", mode, to, s.ID, what)
			}
		}
		touches := func(s step.Step) bool { return slices.ContainsFunc(s.Actions, vital) }
		for i, s := range p.Steps {
			for j, a := range s.Actions {
				without := s
				if without.Actions = slices.Delete(slices.Clone(s.Actions), j, j+1); vital(a) {
					fails(i, without, "without "+a.Title)
				}
			}
			for j, a := range s.Undo {
				without := s
				if without.Undo = slices.Delete(slices.Clone(s.Undo), j, j+1); vital(a) {
					fails(i, without, "without the undo "+a.Title)
				}
			}
			if !touches(s) {
				continue
			}
			ungated, final := s, s
			ungated.Gate, final.NoReturn = nil, true
			fails(i, ungated, "without its gate")
			if !s.NoReturn {
				fails(i, final, "as a point of no return")
			}
			if steps := slices.Delete(slices.Clone(p.Steps), i, i+1); plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("%s to %s: without %s it passes", mode, to, s.ID)
			}
			for j, other := range p.Steps { // waves may change places among themselves
				steps := slices.Clone(p.Steps)
				steps[i], steps[j] = steps[j], steps[i]
				head, _, _ := strings.Cut(s.ID, "/wave")
				if i != j && touches(other) && !strings.HasPrefix(other.ID, head+"/wave") &&
					plan.Verify(mutant(p, steps)) == nil {
					t.Errorf("%s to %s: with %s and %s the other way round it passes", mode, to, s.ID, other.ID)
				}
			}
		}
		i := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "encapsulation/pool" })
		first := p.Steps[i] // the pool before the pins are made again
		first.Actions = slices.Clone(first.Actions)
		at := slices.IndexFunc(first.Actions, func(a step.Action) bool { return a.Op() == step.OpPatch })
		patch := first.Actions[at]
		fails(i, withActions(first, slices.Insert(slices.Delete(first.Actions, at, at+1), 0, patch)),
			"with the pool first")
		foreign := append(slices.Clone(p.Steps[i].Actions),
			step.Action{ID: "x", Do: step.Delete{Ref: step.Ref{Kind: "IPPool", Name: p.Encapsulation.Pool}}})
		fails(i, withActions(p.Steps[i], foreign), "with a pool that is deleted")
	}
}

func withActions(s step.Step, actions []step.Action) step.Step {
	s.Actions = actions
	return s
}

func TestEncapsulationRefused(t *testing.T) {
	with := func(mode, to string, edit func(*request)) *request {
		r := carried(t, mode, to)
		edit(r)
		return r
	}
	felix := func(to, field string, value any) *request {
		return with("Always", to, func(r *request) {
			r.snapshot.Other = append(r.snapshot.Other,
				unstructured.Unstructured{Object: map[string]any{"apiVersion": "crd.projectcalico.org/v1",
					"kind": "FelixConfiguration", "metadata": map[string]any{"name": "default"},
					"spec": map[string]any{field: value}}})
		})
	}
	far := func(r *request) { r.snapshot.Nodes[2].Annotations["projectcalico.org/IPv4Address"] = "10.0.1.3/24" }
	for want, r := range map[string]*request{
		`"wireguard" is not known`:       carried(t, "Always", "wireguard"),
		"a change to IPIP was never run": carried(t, "Always", "ipip"),
		"already has vxlan":              carried(t, "Always", "vxlan"),
		"already has none":               carried(t, "Never", "none"),
		"a plan makes one change": with("Always", "none", func(r *request) {
			r.change.Dataplane = "nftables"
		}),
		"no image of the agent": with("Always", "none", func(r *request) { r.change.AgentImage = "" }),
		"leave out 2 nodes": with("Always", "none", func(r *request) {
			r.change.Waves = []int{1}
		}),
		"BIRD does not run here": with("Always", "none", func(r *request) {
			r.snapshot.ConfigMaps[0].Data["calico_backend"] = "vxlan"
		}),
		"third is in another subnet than": with("Always", "none", far),
		"the subnet of node second is not": with("Always", "none", func(r *request) {
			r.snapshot.Nodes[1].Annotations = nil
		}),
		"disableBGPExport forbids that": with("Always", "none", func(r *request) {
			_ = unstructured.SetNestedField(poolIn(r), true, "spec", "disableBGPExport")
		}),
		"encapsulates by IPIP": with("Never", "vxlan", func(r *request) {
			_ = unstructured.SetNestedField(poolIn(r), "Always", "spec", "ipipMode")
		}),
		`the unknown vxlanMode "Perhaps"`: carried(t, "Perhaps", "none"),
		"pairs of nodes would have no route to each other by BGP": with("Always", "none", func(r *request) {
			r.snapshot.Other = append(r.snapshot.Other, unstructured.Unstructured{
				Object: map[string]any{"apiVersion": "crd.projectcalico.org/v1", "kind": "BGPConfiguration",
					"metadata": map[string]any{"name": "default"},
					"spec":     map[string]any{"nodeToNodeMeshEnabled": false}}})
		}),
		"belongs to Calico's operator": with("Always", "none", func(r *request) {
			_ = unstructured.SetNestedField(poolIn(r), "tigera-operator", "metadata", "labels",
				"app.kubernetes.io/managed-by")
		}),
		"WireGuard encrypts packets": felix("none", "wireguardEnabled", true),
		"the eBPF data plane routes": felix("vxlan-cross-subnet", "bpfEnabled", true),
		"Felix makes no tunnel here": felix("vxlan-cross-subnet", "vxlanEnabled", false),
		"this cluster is on flannel": with("Always", "none", func(r *request) {
			r.snapshot = flannelToCalico(t).snapshot
		}),
		"from 2 IPv4 IPPools": with("Always", "none", func(r *request) {
			second := (&unstructured.Unstructured{Object: poolIn(r)}).DeepCopy()
			second.SetName("second")
			r.snapshot.Other = append(r.snapshot.Other, *second)
		}),
	} {
		if _, err := r.make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	for _, r := range []*request{with("Always", "vxlan-cross-subnet", far), with("Never", "vxlan", far),
		felix("none", "vxlanEnabled", false),
		with("Always", "vxlan-cross-subnet", func(r *request) {
			r.snapshot.ConfigMaps[0].Data["calico_backend"] = "vxlan"
		})} {
		if _, err := r.make(); err != nil {
			t.Errorf("%s: %v", r.change.Encapsulation, err)
		}
	}
}
