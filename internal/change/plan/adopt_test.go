package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/bridge"
	"github.com/theseus-cni/theseus/internal/network/cilium"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

const reservations = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ipreservations.crd.projectcalico.org}
spec:
  group: crd.projectcalico.org
  names: {kind: IPReservation, listKind: IPReservationList, plural: ipreservations, singular: ipreservation}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// adoption is the same cluster, whose nodes can have their pods adopted.
func adoption(t testing.TB) *request {
	r := flannelToCalico(t)
	r.change.Strategy, r.change.PodCIDR = "adopt", ""
	r.options.Manifest = append(r.options.Manifest, cnitest.Documents(t, []byte(reservations))...)
	for i := range r.snapshot.Nodes {
		info := &r.snapshot.Nodes[i].Status.NodeInfo
		info.KernelVersion, info.ContainerRuntimeVersion = "6.12.9-cloud", "containerd://2.1.0"
	}
	return r
}

// bridged is a cluster on a plain bridge, whose nodes' ranges do not add up to one, with pods that can be adopted.
func bridged(t testing.TB) *request {
	r := adoption(t)
	r.snapshot, r.drivers = cnitest.Golden(t, "bridge"), append(r.drivers, bridge.Driver{})
	return r
}

// withOneUnadoptable is that cluster with a pod that cannot be adopted.
func withOneUnadoptable(t testing.TB) *request {
	r := adoption(t)
	pod := &r.snapshot.Pods[slices.IndexFunc(r.snapshot.Pods, isWeb)]
	pod.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "storage"}
	return r
}

func isWeb(pod corev1.Pod) bool { return strings.HasPrefix(pod.Name, "web-") }

func TestAdoptGolden(t *testing.T) {
	p := mustMake(t, withOneUnadoptable(t))
	golden(t, "adopt-runbook.txt", []byte(plan.Runbook(p)))
	text, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := plan.Read(text); err != nil || again.Hash != p.Hash {
		t.Errorf("reading what was written: %v", err)
	}
}

// TestAdoptKeepsPods: nothing is evicted where all can be adopted, a bare pod too and one that was on Calico once, and
// no address range is asked for.
func TestAdoptKeepsPods(t *testing.T) {
	r := adoption(t)
	r.snapshot.Pods[slices.IndexFunc(r.snapshot.Pods, isWeb)].Annotations = map[string]string{
		"cni.projectcalico.org/containerID": "b0a7", "cni.projectcalico.org/podIP": "",
		"cni.projectcalico.org/podIPs": ""}
	r.snapshot.Pods = append(r.snapshot.Pods, cnitest.Snapshot(t, cnitest.Documents(t, []byte(
		"apiVersion: v1\nkind: Pod\nmetadata: {name: bare, namespace: shop}\nspec: {nodeName: node-1}\n"+
			"status: {phase: Running, podIP: 10.244.1.77}\n"))).Pods...)
	p := mustMake(t, r)
	for _, s := range p.Steps {
		for _, a := range slices.Concat(s.Actions, s.Undo) {
			if a.Op() == step.OpEvict {
				t.Errorf("step %s evicts", s.ID)
			}
		}
	}
	if !slices.Equal(p.Source.PodCIDRs, p.Target.PodCIDRs) {
		t.Errorf("from %v to %v", p.Source.PodCIDRs, p.Target.PodCIDRs)
	}
	for _, w := range p.Workloads {
		if w.Treatment == "move" {
			t.Errorf("%s/%s moves", w.Namespace, w.Name)
		}
	}
}

// TestAdoptBridge: the plan says the same of a network without agents and without a tunnel, whose nodes' ranges are
// several: each becomes a pool, none of which masquerades, and what leaves a node is pinned whatever route leads there.
func TestAdoptBridge(t *testing.T) {
	p := mustMake(t, bridged(t))
	golden(t, "adopt-bridge-runbook.txt", []byte(plan.Runbook(p)))
	ranges := []string{"198.19.0.0/23", "198.19.2.0/24"}
	if !slices.Equal(p.Source.PodCIDRs, ranges) || !slices.Equal(p.Target.PodCIDRs, ranges) {
		t.Errorf("from %v to %v", p.Source.PodCIDRs, p.Target.PodCIDRs)
	}
	var pools, labels, holds []string
	for _, s := range p.Steps {
		for _, a := range s.Actions {
			if a.Object() != nil && a.Object().GetKind() == "IPPool" {
				spec := a.Object().Object["spec"].(map[string]any)
				pools = append(pools, fmt.Sprint(a.Object().GetName(), " ", spec["cidr"], " ",
					spec["natOutgoing"], " ", spec["nodeSelector"]))
			}
			if do, is := a.Do.(step.Patch); is && strings.Contains(string(do.Merge), "theseus.dev/adopted") &&
				!s.NoReturn && s.Wave != "" {
				labels = append(labels, do.Ref.Name+" "+string(do.Merge))
			}
			if a.Verb() == step.VerbHold {
				holds = append(holds, string(a.Args()))
			}
		}
	}
	if want := []string{
		`default-ipv4-ippool 198.19.0.0/23 false theseus.dev/adopted == "198.19.0.0-23"`,
		`default-ipv4-ippool-2 198.19.2.0/24 false theseus.dev/adopted == "198.19.2.0-24"`}; !slices.Equal(pools,
		want) {
		t.Errorf("pools %q, not %q", pools, want)
	}
	for i, value := range []string{"198.19.0.0-23", "198.19.0.0-23", "198.19.2.0-24"} { // which pool is a node's own
		if want := fmt.Sprintf(`node-%d {"metadata":{"labels":{"theseus.dev/adopted":%q}}}`,
			i+1, value); len(labels) != 3 || labels[i] != want {
			t.Errorf("labels %q, without %s", labels, want)
		}
	}
	want := `{"bits":24,"source":["*"],"target":["vxlan.calico","cali*"],"within":["198.19.0.0/23","198.19.2.0/24"]}`
	if !slices.Equal(holds, []string{want, want, want}) {
		t.Errorf("held: %q", holds)
	}
}

// TestAdoptBridgeUnguarded: without anything that enforces policy nothing of the source is in the API at all.
func TestAdoptBridgeUnguarded(t *testing.T) {
	r := bridged(t)
	r.snapshot.DaemonSets = nil
	r.snapshot.Pods = slices.DeleteFunc(r.snapshot.Pods, func(pod corev1.Pod) bool {
		return strings.HasPrefix(pod.Name, "kube-router-")
	})
	if p := mustMake(t, r); len(p.Source.Parts) > 0 {
		t.Errorf("parts of a network of files: %v", p.Source.Parts)
	}
}

func TestAdoptRefuses(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*request)
		words  string
	}{
		{"calico to what gives no address of choice", func(r *request) {
			r.snapshot, r.change.To, r.drivers = cnitest.Golden(t, "calico"), "cilium",
				append(r.drivers, cilium.Driver{})
			r.options.Manifest = cnitest.Fixture(t, "charts/cilium-v1.16.5.yaml")
		}, "cilium cannot give a pod the address that the pod requests"},
		{"calico to flannel, with the manifest of another", func(r *request) {
			r.snapshot, r.change.To = cnitest.Golden(t, "calico"), "flannel"
		}, "the manifest contains DaemonSet kube-system/calico-node"},
		{"another runtime", func(r *request) {
			r.snapshot.Nodes[1].Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.30"
		}, "runs cri-o"},
		{"an unknown runtime", func(r *request) { r.snapshot.Nodes[1].Status.NodeInfo.ContainerRuntimeVersion = "" },
			"unknown container runtime"},
		{"no range of a node", func(r *request) { r.snapshot.Nodes[1].Spec.PodCIDR = "" }, "the range of node node-2"},
		{"ranges of several sizes", func(r *request) { r.snapshot.Nodes[1].Spec.PodCIDR = "10.244.2.0/25" },
			"have different sizes"},
		{"ranges too large for a block", func(r *request) {
			for i := range r.snapshot.Nodes {
				r.snapshot.Nodes[i].Spec.PodCIDR = fmt.Sprintf("10.244.%d.0/19", i*32)
				r.snapshot.Pods = nil
			}
		}, "19 bits"},
		{"a plugin that nobody knows", func(r *request) {
			r.snapshot.ConfigMaps[0].Data["cni-conf.json"] =
				`{"name":"cbr0","plugins":[{"type":"flannel"},{"type":"mine"}]}`
		}, "cannot be taken from flannel: its CNI configuration chains"},
		{"no reservations", func(r *request) { r.options.Manifest = r.options.Manifest[:len(r.options.Manifest)-1] },
			"IPReservations"},
		{"a flat network that nobody looked at", func(r *request) {
			*r = *flat(t)
			r.snapshot.Facts = r.snapshot.Facts[:1]
		}, "node node-2 was not inspected"},
		{"a flat network, and a pod that cannot be adopted", func(r *request) {
			*r = *flat(t)
			at := slices.IndexFunc(r.snapshot.Pods, isWeb)
			r.snapshot.Pods[at].Annotations = map[string]string{"kubernetes.io/egress-bandwidth": "1M"}
		}, "cannot be adopted, and until the last pod has left weave, no network could assign addresses to new pods"},
		{"a flat network of a few addresses", func(r *request) {
			*r = *flat(t)
			at := slices.IndexFunc(r.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Env,
				func(e corev1.EnvVar) bool { return e.Name == "IPALLOC_RANGE" })
			r.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Env[at].Value = "198.19.0.0/27"
		}, "not a single range of at least 64 addresses"},
		{"a bridge that masquerades pod by pod", func(r *request) {
			*r = *bridged(t)
			r.snapshot.Facts[1].Confs[0].IPMasq = true
		}, "10-bridge.conflist of node node-2 masquerades each pod"},
		{"a bridge with another plugin", func(r *request) {
			*r = *bridged(t)
			r.snapshot.Facts[2].Confs[0].Plugins = []string{"bridge", "portmap", "tuning"}
		}, "10-bridge.conflist of node node-3 chains the plugin tuning"},
		{"a bridge, and nodes that mind where packets come from", func(r *request) {
			*r = *bridged(t)
			r.snapshot.Facts[1].RPFilter = map[string]int{"all": 0, "eth0": 1, "cni0": 1}
		}, "eth0 of node node-2 drops packets"},
		{"a bare pod on an old kernel", func(r *request) {
			r.snapshot.Nodes[0].Status.NodeInfo.KernelVersion = "4.18.0-553.el8_10.x86_64"
			r.snapshot.Pods = append(r.snapshot.Pods, cnitest.Snapshot(t, cnitest.Documents(t, []byte(
				"apiVersion: v1\nkind: Pod\nmetadata: {name: bare, namespace: shop}\nspec: {nodeName: node-1}\n"+
					"status: {phase: Running, podIP: 10.244.1.77}\n"))).Pods...)
		}, "is older than Linux 5.10"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := adoption(t)
			test.change(r)
			mustRefuse(t, r, test.words)
		})
	}
}

// TestChosen: without a range pods are adopted where they can be; with one and the strategy adopt, those that cannot be
// are created again, and the plan says why.
func TestChosen(t *testing.T) {
	unfit := func(r *request) { r.snapshot.Nodes[1].Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.30" }
	for _, test := range []struct {
		name           string
		strategy, cidr string
		change         func(*request)
		want           string // strategy, and the range
		reason         string
	}{
		{"nothing said", "", "", func(*request) {}, "adopt ", "running pods can move"},
		{"a range said", "", "10.96.0.0/16", func(*request) {}, "recreate 10.96.0.0/16",
			"flannel and Calico have different ranges"},
		{"adopt, or else a range", "adopt", "10.96.0.0/16", func(*request) {}, "adopt ", "running pods can move"},
		{"adopt, and it cannot be", "adopt", "10.96.0.0/16", unfit, "recreate 10.96.0.0/16",
			"pods cannot be adopted (node node-2 runs cri-o://1.30, "},
		{"recreate, and it could be otherwise", "recreate", "10.96.0.0/16", unfit, "recreate 10.96.0.0/16",
			"flannel and Calico have different ranges"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := adoption(t)
			r.change.Strategy, r.change.PodCIDR = test.strategy, test.cidr
			test.change(r)
			p := mustMake(t, r)
			if got := p.Strategy + " " + p.Change.PodCIDR; got != test.want ||
				!strings.HasPrefix(p.Reason, test.reason) {
				t.Errorf("%s, for: %s", got, p.Reason)
			}
			chosen, err := plan.Chosen(r.snapshot, r.change, r.drivers, r.options.Manifest)
			if got, _, _ := strings.Cut(test.want, " "); err != nil || chosen.PodCIDR != p.Change.PodCIDR ||
				chosen.Strategy != "" && chosen.Strategy != got {
				t.Errorf("and it is checked as %q with %q", chosen.Strategy, chosen.PodCIDR)
			}
		})
	}
	r := adoption(t)
	r.change.Strategy = ""
	unfit(r)
	anew := cni.CreateAgain + cni.FreeRange
	if hint := mustRefuse(t, r, "no range for the pods of calico is given, and they cannot be adopted: node node-2 "+
		"runs cri-o://1.30"); hint != anew {
		t.Errorf("where pods cannot be adopted, the hint is %q", hint)
	}
	r = adoption(t)
	r.change.Strategy, r.change.CNIVersion = "", "v3.0.0"
	if hint := mustRefuse(t, r,
		"the manifest installs calico"); hint != "give the manifest of the version that you want; or "+anew {
		t.Errorf("where something else stands against it, the hint is %q", hint)
	}
	r = flat(t)
	r.change.Strategy = ""
	mustRefuse(t, r,
		"no range for the pods of calico is given, and Theseus adopts running pods of weave only on request")
}

// TestVerifyAdoptOrder: no step of an adoption may be left out or stand anywhere else, and no undo is there in vain.
func TestVerifyAdoptOrder(t *testing.T) {
	for name, r := range map[string]*request{"flannel": withOneUnadoptable(t), "bridge": bridged(t), "flat": flat(t)} {
		t.Run(name, func(t *testing.T) {
			if name == "flannel" {
				r.snapshot.Nodes = r.snapshot.Nodes[:2] // as many as a rule between nodes needs
				r.snapshot.Pods = slices.DeleteFunc(r.snapshot.Pods, func(pod corev1.Pod) bool {
					return pod.Spec.NodeName == "control-1"
				})
			}
			mustNeedAll(t, mustMake(t, r))
		})
	}
}

func mustNeedAll(t *testing.T, p *plan.Plan) {
	mustNeedOrder(t, p, interchangeable)
	for i, s := range p.Steps {
		for j, action := range s.Undo {
			steps := slices.Clone(p.Steps)
			steps[i].Undo = slices.Delete(slices.Clone(s.Undo), j, j+1)
			if action.Op() != step.OpWait && !dispensable(&s, &action) && plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("step %s passes without its undo action %q", s.ID, action.Title)
			}
		}
		for j, action := range s.Actions {
			steps := slices.Clone(p.Steps)
			steps[i].Actions = slices.Delete(slices.Clone(s.Actions), j, j+1)
			if plan.Verify(mutant(p, steps)) == nil && !dispensable(&s, &action) {
				t.Errorf("step %s passes without %q", s.ID, action.Title)
			}
		}
	}
}

// interchangeable are steps that may as well stand the other way round.
func interchangeable(a, b string) bool {
	for _, pair := range [][2]string{{"joint/target", "joint/pools"}, {"finish/range", "finish/form"},
		{"finish/range", "finish/tidy"}} {
		if a == pair[0] && b == pair[1] || a == pair[1] && b == pair[0] {
			return true
		}
	}
	return false
}

// TestCarriedTooEarly: with the range carried before the last pod is adopted, Felix would cut off those that are
// not; no place before that is accepted.
func TestCarriedTooEarly(t *testing.T) {
	for _, r := range []*request{adoption(t), bridged(t), flat(t)} {
		carriesLast(t, mustMake(t, r))
	}
}

func carriesLast(t *testing.T, p *plan.Plan) {
	carry := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "carry/range" })
	patch := slices.IndexFunc(p.Steps[carry].Actions, func(a step.Action) bool { return a.Op() == step.OpPatch })
	early := p.Steps[carry].Actions[patch]
	early.ID = "early"
	for i := range carry {
		steps := slices.Clone(p.Steps)
		steps[i].Actions = append(slices.Clone(steps[i].Actions), early)
		if err := plan.Verify(mutant(p, steps)); err == nil {
			t.Errorf("the range may be carried in step %s", steps[i].ID)
		}
	}
}

// flat is a cluster on Weave Net, whose nodes' pods are all neighbours and share one range.
func flat(t testing.TB) *request {
	r := adoption(t)
	r.snapshot = cnitest.Golden(t, "weave")
	return r
}

// TestAdoptFlat: nobody gives an address of a range that no node has a part of before every pod of every node is known.
func TestAdoptFlat(t *testing.T) {
	p := mustMake(t, flat(t))
	golden(t, "adopt-flat-runbook.txt", []byte(plan.Runbook(p)))
	var reserved, pool any
	for _, s := range p.Steps {
		for _, a := range s.Actions {
			if a.Object() != nil && a.Object().GetKind() == "IPReservation" {
				reserved = a.Object().Object["spec"].(map[string]any)["reservedCIDRs"]
			}
			if a.Object() != nil && a.Object().GetKind() == "IPPool" {
				pool = a.Object().Object["spec"].(map[string]any)["blockSize"]
			}
		}
	}
	if got := fmt.Sprint(pool, reserved); got != "26 [198.19.0.0/32 198.19.0.1/32 198.19.12.0/32 198.19.15.255/32]" {
		t.Errorf("blocks, and what no new pod gets: %s", got)
	}
	at := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "switch/all" })
	for _, list := range [][]step.Action{p.Steps[at].Actions, p.Steps[at].Undo} {
		for i := range list {
			for j := range list { // nor in any other order of what is done about two nodes
				if list[i].Verb() != step.VerbAdopt || list[j].Op() != step.OpPatch {
					continue
				}
				steps := slices.Clone(p.Steps)
				swapped := slices.Clone(list)
				swapped[i], swapped[j] = swapped[j], swapped[i]
				if steps[at].Actions = swapped; &list[0] == &p.Steps[at].Undo[0] {
					steps[at].Actions, steps[at].Undo = p.Steps[at].Actions, swapped
				}
				if plan.Verify(mutant(p, steps)) == nil {
					t.Errorf("%q and %q may change places", list[i].Title, list[j].Title)
				}
			}
		}
	}
}
