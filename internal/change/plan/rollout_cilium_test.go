package plan_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/change/rollout"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// onCilium asks for a rollout on a cluster of the shape in which Cilium's chart deploys it; none was ever run.
func onCilium(t testing.TB) *request {
	return &request{
		snapshot: cnitest.Snapshot(t, cnitest.Cilium(t, "v1.16.5")),
		change: v1alpha1.ChangeSpec{Flag: "bpf-lb-acceleration=native",
			AgentImage: "theseus.dev/agent:dev", Waves: []int{1, 0}},
		drivers: drivers(),
		options: plan.Options{Version: "v0.0.0-test", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
	}
}

func TestRolloutOnCilium(t *testing.T) {
	p := mustMake(t, onCilium(t))
	golden(t, "cilium-runbook.txt", []byte(plan.Runbook(p)))
	data, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := plan.Read(data); err != nil || again.Hash != p.Hash {
		t.Errorf("%v, %v", again, err)
	}
	if !slices.ContainsFunc(p.Findings, func(f finding.Finding) bool { return f.ID == "rollout/untried" }) {
		t.Error("the plan does not say that it was never tried")
	}
	object := stepOf(t, p, "wave-1/node-1/switch").Actions[0].Object()
	if text, _ := json.Marshal(object); string(text) !=
		`{"apiVersion":"cilium.io/v2","kind":"CiliumNodeConfig","metadata":{"name":"theseus-node-1","namespace":"kube-system"},`+
			`"spec":{"defaults":{"bpf-lb-acceleration":"native"},"nodeSelector":{"matchLabels":{"kubernetes.io/hostname":"node-1"}}}}` {
		t.Errorf("%s", text)
	}
}

// TestRolloutOnCiliumCannotDoWithout: no action on the network, no undo and no proof of a node can be left out or
// change places.
func TestRolloutOnCiliumCannotDoWithout(t *testing.T) {
	p := mustMake(t, onCilium(t))
	for i, s := range p.Steps {
		if s.Node == "" && s.ID != "fold/default" {
			continue
		}
		for _, list := range []string{"actions", "undo"} {
			actions := map[string][]step.Action{"actions": s.Actions, "undo": s.Undo}[list]
			with := func(changed []step.Action) error {
				steps := slices.Clone(p.Steps)
				if list == "actions" {
					steps[i].Actions = changed
				} else {
					steps[i].Undo = changed
				}
				return plan.Verify(mutant(p, steps))
			}
			for j, action := range actions {
				if do, is := action.Do.(step.Wait); is && (do.Condition.Kind() != step.KindAgentSays || s.Node == "") {
					continue // what the model does not know of, or knows already
				}
				if with(slices.Delete(slices.Clone(actions), j, j+1)) == nil {
					t.Errorf("the %s of %s without %q pass", list, s.ID, action.Title)
				}
				if action.Op() == step.OpRestart {
					old := slices.Clone(actions)
					step.Edit(&old[j], func(do *step.Restart) { do.Always = false })
					if with(old) == nil {
						t.Errorf("the %s of %s pass where the pod would stay", list, s.ID)
					}
				}
				if j+1 < len(actions) && s.Node != "" && actions[j+1].Op() != step.OpWait {
					swapped := slices.Clone(actions)
					swapped[j], swapped[j+1] = swapped[j+1], swapped[j]
					if with(swapped) == nil {
						t.Errorf("the %s of %s with %q after %q pass", list, s.ID, action.Title, actions[j+1].Title)
					}
				}
			}
		}
	}
}

// TestRolloutOnCiliumTouchesNothingElse: an object that says more, is for more nodes, or is another's is refused.
func TestRolloutOnCiliumTouchesNothingElse(t *testing.T) {
	p := mustMake(t, onCilium(t))
	for name, edit := range map[string]func(s *step.Step){
		"another key too": func(s *step.Step) { set(s, "true", "spec", "defaults", "debug") },
		"another value":   func(s *step.Step) { set(s, "disabled", "spec", "defaults", "bpf-lb-acceleration") },
		"every node":      func(s *step.Step) { set(s, map[string]any{}, "spec", "nodeSelector") },
		"another's node": func(s *step.Step) {
			set(s, "node-2", "spec", "nodeSelector", "matchLabels", "kubernetes.io/hostname")
		},
		"nodes of a role": func(s *step.Step) {
			set(s, map[string]any{"matchLabels": map[string]any{"role": "edge"}}, "spec", "nodeSelector")
		},
		"somebody's name":  func(s *step.Step) { s.Actions[0].Object().SetName("edge") },
		"somebody's space": func(s *step.Step) { s.Actions[0].Object().SetNamespace("default") },
		"a look at rules that are not known": func(s *step.Step) {
			s.Actions[0] = step.Action{ID: s.Actions[0].ID, Do: step.Node{NodeName: s.Node, Verb: step.VerbDataplane,
				Args: json.RawMessage("{}")}}
		},
		"all at once": func(s *step.Step) {
			s.Actions[0].Do = step.Apply{Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
				"kind": "ConfigMap", "metadata": map[string]any{"name": "cilium-config", "namespace": "kube-system"},
				"data": map[string]any{"bpf-lb-acceleration": "native"}}}}
		},
		"no cilium-config": func(s *step.Step) {
			s.Actions[0] = step.Action{ID: s.Actions[0].ID, Do: step.Delete{
				Ref: step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "cilium-config"}}}
		},
	} {
		steps := slices.Clone(p.Steps)
		at := slices.IndexFunc(steps, func(s step.Step) bool { return s.Node == "node-1" })
		s := &steps[at]
		s.Actions = slices.Clone(s.Actions)
		s.Actions[0].Do = step.Apply{Object: s.Actions[0].Object().DeepCopy()}
		edit(s)
		if plan.Verify(mutant(p, steps)) == nil {
			t.Errorf("%s: passes", name)
		}
	}
}

func set(s *step.Step, value any, fields ...string) {
	if err := unstructured.SetNestedField(s.Actions[0].Object().Object, value, fields...); err != nil {
		panic(err)
	}
}

// TestRolloutOnCiliumRefuses what would not reach an agent, would be hidden there, or cannot be shown.
func TestRolloutOnCiliumRefuses(t *testing.T) {
	agent := func(r *request) *[]string {
		return &r.snapshot.DaemonSets[0].Spec.Template.Spec.InitContainers[0].Command
	}
	says := func(arguments ...string) func(*request) {
		return func(r *request) { *agent(r) = append(*agent(r), arguments...) }
	}
	flagged := func(flag string) func(*request) { return func(r *request) { r.change.Flag = flag } }
	config := func(name, labels, defaults string) func(*request) {
		return func(r *request) {
			r.snapshot.Other = append(r.snapshot.Other,
				cnitest.Documents(t, []byte("apiVersion: cilium.io/v2\nkind: CiliumNodeConfig\nmetadata: {name: "+name+
					", namespace: kube-system}\nspec: {nodeSelector: {matchLabels: {"+labels+
					"}}, defaults: {"+defaults+"}}\n"))...)
		}
	}
	for _, test := range []struct {
		name   string
		change func(*request)
		words  string // empty where it is taken
	}{
		{"as it is", func(*request) {}, ""},
		{"another value", flagged("bpf-lb-acceleration=natve"), "must be one of"},
		{"a flag of Calico", flagged("nftablesMode=Enabled"), "a flag of calico"},
		{"a data plane of Calico", func(r *request) { r.change.Flag, r.change.Dataplane = "", "nftables" },
			"a flag of calico"},
		{"what the operator reads", flagged("cilium/cluster-pool-ipv4-mask-size=25"), "cannot be set for one node"},
		{"how nodes reach one another", flagged("cilium/routing-mode=native"),
			"unknown whether nodes with different values"},
		{"what a running pod's link does not take", flagged("datapath-mode=netkit"),
			"the agent exits with a fatal error"},
		{"what the log does not tell", flagged("tofqdns-min-ttl=1 0"), "must be an integer"},
		{"a value that it has", flagged("bpf-lb-acceleration=disabled"), "already"},
		{"the environment", func(r *request) {
			env := &r.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Env
			*env = append(*env, corev1.EnvVar{Name: "CILIUM_BPF_LB_ACCELERATION", Value: "disabled"})
		}, "CILIUM_BPF_LB_ACCELERATION=disabled"},
		{"an argument", func(r *request) {
			r.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Args = []string{"--bpf-lb-acceleration=disabled"}
		}, "--bpf-lb-acceleration=disabled"},
		{"somebody's own configuration",
			config("edge", "kubernetes.io/hostname: node-2", "bpf-lb-acceleration: native"), "has a value of its own"},
		{"the like of another flag", config("edge", "kubernetes.io/hostname: node-2", "enable-hubble: \"true\""), ""},
		{"what a rollout left", config("theseus-node-1", "kubernetes.io/hostname: node-1",
			"bpf-lb-acceleration: native"), "has a value of its own"},
		{"no definition", func(r *request) {
			r.snapshot.Other = slices.DeleteFunc(r.snapshot.Other, func(o unstructured.Unstructured) bool {
				return o.GetKind() == "CustomResourceDefinition"
			})
		}, "no CRD CiliumNodeConfig"},
		{"a node without a name among its labels", func(r *request) {
			delete(r.snapshot.Nodes[1].Labels, "kubernetes.io/hostname")
		}, "selects nodes by their labels"},
		{"two of one name", func(r *request) { r.snapshot.Nodes[1].Labels["kubernetes.io/hostname"] = "node-1" },
			"as node-1 has"},
		{"agents that read none", func(r *request) { *agent(r) = []string{"cilium-dbg", "status"} },
			"read no CiliumNodeConfig"},
		{"cilium-config alone", says("--source=config-map:kube-system/cilium-config"), "from no CiliumNodeConfig"},
		{"the order that is known", says("--source", "config-map:cilium-config,cilium-node-config:kube-system,node"),
			""},
		{"the other way round", says("--source=cilium-node-config,config-map"), "takes its settings from"},
		{"those of another namespace", says("--source=config-map,cilium-node-config:edge"), "takes its settings from"},
		{"an annotation", func(r *request) {
			says("--source=config-map,cilium-node-config,node")(r)
			r.snapshot.Nodes[0].Annotations["config.cilium.io/bpf-lb-acceleration"] = "disabled"
		}, "config.cilium.io/bpf-lb-acceleration of node node-1"},
		{"keys that are let through", says("--allow-config-keys=enable-hubble", "--deny-config-keys=debug"),
			"only enable-hubble, not bpf-lb-acceleration"},
		{"keys that are not", says("--deny-config-keys=bpf-lb-acceleration"), "lets no CiliumNodeConfig set"},
		{"it is let through", says("--allow-config-keys=bpf-lb-acceleration",
			"--deny-config-keys=bpf-lb-acceleration"), ""},
		{"agents that say little", func(r *request) { r.snapshot.ConfigMaps[0].Data["log-opt"] = "level=warn" },
			"log with level=warn"},
		{"an operator's", func(r *request) {
			controller := true
			r.snapshot.DaemonSets[0].OwnerReferences = append(r.snapshot.DaemonSets[0].OwnerReferences,
				metav1.OwnerReference{APIVersion: "cilium.io/v1alpha1", Kind: "CiliumConfig",
					Name: "cilium", Controller: &controller})
		}, "belongs to CiliumConfig cilium"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := onCilium(t)
			test.change(r)
			p, err := plan.Make(r.snapshot, r.change, r.drivers, nil, r.options)
			if test.words == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.words) {
				t.Errorf("%v, %v", p, err)
			}
		})
	}
}

// TestWantedOnCilium: all that somebody wrote and the agent tells of is verified by the agent's log, on each node what
// is for it.
func TestWantedOnCilium(t *testing.T) {
	r := onCilium(t)
	r.snapshot.Other = append(r.snapshot.Other, cnitest.Documents(t,
		[]byte("apiVersion: cilium.io/v2\nkind: CiliumNodeConfig\nmetadata: {name: edge, namespace: kube-system}\n"+
			"spec: {nodeSelector: {matchLabels: {kubernetes.io/hostname: node-2}}, defaults: "+
			"{tunnel-protocol: geneve}}\n"))...)
	all, err := rollout.Wanted(r.snapshot, r.drivers, nil)
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, one := range all {
		said[one.Node+" "+one.Flag] = one.Expected.Says
		if one.Expected.Agent == nil || one.Expected.Agent.Container != "cilium-agent" || one.Kernel != nil {
			t.Errorf("%+v", one)
		}
	}
	for what, want := range map[string]string{"node-1 tunnel-protocol": "'vxlan'", "node-2 tunnel-protocol": "'geneve'",
		"node-1 enable-policy": "'default'", "node-2 enable-ipv6": "'false'"} {
		if said[what] != want {
			t.Errorf("%s: %s, want %s", what, said[what], want)
		}
	}
	r.snapshot.Nodes = nil
	if _, err := rollout.Wanted(r.snapshot, r.drivers, []string{"cilium/enable-policy"}); err == nil {
		t.Error("without nodes it is verified")
	}
}

// TestFlagSetOnCilium: a flag set gives one node a value, then takes both to it: what the first plan leaves the second
// takes over, and nobody's else.
func TestFlagSetOnCilium(t *testing.T) {
	r := onCilium(t)
	modes := `{"old": "disabled", "new": "native"}`
	one, err := decided(t, r, "cilium/bpf-lb-acceleration", modes,
		`{"if": [{"==": [{"var": "node"}, "node-2"]}, "new", "old"]}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(one.Waves) != 1 || !slices.Equal(one.Waves[0].Nodes, []string{"node-2"}) || one.Rollout.Value != "" {
		t.Errorf("%v, %q", one.Waves, one.Rollout.Value)
	}
	r.snapshot.Other = append(r.snapshot.Other, *stepOf(t, one, "wave-1/node-2/switch").Actions[0].Object())
	both, err := decided(t, r, "cilium/bpf-lb-acceleration", modes, `{"if": [true, "new", "old"]}`)
	if err != nil {
		t.Fatal(err)
	}
	if len(both.Waves) != 1 || !slices.Equal(both.Waves[0].Nodes, []string{"node-1"}) ||
		both.Rollout.Value != "native" {
		t.Errorf("%v, %q", both.Waves, both.Rollout.Value)
	}
	var gone []string
	for _, action := range stepOf(t, both, "fold/default").Actions {
		if do, is := action.Do.(step.Delete); is {
			gone = append(gone, do.Ref.String())
		}
	}
	if !slices.Equal(gone, []string{"CiliumNodeConfig/kube-system/theseus-node-1",
		"CiliumNodeConfig/kube-system/theseus-node-2"}) {
		t.Errorf("at the end %v go", gone)
	}
	for i := range r.snapshot.Other {
		if r.snapshot.Other[i].GetKind() == "CiliumNodeConfig" {
			r.snapshot.Other[i].SetName("edge")
		}
	}
	if _, err := decided(t, r, "cilium/bpf-lb-acceleration", modes, `{"if": [true, "new", "old"]}`); err == nil ||
		!strings.Contains(err.Error(), "CiliumNodeConfig/kube-system/edge has a value of its own") {
		t.Errorf("somebody's own: %v", err)
	}
}
