package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cilium"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/flannel"
	"github.com/theseus-cni/theseus/internal/network/weave"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step"
)

func drivers() cni.Registry {
	return cni.Registry{flannel.Driver{}, calico.Driver{}, weave.Driver{}, cilium.Driver{}}
}

// request is everything that a plan is made of.
type request struct {
	snapshot *cluster.Snapshot
	change   v1alpha1.ChangeSpec
	drivers  cni.Registry
	options  plan.Options
}

func flannelToCalico(t testing.TB) *request {
	return &request{
		snapshot: cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml")),
		change: v1alpha1.ChangeSpec{
			To: "calico", Manifest: "calico.yaml", PodCIDR: "10.96.0.0/16", AgentImage: "theseus.dev/agent:dev",
		},
		drivers: drivers(),
		options: plan.Options{
			Manifest: cnitest.Fixture(t, "calico-manifest.yaml"),
			Version:  "v0.0.0-test",
			Now:      time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		},
	}
}

func (r *request) make() (*plan.Plan, error) {
	return plan.Make(r.snapshot, r.change, r.drivers, nil, r.options)
}

func mustMake(t testing.TB, r *request) *plan.Plan {
	t.Helper()
	p, err := r.make()
	if err != nil {
		t.Fatal(err)
	}
	pass := check.Pass{Change: r.change, Found: r.drivers.Detect(r.snapshot)}
	if p.InPlace() != pass.InPlace() {
		t.Fatalf("a plan of the strategy %s leaves pods in place: %t; InPlace in internal/preflight/check/evidence.go "+
			"says %t of its change", p.Strategy, p.InPlace(), pass.InPlace())
	}
	return p
}

// TestOneChange: a change that asks for two things gets no plan, and a plan never drops one of them.
func TestOneChange(t *testing.T) {
	type asks struct {
		name string
		set  func(*v1alpha1.ChangeSpec)
	}
	settings := []asks{
		{"encapsulation", func(c *v1alpha1.ChangeSpec) { c.Encapsulation = "none" }},
		{"pool", func(c *v1alpha1.ChangeSpec) { c.Pool = "10.98.0.0/16" }},
		{"reflectors", func(c *v1alpha1.ChangeSpec) { c.Reflectors = "has(rr)" }},
		{"rollout", func(c *v1alpha1.ChangeSpec) { c.Dataplane = "nftables" }},
	}
	networks := []asks{
		{"a network", func(c *v1alpha1.ChangeSpec) { c.To = "calico" }},
		{"a network", func(c *v1alpha1.ChangeSpec) { c.To = "cilium" }},
		{"a strategy", func(c *v1alpha1.ChangeSpec) { c.Strategy = "upgrade" }},
		{"a pod CIDR", func(c *v1alpha1.ChangeSpec) { c.PodCIDR = "10.99.0.0/16" }},
	}
	for i, one := range settings {
		for _, other := range append(slices.Clone(settings[i+1:]), networks...) {
			r := onThree(t, "bird")
			r.change.Dataplane = ""
			one.set(&r.change)
			other.set(&r.change)
			want := "a plan makes one change: " + one.name + " cannot be combined with " +
				other.name
			if _, err := r.make(); err == nil || err.Error() != want {
				t.Errorf("want %q: %v", want, err)
			}
		}
	}
}

func TestMakeIsDeterministic(t *testing.T) {
	first, second := mustMake(t, flannelToCalico(t)), mustMake(t, flannelToCalico(t))
	if first.Hash != second.Hash || first.Name != second.Name || first.Hash != plan.Hash(first) {
		t.Errorf("%s %s, then %s %s", first.Name, first.Hash, second.Name, second.Hash)
	}
}

// TestFlags: the flags as they were resolved, and the algorithm in any case, are in the plan and under its hash.
func TestFlags(t *testing.T) {
	r := flannelToCalico(t)
	without := mustMake(t, r)
	r.options.Flags = plan.Flags{Digest: "d",
		Values: map[string]map[string][]string{"mode": {"on": {"a"}, "off": {"b"}}}}
	with := mustMake(t, r)
	if without.Flags.Algorithm != flagset.Algorithm || with.Flags.Algorithm != flagset.Algorithm ||
		with.Flags.Values["mode"]["on"][0] != "a" {
		t.Errorf("%+v, %+v", without.Flags, with.Flags)
	}
	if with.Hash == without.Hash {
		t.Error("the hash leaves the flags out")
	}
}

// TestFromWeave: the pair is computed, and was never written down: no range per node, no VXLAN device, an
// MTU smaller than Calico's own.
func TestFromWeave(t *testing.T) {
	r := woven(t)
	p := mustMake(t, r)
	if err := plan.Verify(p); err != nil {
		t.Errorf("the plan breaks an invariant: %v", err)
	}
	if p.Source.CNI != "weave" || p.Target.CNI != "calico" || p.Target.Capabilities.MTU != 1376 {
		t.Errorf("from %s to %s with an MTU of %d", p.Source.CNI, p.Target.CNI, p.Target.Capabilities.MTU)
	}

	r.snapshot.DaemonSets[0].Status.NumberReady = 1
	if _, err := r.make(); err == nil || !strings.Contains(err.Error(), "weave has a problem") {
		t.Errorf("with a broken source: %v", err)
	}

	// A real cluster: its nodes' pods are all on one Ethernet and have addresses of one range, of which no node has a
	// part. What the API says of the nodes' own ranges (spec.podCIDR) holds for none of its pods.
	r = flannelToCalico(t)
	r.snapshot = cnitest.Golden(t, "weave")
	p = mustMake(t, r)
	golden(t, "weave-runbook.txt", []byte(plan.Runbook(p)))
	const whole = "198.19.0.0/20"
	want := map[string][]string{ // by what is done, of which ranges, and on how many nodes
		"join":  {"node-1 " + whole + " with 10.96.0.0/16", "node-2 " + whole + " with 10.96.0.0/16"},
		"clean": {"node-1 routes within " + whole, "node-2 routes within " + whole},
		"pool":  {"theseus-old-0 " + whole},
	}
	got := map[string][]string{}
	for _, s := range p.Steps {
		for _, a := range slices.Concat(s.Actions, s.Undo) {
			patch, _ := a.Do.(step.Patch)
			for _, node := range r.snapshot.Nodes {
				if own := node.Spec.PodCIDR; own == "" ||
					strings.Contains(string(a.Args())+string(patch.Merge)+a.Title, own) {
					t.Errorf("%q of step %s is about %q, which is not what the pods of %s have",
						a.Title, s.ID, own, node.Name)
				}
			}
			switch {
			case a.Verb() == step.VerbJoin:
				args, err := step.Arguments[step.JoinArgs](a)
				if err != nil {
					t.Fatal(err)
				}
				got["join"] = append(got["join"], a.Node()+" "+strings.Join(args.Old, " ")+
					" with "+strings.Join(args.New, " "))
			case a.Verb() == step.VerbClean && strings.HasPrefix(s.ID, "remove/"):
				args, err := step.Arguments[step.Residue](a)
				if err != nil {
					t.Fatal(err)
				}
				got["clean"] = append(got["clean"], a.Node()+" routes within "+strings.Join(args.Routes, " "))
			case a.Op() == step.OpApply && a.Object().GetKind() == "IPPool":
				cidr, _, _ := unstructured.NestedString(a.Object().Object, "spec", "cidr")
				got["pool"] = append(got["pool"], a.Object().GetName()+" "+cidr)
			}
		}
	}
	for what, lines := range want {
		if slices.Sort(got[what]); !slices.Equal(got[what], lines) {
			t.Errorf("%s: %q, not %q", what, got[what], lines)
		}
	}
}

func TestMakeRefuses(t *testing.T) {
	document := func(text string) []unstructured.Unstructured { return cnitest.Documents(t, []byte(text)) }
	addPod := func(r *request, text string) {
		r.snapshot.Pods = append(r.snapshot.Pods, cnitest.Snapshot(t, document(text)).Pods...)
	}
	for _, test := range []struct {
		name   string
		change func(*request)
		words  string
	}{
		{"no target", func(r *request) { r.change.To = "" }, "no target network"},
		{"unknown network", func(r *request) { r.change.To = "antrea" }, `"antrea" is not known`},
		{"unknown strategy", func(r *request) { r.change.Strategy = "mirror" }, `"mirror" is not available`},
		{"no manifest", func(r *request) { r.options.Manifest = nil }, "no manifest"},
		{"no range", func(r *request) { r.change.PodCIDR = "" }, "no range"},
		{"no agent image", func(r *request) { r.change.AgentImage = "" }, "no image of the agent"},
		{"overlap", func(r *request) { r.change.PodCIDR = "10.244.128.0/17" }, "overlaps"},
		{"range that is none", func(r *request) { r.change.PodCIDR = "10.96" }, "is not an IPv4 CIDR"},
		{"other version", func(r *request) { r.change.CNIVersion = "v3.30.0" }, "installs calico v3.31.0, not v3.30.0"},
		{"no network", func(r *request) { r.snapshot.DaemonSets, r.snapshot.ConfigMaps = nil, nil },
			"no network that Theseus knows"},
		{"two networks", func(r *request) {
			both := cnitest.Snapshot(t,
				append(cnitest.Fixture(t, "flannel.yaml"), cnitest.Fixture(t, "calico.yaml")...))
			both.Nodes, r.snapshot = r.snapshot.Nodes, both
		}, "two networks were found: flannel and calico"},
		{"on it already", func(r *request) { r.snapshot = cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml")) },
			"already on calico"},
		{"source not in order", func(r *request) { r.snapshot.DaemonSets[0].Status.NumberReady = 1 },
			"flannel has a problem"},
		{"half migrated: label", func(r *request) { r.snapshot.Nodes[0].Labels[v1alpha1.LabelTarget] = "true" },
			"in the middle of a migration"},
		{"half migrated: taint", func(r *request) {
			r.snapshot.Nodes[0].Spec.Taints = append(r.snapshot.Nodes[0].Spec.Taints,
				corev1.Taint{Key: v1alpha1.TaintPending})
		}, "in the middle of a migration"},
		{"half migrated by another tool", func(r *request) {
			r.snapshot.Nodes[0].Labels["projectcalico.org/node-network-during-migration"] = "flannel"
		}, "in the middle of a migration"},
		{"half migrated: probe pod", func(r *request) {
			addPod(r, "apiVersion: v1\nkind: Pod\n"+
				"metadata: {name: p, namespace: theseus-system, labels: {theseus.dev/probe: new}}\n")
		}, "in the middle of a migration"},
		{"half migrated: stopped in prepare", func(r *request) {
			agent := r.snapshot.DaemonSets[0].DeepCopy()
			agent.Namespace, agent.Name = v1alpha1.Namespace, "theseus-agent"
			r.snapshot.DaemonSets = append(r.snapshot.DaemonSets, *agent)
		}, "in the middle of a migration: DaemonSet theseus-system/theseus-agent exists"},
		{"no nodes", func(r *request) { r.snapshot.Nodes = nil }, "no nodes"},
		{"node down", func(r *request) { r.snapshot.Nodes[1].Status.Conditions[0].Status = "Unknown" },
			"node node-2 is not Ready"},
		{"Windows", func(r *request) { r.snapshot.Nodes[1].Labels["kubernetes.io/os"] = "windows" }, "runs windows"},
		{"bare pod", func(r *request) {
			addPod(r, "apiVersion: v1\nkind: Pod\nmetadata: {name: bare, namespace: shop}\nspec: {nodeName: node-1}\n"+
				"status: {phase: Running, podIP: 10.244.1.77}\n")
		}, "shop/bare: no controller owns it"},
		{"static pod", func(r *request) {
			addPod(r, "apiVersion: v1\nkind: Pod\nmetadata: {name: web-node-1, namespace: shop, ownerReferences: "+
				"[{apiVersion: v1, kind: Node, name: node-1, uid: x, controller: true}]}\nspec: {nodeName: node-1}\n"+
				"status: {phase: Running, podIP: 10.244.1.78}\n")
		}, "static pod"},
		{"pod on an unknown network", func(r *request) { r.snapshot.Pods[2].Status.PodIP = "172.17.0.2" },
			"outside of flannel's range"},
		{"waves that leave out nodes", func(r *request) { r.change.Waves = []int{1, 1} }, "leave out 1 node,"},
		{"dual stack", func(r *request) {
			r.snapshot.ConfigMaps[0].Data["net-conf.json"] =
				`{"Network":"10.244.0.0/16","EnableIPv6":true,"IPv6Network":"fd00::/48","Backend":{"Type":"vxlan"}}`
		}, "IPv6"},
		{"same tunnel", func(r *request) {
			r.snapshot.ConfigMaps[0].Data["net-conf.json"] =
				`{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":4096,"Port":4789}}`
		}, "VXLAN 4096"},
		{"operator", func(r *request) {
			r.options.Manifest = document("apiVersion: operator.tigera.io/v1\nkind: Installation\n" +
				"metadata: {name: default}\n")
		}, "operator"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := flannelToCalico(t)
			test.change(r)
			mustRefuse(t, r, test.words)
		})
	}
}

// mustRefuse demands that a request is refused with these words, and with a hint, which it returns.
func mustRefuse(t *testing.T, r *request, words string) string {
	t.Helper()
	_, err := r.make()
	var refused *plan.Refusal
	if !errors.As(err, &refused) {
		t.Fatalf("not refused: %v", err)
	}
	if !strings.Contains(refused.Message, words) || refused.Hint == "" {
		t.Errorf("the refusal does not say %q: %q, hint %q", words, refused.Message, refused.Hint)
	}
	return refused.Hint
}

func TestStale(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*cluster.Snapshot)
		want   string // empty: still fits
	}{
		{"nothing", func(*cluster.Snapshot) {}, ""},
		{"pods come and go", func(s *cluster.Snapshot) { s.Pods = s.Pods[1:] }, ""},
		{"order", func(s *cluster.Snapshot) { s.Nodes[0], s.Nodes[1] = s.Nodes[1], s.Nodes[0] }, ""},
		{"status of a network", func(s *cluster.Snapshot) { s.DaemonSets[0].Status.NumberReady-- }, ""},
		{"other cluster", func(s *cluster.Snapshot) { s.UID = "b" }, "another cluster"},
		{"node added", func(s *cluster.Snapshot) {
			s.Nodes = append(s.Nodes, corev1.Node{})
			s.Nodes[3].Name = "node-3"
		}, "node node-3 was added"},
		{"node removed", func(s *cluster.Snapshot) { s.Nodes = s.Nodes[1:] }, "node node-1 was removed"},
		{"node replaced", func(s *cluster.Snapshot) { s.Nodes[0].UID = "x" },
			"nodes were added, removed or given other addresses"},
		{"network configuration", func(s *cluster.Snapshot) { s.ConfigMaps[0].Data["net-conf.json"] = "{}" },
			"of a network was changed"},
		{"policy", func(s *cluster.Snapshot) { s.NetworkPolicies = nil }, "NetworkPolicies"},
		{"migration", func(s *cluster.Snapshot) { s.Nodes[0].Labels = map[string]string{v1alpha1.LabelTarget: "true"} },
			"a migration began: node node-1 has the label"},
		{"budget", func(s *cluster.Snapshot) { s.Budgets[0].Spec.MaxUnavailable = nil }, "PodDisruptionBudgets"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := mustMake(t, flannelToCalico(t))
			now := flannelToCalico(t).snapshot
			test.change(now)
			got := strings.Join(plan.Stale(p, now), "; ")
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("stale: %q, want %q", got, test.want)
			}
		})
	}
}

// TestProbePolicyGoesLast: the policy that denies probes stays until all probe pods are gone, also on the way back: one
// of them might answer while it ends.
func TestProbePolicyGoesLast(t *testing.T) {
	p := mustMake(t, flannelToCalico(t))
	for _, actions := range [][]step.Action{
		stepOf(t, p, "finish/probes").Actions, stepOf(t, p, "prepare/probes").Undo,
	} {
		var pods, policies int
		for _, a := range actions {
			do, is := a.Do.(step.Delete)
			switch {
			case !is:
			case do.Ref.Kind == "Pod":
				if pods++; policies > 0 {
					t.Error("a probe pod outlives the policy")
				}
			case do.Ref.Kind == "NetworkPolicy":
				if policies++; a.Together {
					t.Error("the policy goes while pods end")
				}
			}
		}
		if pods == 0 || policies != 1 {
			t.Errorf("%d pods, %d policies", pods, policies)
		}
	}
}
