package plan_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

func toNFTables(t testing.TB) *request {
	return &request{
		snapshot: cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml")),
		change:   v1alpha1.ChangeSpec{Dataplane: "nftables", AgentImage: "theseus.dev/agent:dev"},
		drivers:  drivers(),
		options:  plan.Options{Version: "v0.0.0-test", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
	}
}

// felixConfiguration adds one to a request's snapshot.
func felixConfiguration(r *request, name string, spec map[string]any) {
	r.snapshot.Other = append(r.snapshot.Other, unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "crd.projectcalico.org/v1", "kind": "FelixConfiguration",
		"metadata": map[string]any{"name": name}, "spec": spec,
	}})
}

// node adds nodes like the first to a request's snapshot.
func addNodes(r *request, names ...string) {
	for _, name := range names {
		node := *r.snapshot.Nodes[0].DeepCopy()
		node.Name = name
		r.snapshot.Nodes = append(r.snapshot.Nodes, node)
	}
}

func TestRolloutIsReadAsWritten(t *testing.T) {
	p := mustMake(t, toNFTables(t))
	data, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	again, err := plan.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	if again.Hash != p.Hash || again.Rollout.String() != "nftablesMode=Enabled (iptables to nftables)" {
		t.Errorf("%s %s", again.Hash, again.Rollout)
	}
	text := plan.Runbook(p)
	for _, want := range []string{"nftablesMode=Enabled (iptables to nftables) on Calico",
		"Pods keep running", "Gate: ", "Set the value for the whole cluster", "restore nftablesMode for the cluster"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}

// TestRolloutCannotDoWithout: there is no step, no action on the network and no undo that a rollout can do without.
func TestRolloutCannotDoWithout(t *testing.T) {
	p := mustMake(t, toNFTables(t))
	for i, s := range p.Steps {
		if s.ID != "prepare/theseus" && s.ID != "finish/theseus" && s.ID != "prepare/proof" &&
			plan.Verify(mutant(p, slices.Delete(slices.Clone(p.Steps), i, i+1))) == nil {
			t.Errorf("a plan without %s passes", s.ID)
		}
		if !strings.HasSuffix(s.ID, "/switch") && s.ID != "fold/default" {
			continue
		}
		for j, action := range s.Actions {
			steps := slices.Clone(p.Steps)
			steps[i].Actions = slices.Delete(slices.Clone(s.Actions), j, j+1)
			if action.Op() != "wait" && !(s.ID == "fold/default" && action.Verb() == "dataplane") &&
				plan.Verify(mutant(p, steps)) == nil {
				if action.Verb() == "dataplane" && j == 2 {
					continue // the proof after it waits for the same
				}
				t.Errorf("step %s without %q passes", s.ID, action.Title)
			}
		}
		for j, action := range s.Undo {
			steps := slices.Clone(p.Steps)
			steps[i].Undo = slices.Delete(slices.Clone(s.Undo), j, j+1)
			if action.Op() != "wait" && plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("the undo of %s without %q passes", s.ID, action.Title)
			}
		}
	}
}

// TestRolloutCompares: gates compare the nodes that are switched with the others, without naming them; a plan of an
// older version, which names them, is good as long as it names the right ones.
func TestRolloutCompares(t *testing.T) {
	r := toNFTables(t)
	grow(r, 3, 1)
	p := mustMake(t, r)
	var nodes []string
	gates := map[int][]string{}
	for i, s := range p.Steps {
		if s.Node != "" {
			nodes = append(nodes, s.Node)
		}
		if s.Gate != nil && s.Gate.Compares() {
			gates[i] = slices.Clone(nodes)
		}
	}
	if len(gates) != len(nodes)+1 || len(nodes) < 3 {
		t.Fatalf("%d gates compare %d nodes", len(gates), len(nodes))
	}
	like := func(named func(i int) step.Gate) error {
		steps := slices.Clone(p.Steps)
		for i := range gates {
			gate := named(i)
			gate.Title, gate.MaxGap, gate.Bake = steps[i].Gate.Title, steps[i].Gate.MaxGap, steps[i].Gate.Bake
			steps[i].Gate = &gate
		}
		return plan.Verify(mutant(p, steps))
	}
	if err := like(func(i int) step.Gate { return step.Gate{Changed: gates[i]} }); err != nil {
		t.Errorf("a plan that names the nodes: %v", err)
	}
	for name, gate := range map[string]func(int) step.Gate{
		"neither":    func(int) step.Gate { return step.Gate{} },
		"others":     func(i int) step.Gate { return step.Gate{Changed: gates[i][1:]} },
		"both ways":  func(i int) step.Gate { return step.Gate{Compare: true, Changed: gates[i][1:]} },
		"all always": func(int) step.Gate { return step.Gate{Changed: nodes} },
	} {
		if like(gate) == nil {
			t.Errorf("%s: it passes", name)
		}
	}
}

// TestRolloutOfAnyFlag: one that leaves the rules where they are needs no guard; that Felix says what it runs with is a
// proof that no node can do without.
func TestRolloutOfAnyFlag(t *testing.T) {
	r := toNFTables(t)
	r.change.Dataplane, r.change.Flag = "", "iptablesRefreshInterval=60s"
	p := mustMake(t, r)
	text := plan.Runbook(p)
	for _, want := range []string{"iptablesRefreshInterval=1m0s on Calico",
		"reports IptablesRefreshInterval=60000000000", "reports IptablesRefreshInterval=180000000000",
		"The rules of the node stay in place"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	for i, s := range p.Steps {
		for _, list := range []string{"actions", "undo"} {
			actions := map[string][]step.Action{"actions": s.Actions, "undo": s.Undo}[list]
			for j, action := range actions {
				if action.Verb() == step.VerbGuard {
					t.Errorf("%s guards what does not move", s.ID)
				}
				if action.Op() != step.OpWait || action.Do.(step.Wait).Condition.Kind() != step.KindAgentSays {
					continue
				}
				steps := slices.Clone(p.Steps)
				less := slices.Delete(slices.Clone(actions), j, j+1)
				if steps[i].Actions = less; list == "undo" {
					steps[i].Actions, steps[i].Undo = s.Actions, less
				}
				if plan.Verify(mutant(p, steps)) == nil {
					t.Errorf("the %s of %s without %q pass", list, s.ID, action.Title)
				}
			}
		}
	}
}

// TestRolloutCatchesReordering: no two steps may change places.
func TestRolloutCatchesReordering(t *testing.T) {
	p := mustMake(t, toNFTables(t))
	for i := range len(p.Steps) - 1 {
		if p.Steps[i].ID == "prepare/theseus" || p.Steps[i].ID == "finish/probes" ||
			p.Steps[i].ID == "prepare/probes" || p.Steps[i].ID == "prepare/proof" {
			continue // what the model does not know of: Theseus' own parts
		}
		steps := slices.Clone(p.Steps)
		steps[i], steps[i+1] = steps[i+1], steps[i]
		if plan.Verify(mutant(p, steps)) == nil {
			t.Errorf("a plan with %s before %s passes", steps[i].ID, steps[i+1].ID)
		}
	}
}

func TestRolloutRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*request)
		words  string
		hint   string
	}{
		{"a typo in the value", func(r *request) { r.change.Dataplane, r.change.Flag = "", "nftablesMode=Enabeld" },
			"one of", "would ignore it and use Disabled"},
		{"a typo in the flag", func(r *request) { r.change.Dataplane, r.change.Flag = "", "nftableMode=Enabled" },
			"there is no flag", "did you mean calico/nftablesMode?"},
		{"no value", func(r *request) { r.change.Dataplane, r.change.Flag = "", "nftablesMode" },
			"gives no value", "nftablesMode=Enabled"},
		{"a flag that nobody can prove", func(r *request) {
			r.change.Dataplane, r.change.Flag = "",
				"logSeverityScreen=Debug"
		}, "Theseus cannot verify calico/logSeverityScreen", ""},
		{"a flag that is no node's", func(r *request) { r.change.Dataplane, r.change.Flag = "", "calico/bgp=vxlan" },
			"cannot be set for one node", ""},
		{"a flag that needs no restart", func(r *request) {
			r.change.Dataplane, r.change.Flag = "", "healthTimeoutOverrides=CalculationGraph=80s"
		}, "takes effect by live", ""},
		{"a value that it has", func(r *request) {
			r.change.Dataplane, r.change.Flag = "",
				"iptablesRefreshInterval=3m"
		}, "already", ""},
		{"a release without the field", func(r *request) {
			for i := range r.snapshot.DaemonSets {
				for j := range r.snapshot.DaemonSets[i].Spec.Template.Spec.Containers {
					c := &r.snapshot.DaemonSets[i].Spec.Template.Spec.Containers[j]
					c.Image = strings.Replace(c.Image, ":v3.31.0", ":v3.28.5", 1)
				}
			}
		}, "calico v3.28.5 has no nftablesMode: it came with v3.29", "upgrade the network first"},
		{"a definition without the field", func(r *request) {
			r.snapshot.Other = append(r.snapshot.Other, unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
				"metadata": map[string]any{"name": "felixconfigurations.crd.projectcalico.org"},
				"spec": map[string]any{"names": map[string]any{"kind": "FelixConfiguration"},
					"versions": []any{map[string]any{"schema": map[string]any{"openAPIV3Schema": map[string]any{
						"properties": map[string]any{"spec": map[string]any{
							"properties": map[string]any{"bpfEnabled": map[string]any{"type": "boolean"}}}}}}}}},
			}})
		}, "lacks spec.nftablesMode", "upgrade the network first"},
		{"a kernel that cannot", func(r *request) {
			r.change.Dataplane, r.change.Flag = "", "bpfEnabled=true"
			r.snapshot.Nodes[0].Status.NodeInfo.KernelVersion = "4.18.0-305.el8.x86_64"
		}, "needs 5.10", "newer kernel"},
		{"eBPF", func(r *request) {
			r.change.Dataplane, r.change.Flag = "", "bpfEnabled=true"
			r.snapshot.Nodes[0].Status.NodeInfo.KernelVersion = "6.1.0"
		}, "kube-proxy would have to be removed", ""},
		{"eBPF as a data plane", func(r *request) {
			r.change.Dataplane = "ebpf"
			r.snapshot.Nodes[0].Status.NodeInfo.KernelVersion = "6.1.0"
		}, "kube-proxy would have to be removed", ""},
		{"a flag of another network", func(r *request) { r.change.Dataplane, r.change.Flag = "", "cilium/mtu=1400" },
			"a flag of cilium, and this cluster is on calico", ""},
		{"both", func(r *request) { r.change.Flag = "nftablesMode=Enabled" }, "cannot be changed in one plan", ""},
		{"with a network", func(r *request) { r.change.To = "flannel" }, "cannot be combined with a network", ""},
		{"unknown data plane", func(r *request) { r.change.Dataplane = "ipvs" },
			`"ipvs" is not a data plane`, "iptables"},
		{"it is so", func(r *request) { r.change.Dataplane = "iptables" }, "is Disabled already", ""},
		{"another network", func(r *request) {
			r.snapshot = cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml"))
		}, "this cluster is on flannel", ""},
		{"the environment wins", func(r *request) {
			container := &r.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0]
			container.Env = append(container.Env, corev1.EnvVar{Name: "FELIX_NftablesMode", Value: "Disabled"})
		}, "overrides every FelixConfiguration", "remove it there"},
		{"an operator", func(r *request) {
			r.snapshot.DaemonSets[0].OwnerReferences = []metav1.OwnerReference{{Kind: "Installation",
				Name: "default", Controller: new(true)}}
		}, "belongs to Installation default", ""},
		{"a canary by hand", func(r *request) {
			felixConfiguration(r, "node."+r.snapshot.Nodes[0].Name, map[string]any{"nftablesMode": "Enabled"})
		}, "has a value of its own", ""},
		{"shares that shrink", func(r *request) { r.change.WavePercents = []int{50, 10, 100} }, "must increase", ""},
		{"shares without the rest", func(r *request) { r.change.WavePercents = []int{50} },
			"the last one must be 100%", ""},
		{"no image", func(r *request) { r.change.AgentImage = "" }, "no image", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := toNFTables(t)
			test.change(r)
			_, err := r.make()
			refusal, ok := err.(*plan.Refusal)
			if !ok || !strings.Contains(refusal.Message+" / "+refusal.Hint, test.words) ||
				!strings.Contains(refusal.Hint, test.hint) {
				t.Errorf("got %v (%+v), want %q and the hint %q", err, refusal, test.words, test.hint)
			}
		})
	}
}

// TestSharesStick: who is in at one share is in at every greater one, whatever other nodes there are.
func TestSharesStick(t *testing.T) {
	names := func(percents []int, extra ...string) (all [][]string) {
		r := toNFTables(t)
		for i := range 200 {
			addNodes(r, "n-"+string(rune('a'+i%26))+string(rune('a'+i/26)))
		}
		addNodes(r, extra...)
		r.change.WavePercents = percents
		p := mustMake(t, r)
		for _, wave := range p.Waves {
			all = append(all, wave.Nodes)
		}
		return all
	}
	ten, half := names([]int{10, 100})[0], names([]int{50, 100}, "late-1", "late-2")[0]
	if len(ten) < 5 || len(ten) > 40 || len(half) < 70 || len(half) > 130 {
		t.Errorf("%d at 10%%, %d at 50%% of 200", len(ten), len(half))
	}
	for _, name := range ten {
		if !slices.Contains(half, name) {
			t.Errorf("%s is in at 10%% and not at 50%%", name)
		}
	}
}
