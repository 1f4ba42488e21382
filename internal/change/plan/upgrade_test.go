package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// withTypha is a manifest of Calico, with Typha and definitions that keep what they do not know.
func withTypha(t testing.TB) string {
	text := strings.ReplaceAll(string(cnitest.Text(t, "calico-manifest.yaml")), "{type: object}",
		"{type: object, x-kubernetes-preserve-unknown-fields: true}")
	return text + `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: calico-typha, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: calico-typha}}
  template:
    metadata: {labels: {k8s-app: calico-typha}}
    spec:
      containers: [{name: calico-typha, image: "quay.io/calico/typha:v3.31.0"}]
`
}

// newer is a cluster of three nodes on Calico v3.28.5, and the manifest of v3.31.0.
func newer(t testing.TB) *request {
	text := withTypha(t)
	was := strings.NewReplacer("v3.31.0", "v3.28.5",
		"CNI_MTU__}]", "CNI_MTU__}, {\"type\": \"bandwidth\"}]",
		"- {name: IP, value: autodetect}", "- {name: IP, value: autodetect}\n"+
			"            - {name: MINE, value: mine}\n            - {name: FELIX_ROUTEREFRESHINTERVAL, value: \"30\"}",
		"initContainers:",
		"initContainers:\n        - {name: mount-bpffs, image: \"quay.io/calico/node:v3.28.5\"}").Replace(text)
	objects := slices.DeleteFunc(cnitest.Fixture(t, "calico.yaml"), func(o unstructured.Unstructured) bool {
		return o.GetKind() == "DaemonSet" || o.GetKind() == "ConfigMap"
	})
	r := &request{
		snapshot: cnitest.Snapshot(t, append(objects, cnitest.Documents(t, []byte(was))...)),
		change:   v1alpha1.ChangeSpec{To: "calico", AgentImage: "theseus.dev/agent:dev"},
		drivers:  drivers(),
		options: plan.Options{Version: "v0.0.0-test", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Manifest: cnitest.Documents(t, []byte(text))},
	}
	addNodes(r, "node-2", "node-3")
	return r
}

func TestUpgradeGolden(t *testing.T) {
	p := mustMake(t, newer(t))
	golden(t, "upgrade-runbook.txt", []byte(plan.Runbook(p)))
	text, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := plan.Read(text); err != nil || again.Hash != p.Hash || !again.InPlace() {
		t.Errorf("reading what was written: %v", err)
	}
}

// TestUpgradeLeavesNothing: what a pod was made from is replaced as a whole, and put back as a whole.
func TestUpgradeLeavesNothing(t *testing.T) {
	p := mustMake(t, newer(t))
	i := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.Node == "node-2" })
	forms := map[string][]string{"v3.31.0": {"bandwidth", "mount-bpffs", "MINE", "v3.28.5"}, "v3.28.5": {"v3.31.0"}}
	for version, never := range forms {
		actions := p.Steps[i].Actions
		if version == "v3.28.5" {
			actions = p.Steps[i].Undo
		}
		var all string
		for _, a := range actions {
			patch, _ := a.Do.(step.Patch)
			all += string(patch.Merge)
		}
		for _, word := range never {
			if strings.Contains(all, word) {
				t.Errorf("%q is in the form of %s: %s", word, version, all)
			}
		}
		if version == "v3.28.5" && (!strings.Contains(all, "bandwidth") || !strings.Contains(all, "mount-bpffs") ||
			!strings.Contains(all, "MINE")) {
			t.Errorf("the old form is not whole: %s", all)
		}
	}
}

// TestUpgradeCannotDoWithout: there is no step, no action on the network and no undo that an upgrade can do without.
func TestUpgradeCannotDoWithout(t *testing.T) {
	p := mustMake(t, newer(t))
	free := []string{"prepare/theseus", "finish/theseus", "upgrade/definitions", "after/calico-typha",
		"after/calico-kube-controllers"}
	for i, s := range p.Steps {
		if !slices.Contains(free, s.ID) && plan.Verify(mutant(p, slices.Delete(slices.Clone(p.Steps), i, i+1))) == nil {
			t.Errorf("a plan without %s passes", s.ID)
		}
		if s.ID == "prepare/theseus" || strings.HasPrefix(s.ID, "finish/") {
			continue
		}
		for list, actions := range [][]step.Action{s.Actions, s.Undo} {
			for j, action := range actions {
				if action.Op() == step.OpWait || action.Op() == step.OpProbe && list == 1 ||
					action.Op() == step.OpApply && !strings.HasPrefix(s.ID, "fold/") ||
					action.Op() == step.OpPatch && (action.Ref().Kind == "ConfigMap" || list == 0) ||
					s.ID == "prepare/probes" {
					continue // what the model does not know of, or what an earlier step has done already
				}
				steps := slices.Clone(p.Steps)
				without := slices.Delete(slices.Clone(actions), j, j+1)
				if list == 0 {
					steps[i].Actions = without
				} else {
					steps[i].Undo = without
				}
				if len(without) > 0 && plan.Verify(mutant(p, steps)) == nil {
					t.Errorf("step %s without %q passes", s.ID, action.Title)
				}
			}
		}
		if s.Gate != nil {
			steps := slices.Clone(p.Steps)
			steps[i].Gate = nil
			if plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("step %s without its gate passes", s.ID)
			}
		}
	}
}

// TestUpgradeCatchesReordering: no two steps may change places, but what follows the agents among itself, and what
// both versions work with.
func TestUpgradeCatchesReordering(t *testing.T) {
	p := mustMake(t, newer(t))
	for i := range len(p.Steps) - 1 {
		one, two := p.Steps[i].ID, p.Steps[i+1].ID
		free := one == "prepare/theseus" || strings.HasPrefix(one, "finish/") ||
			strings.HasPrefix(one, "upgrade/") && strings.HasPrefix(two, "upgrade/") ||
			strings.HasPrefix(one, "after/") && !strings.HasPrefix(two, "finish/") || one == "fold/strategy"
		steps := slices.Clone(p.Steps)
		steps[i], steps[i+1] = steps[i+1], steps[i]
		if !free && plan.Verify(mutant(p, steps)) == nil {
			t.Errorf("a plan with %s before %s passes", two, one)
		}
	}
}

// TestUpgradeTypha: Typha comes when no old agent is left, and the way back begins with it.
func TestUpgradeTypha(t *testing.T) {
	p := mustMake(t, newer(t))
	at := func(id string) int { return slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == id }) }
	if typha := at("after/calico-typha"); typha < at("wave-2/node-3") ||
		typha > at("after/calico-kube-controllers") || typha < 0 {
		t.Errorf("Typha is step %d", typha)
	}
	first := slices.Clone(p.Steps)
	typha := first[at("after/calico-typha")]
	typha.Before = nil
	first = slices.DeleteFunc(first, func(s step.Step) bool { return s.ID == typha.ID })
	first = slices.Insert(first, at("wave-2/node-2"), typha)
	if err := plan.Verify(mutant(p, first)); err == nil ||
		!strings.Contains(err.Error(), "may change only when no agent of v3.28.5 runs") {
		t.Errorf("Typha before the last agents: %v", err)
	}
}

// downgrade is a cluster of three nodes on Calico v3.31.0, with its definitions, and the manifest of v3.28.5.
func downgrade(t testing.TB) *request {
	text := withTypha(t)
	r := newer(t)
	r.snapshot = cnitest.Snapshot(t,
		slices.Concat(slices.DeleteFunc(cnitest.Fixture(t, "calico.yaml"), func(o unstructured.Unstructured) bool {
			return o.GetKind() == "DaemonSet" || o.GetKind() == "ConfigMap"
		}), cnitest.Documents(t, []byte(text))))
	r.snapshot.Sources = []cluster.Source{{Resource: "customresourcedefinitions", From: "test"}}
	addNodes(r, "node-2", "node-3")
	r.options.Manifest = cnitest.Documents(t, []byte(strings.ReplaceAll(text, "v3.31.0", "v3.28.5")))
	return r
}

func TestDowngradeGolden(t *testing.T) {
	golden(t, "downgrade-runbook.txt", []byte(plan.Runbook(mustMake(t, downgrade(t)))))
}

// TestDowngrade: Typha and what else follows agents comes before the first older agent, and goes back when none is
// left; definitions that the cluster has stay as they are.
func TestDowngrade(t *testing.T) {
	p := mustMake(t, downgrade(t))
	at := func(id string) int { return slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == id }) }
	controllers, typha, first := at("before/calico-kube-controllers"), at("before/calico-typha"), at("wave-1/node-1")
	if controllers < 0 || typha < controllers || first < typha {
		t.Fatalf("the controllers, Typha and the first agent are the steps %d, %d and %d", controllers, typha, first)
	}
	if i := at("upgrade/definitions"); i >= 0 {
		t.Errorf("older definitions come: %+v", p.Steps[i])
	}
	for _, moved := range []string{"before/calico-typha", "before/calico-kube-controllers"} {
		for _, node := range []string{"wave-1/node-1", "wave-2/node-3"} {
			late := p.Steps[at(moved)]
			late.Before = nil
			steps := slices.DeleteFunc(slices.Clone(p.Steps), func(s step.Step) bool { return s.ID == moved })
			behind := slices.IndexFunc(steps, func(s step.Step) bool { return s.ID == node })
			err := plan.Verify(mutant(p, slices.Insert(steps, behind+1, late)))
			if err == nil || !strings.Contains(err.Error(), "agents of v3.28.5 need still have the newer version") {
				t.Errorf("%s behind %s: %v", moved, node, err)
			}
		}
		steps := slices.Clone(p.Steps)
		steps[at(moved)].Undo = steps[at(moved)].Undo[1:]
		if err := plan.Verify(mutant(p, steps)); err == nil ||
			!strings.Contains(err.Error(), "updated after the agents are not as they were before the step") {
			t.Errorf("%s without its undo: %v", moved, err)
		}
	}
}

// TestDowngradeDefinitions: of those in the manifest only what the cluster lacks is brought, and nothing where that is
// not known.
func TestDowngradeDefinitions(t *testing.T) {
	pools := func(o unstructured.Unstructured) bool { return o.GetName() == "ippools.crd.projectcalico.org" }
	r := downgrade(t)
	r.snapshot.Other = slices.DeleteFunc(r.snapshot.Other, pools)
	p := mustMake(t, r)
	i := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "upgrade/definitions" })
	if i < 0 || len(p.Steps[i].Actions) != 2 || !pools(*p.Steps[i].Actions[0].Object()) {
		t.Errorf("the definitions that the cluster lacks are not brought: %v", i)
	}
	r.snapshot.Sources[0].Missing = "not allowed"
	if p := mustMake(t, r); slices.ContainsFunc(p.Steps,
		func(s step.Step) bool { return s.ID == "upgrade/definitions" }) {
		t.Error("definitions are brought to a cluster that may have newer ones")
	}
}

// TestUpgradeOfMany: steps have several nodes where there are many, so that a plan does not grow by a form for each.
func TestUpgradeOfMany(t *testing.T) {
	sizes := map[int]int{}
	for _, n := range []int{256, 600} {
		r := newer(t)
		for i := range n - 3 {
			addNodes(r, "more-"+strings.Repeat("a", i%7)+string(rune('a'+i%26))+strings.Repeat("b", i/26))
		}
		p := mustMake(t, r)
		text, err := plan.Write(p)
		if err != nil {
			t.Fatal(err)
		}
		sizes[n] = len(text)
		if len(p.Steps) > 256+30 {
			t.Errorf("%d nodes take %d steps", n, len(p.Steps))
		}
	}
	if sizes[600] > 3*sizes[256] {
		t.Errorf("%v", sizes)
	}
}

// TestRetained: where BIRD carries the routes of a pool and restarts with the agents, every node retains them
// meanwhile.
func TestRetained(t *testing.T) {
	for name, make := range map[string]func(*testing.T) *request{
		"upgrade":     func(t *testing.T) *request { return newer(t) },
		"environment": func(t *testing.T) *request { return inEnvironment(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			r := make(t)
			for i := range r.snapshot.Nodes {
				r.snapshot.Nodes[i].Annotations = map[string]string{"projectcalico.org/IPv4Address": fmt.Sprintf(
					"10.0.0.%d/24", i+1)}
			}
			if p := mustMake(t, r); slices.ContainsFunc(p.Steps,
				func(s step.Step) bool { return s.ID == "bgp/retain" }) {
				t.Error("routes are retained that BIRD does not carry")
			}
			p := mustMake(t, unencapsulated(r))
			restarts, anew := []bool{}, func(s step.Step) bool {
				return slices.ContainsFunc(s.Actions, func(a step.Action) bool { return a.Op() == step.OpRestart })
			}
			for _, s := range p.Steps[slices.IndexFunc(p.Steps, func(s step.Step) bool {
				return s.ID == "bgp/retain"
			}):] {
				if restarts = append(restarts, anew(s)); s.ID == "bgp/let-go" {
					break
				}
			}
			if want := []bool{false, true, true, true, false}; !slices.Equal(restarts, want) {
				t.Errorf("from the step that retains to the one that lets go agents restart in %v", restarts)
			}
			for i, s := range p.Steps {
				says := map[string]string{"bgp/retain": "an agent restarts while 0 of 3 nodes retain",
					"bgp/let-go": "at the end nodes retain routes"}[s.ID]
				if says == "" {
					continue
				}
				if err := plan.Verify(mutant(p, slices.Delete(slices.Clone(p.Steps), i, i+1))); err == nil ||
					!strings.Contains(err.Error(), says) {
					t.Errorf("without %s: %v", s.ID, err)
				}
				steps := slices.Clone(p.Steps)
				steps[i].Undo = steps[i].Undo[1:]
				if err := plan.Verify(mutant(p, steps)); err == nil ||
					!strings.Contains(err.Error(), "do not retain the same routes") {
					t.Errorf("with an undo of %s that leaves a node out: %v", s.ID, err)
				}
			}
		})
	}
}

// TestUpgradeOfReflectors: a gate is between any two nodes that reflect BGP's routes, however many nodes a step has.
func TestUpgradeOfReflectors(t *testing.T) {
	r := newer(t)
	addNodes(r, "node-4")
	reflectors := map[string]bool{}
	for i := range r.snapshot.Nodes {
		node := &r.snapshot.Nodes[i]
		node.Annotations = map[string]string{"projectcalico.org/RouteReflectorClusterID": "244.0.0.1"}
		reflectors[node.Name] = true
	}
	for i := range 296 {
		addNodes(r, fmt.Sprintf("worker-%d", i))
		delete(r.snapshot.Nodes[len(r.snapshot.Nodes)-1].Annotations, "projectcalico.org/RouteReflectorClusterID")
	}
	for i := range r.snapshot.Nodes {
		r.snapshot.Nodes[i].Annotations["projectcalico.org/IPv4Address"] = fmt.Sprintf("10.0.%d.%d/16", i/200, i%200+1)
	}
	p := mustMake(t, r)
	seen := 0
	for i, s := range p.Steps {
		together := 0
		for _, a := range s.Actions {
			if do, is := a.Do.(step.Restart); is && reflectors[do.NodeName] {
				together++
			}
		}
		if seen += together; together > 1 || together > 0 && (s.Gate == nil || s.Gate.Sessions == nil) {
			t.Errorf("step %s restarts %d reflectors, with the gate %+v", s.ID, together, s.Gate)
		}
		if next := p.Steps[min(i+1, len(p.Steps)-1)]; together > 0 && seen == 1 {
			steps := slices.Clone(p.Steps)
			steps[i].Actions, steps[i].Undo = slices.Concat(s.Actions, next.Actions), slices.Concat(next.Undo, s.Undo)
			err := plan.Verify(mutant(p, slices.Delete(steps, i+1, i+2)))
			if err == nil || !strings.Contains(err.Error(), "2 nodes that reflect routes restart in one step") {
				t.Errorf("a plan with two reflectors in step %s: %v", s.ID, err)
			}
		}
	}
	if seen != len(reflectors) {
		t.Errorf("%d of %d reflectors restart", seen, len(reflectors))
	}
}

func TestUpgradeSettings(t *testing.T) {
	p := mustMake(t, newer(t))
	var said strings.Builder
	for _, f := range p.Findings {
		said.WriteString(f.Message + "\n")
	}
	for _, want := range []string{"the manifest lacks calico-node MINE",
		"calico/routeRefreshInterval changes from 30 to 90"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is not in:\n%s", want, said.String())
		}
	}
}

// TestUpgradeThatIsAFlag: v3.33 lets Felix write the routes of IPIP pools, which the plan says of such a cluster.
func TestUpgradeThatIsAFlag(t *testing.T) {
	text := strings.ReplaceAll(withTypha(t), "v3.31.0", "v3.32.0")
	objects := slices.DeleteFunc(cnitest.Fixture(t, "calico.yaml"), func(o unstructured.Unstructured) bool {
		return o.GetKind() == "DaemonSet" || o.GetKind() == "ConfigMap"
	})
	r := newer(t)
	r.snapshot = cnitest.Snapshot(t, append(objects, cnitest.Documents(t, []byte(text))...))
	r.options.Manifest = cnitest.Documents(t, []byte(strings.ReplaceAll(text, "v3.32.0", "v3.33.0")))
	p := mustMake(t, r)
	said := slices.ContainsFunc(p.Findings, func(f finding.Finding) bool {
		return f.ID == "upgrade/setting" &&
			strings.Contains(f.Message, "calico/programClusterRoutes changes from Disabled to EnabledIPIPOnly")
	})
	if book := plan.Runbook(p); !said || !strings.Contains(book, "calico/programClusterRoutes") {
		t.Errorf("%+v\n%s", p.Findings, book)
	}
}

func TestUpgradeRefuses(t *testing.T) {
	agent := func(r *request) *appsv1.DaemonSet { return &r.snapshot.DaemonSets[0] }
	manifest := func(r *request, kind string) *unstructured.Unstructured {
		return &r.options.Manifest[slices.IndexFunc(r.options.Manifest, func(o unstructured.Unstructured) bool {
			return o.GetKind() == kind
		})]
	}
	with := func(r *request, text string) {
		r.options.Manifest = append(r.options.Manifest, cnitest.Documents(t, []byte(text))...)
	}
	for _, test := range []struct {
		name   string
		change func(*request)
		words  string
		hint   string
	}{
		{"the same version", func(r *request) {
			r.options.Manifest = cnitest.Documents(t, []byte(strings.ReplaceAll(withTypha(t), "v3.31.0", "v3.28.5")))
		}, "runs already", ""},
		{"too far", func(r *request) {
			r.options.Manifest = cnitest.Documents(t, []byte(strings.ReplaceAll(withTypha(t), "v3.31.0", "v3.32.0")))
		}, "more than 3 minor releases", "several plans"},
		{"another version than wanted", func(r *request) { r.change.CNIVersion = "v3.30.1" },
			"installs calico v3.31.0, not v3.30.1", ""},
		{"a tag that is none", func(r *request) {
			agent(r).Spec.Template.Spec.Containers[0].Image = "calico/node:mine"
		}, "does not say which version", ""},
		{"an owner", func(r *request) {
			agent(r).OwnerReferences = []metav1.OwnerReference{{Kind: "Mine", Name: "m", Controller: new(true)}}
		}, "belongs to Mine m", ""},
		{"another way for routes", func(r *request) { r.snapshot.ConfigMaps[0].Data["calico_backend"] = "vxlan" },
			`CALICO_NETWORKING_BACKEND is "vxlan" and would be "bird"`,
			"give it the cluster's value in the manifest; Theseus cannot change it"},
		{"another name of the configuration", func(r *request) {
			agent(r).Spec.Template.Spec.InitContainers[1].Env[0].Value = "05-calico.conflist"
		}, "the file name of the CNI configuration", ""},
		{"a field that is lost", func(r *request) {
			r.options.Manifest = cnitest.Documents(t, []byte(strings.Replace(withTypha(t),
				"{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}",
				"{openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {cidr: {type: "+
					"string}, vxlanMode: {type: string}, ipipMode: {type: string}}}}}}", 1)))
		}, "lacks spec.natOutgoing", "older agents work with newer CRDs"},
		{"a version that is not served", func(r *request) {
			r.options.Manifest = cnitest.Documents(t,
				[]byte(strings.Replace(withTypha(t), "{name: v1, served: true", "{name: v1, served: false", 1)))
		}, "lacks version v1", ""},
		{"a pool that changes", func(r *request) {
			with(r, "apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: default-ipv4-ippool}\n"+
				"spec: {cidr: 10.96.0.0/16}\n")
		}, "would take effect on all nodes at once", ""},
		{"no Typha", func(r *request) {
			r.options.Manifest = slices.DeleteFunc(r.options.Manifest, func(o unstructured.Unstructured) bool {
				return o.GetName() == "calico-typha"
			})
		}, "calico-typha runs, and the manifest lacks it", ""},
		{"a new Typha", func(r *request) {
			r.snapshot.Deployments = slices.DeleteFunc(r.snapshot.Deployments, func(d appsv1.Deployment) bool {
				return d.Name == "calico-typha"
			})
		}, "which does not run here", ""},
		{"through the operator", func(r *request) {
			with(r, "apiVersion: operator.tigera.io/v1\nkind: Installation\nmetadata: {name: default}\n")
		}, "through its operator", ""},
		{"no agent in the manifest", func(r *request) { manifest(r, "DaemonSet").SetName("other") },
			"holds no DaemonSet", ""},
		{"another namespace", func(r *request) { manifest(r, "DaemonSet").SetNamespace("calico-system") },
			"DaemonSet/calico-system/calico-node", ""},
		{"a range", func(r *request) { r.change.PodCIDR = "10.97.0.0/16" }, "already on calico", "--pod-cidr"},
		{"another strategy", func(r *request) { r.change.Strategy = "recreate" }, "already on calico", "--strategy"},
		{"another network", func(r *request) { r.change.Strategy, r.change.To = "upgrade", "flannel" },
			"this cluster is on calico", ""},
		{"a network whose versions are not known", func(r *request) {
			r.snapshot, r.change.To = cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml")), "flannel"
		}, "agents of flannel of two versions", ""},
		{"no manifest", func(r *request) { r.options.Manifest = nil }, "no manifest", ""},
		{"no image", func(r *request) { r.change.AgentImage = "" }, "no image", ""},
		{"a node down", func(r *request) { r.snapshot.Nodes[1].Status.Conditions[0].Status = corev1.ConditionUnknown },
			"is not Ready", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newer(t)
			test.change(r)
			_, err := r.make()
			var refused *plan.Refusal
			if !errors.As(err, &refused) || !strings.Contains(refused.Message, test.words) || refused.Hint == "" ||
				!strings.Contains(refused.Hint, test.hint) {
				t.Errorf("got %v (%+v), want %q and the hint %q", err, refused, test.words, test.hint)
			}
		})
	}
}
