package plan_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/flags/setting"
	"github.com/theseus-cni/theseus/internal/step"
)

// decided evaluates a rule for every node of a request, and makes the plan of what it says.
func decided(t *testing.T, r *request, name, variants, rule string) (*plan.Plan, error) {
	t.Helper()
	text := fmt.Sprintf(
		`{"flags": {"net": {"state": "ENABLED", "metadata": {"knob": %q}, "variants": %s, "defaultVariant": "old", "targeting": %s}}}`,
		name, variants, rule)
	set, err := flagset.Parse("net.json", []byte(text), flagset.JSON, flagset.Strict)
	if err != nil {
		t.Fatal(err)
	}
	fleet := setting.Read(r.snapshot, nil)
	values := map[string]string{}
	for n, one := range fleet.Evaluate(set, []string{"net"}, 0, nil).Of("net") {
		if one.Code != "" {
			t.Fatal(one.Message)
		}
		if !one.Default() {
			values[fleet.Nodes()[n]] = setting.ValueText(one.Value)
		}
	}
	r.change.Dataplane, r.change.Flag = "", name
	r.options.Decided = &plan.Decided{Origin: plan.Origin{Source: "net.json", Flag: "net", Digest: set.Digest()},
		Knob: name, Values: values}
	return r.make()
}

const modes = `{"old": "Disabled", "new": "Enabled"}`

// share is a rule that gives some nodes of a hundred the new value.
func share(n int) string {
	return fmt.Sprintf(`{"fractional": [["new", %d], ["old", %d]]}`, n, 100-n)
}

// fleet is a request of nodes.
func fleetOf(t *testing.T, nodes int) *request {
	r := toNFTables(t)
	for i := range nodes - 1 {
		addNodes(r, fmt.Sprintf("n-%d", i))
	}
	return r
}

// carry makes what a plan does to FelixConfigurations, in the request's snapshot.
func carry(t *testing.T, r *request, p *plan.Plan) {
	t.Helper()
	specs := map[string]map[string]any{}
	for _, object := range r.snapshot.Calico("FelixConfiguration") {
		specs[object.GetName()], _, _ = unstructured.NestedMap(object.Object, "spec")
	}
	for _, s := range p.Steps {
		for _, a := range s.Actions {
			switch {
			case a.Op() == step.OpApply && a.Object().GetKind() == "FelixConfiguration":
				specs[a.Object().GetName()], _, _ = unstructured.NestedMap(a.Object().Object, "spec")
			case a.Op() == step.OpDelete && a.Ref().Kind == "FelixConfiguration":
				delete(specs, a.Ref().Name)
			case a.Op() == step.OpPatch && a.Ref().Kind == "FelixConfiguration":
				var patch struct{ Spec map[string]any }
				if err := json.Unmarshal(a.Do.(step.Patch).Merge, &patch); err != nil {
					t.Fatal(err)
				}
				for field := range patch.Spec {
					delete(specs[a.Ref().Name], field)
				}
			}
		}
	}
	r.snapshot.Other = slices.DeleteFunc(r.snapshot.Other, func(o unstructured.Unstructured) bool {
		return o.GetKind() == "FelixConfiguration"
	})
	for name, spec := range specs {
		felixConfiguration(r, name, spec)
	}
}

// scopes counts the nodes with a value of their own, and says what the cluster's is.
func scopes(r *request) (own int, whole any) {
	for _, object := range r.snapshot.Calico("FelixConfiguration") {
		mode, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "nftablesMode")
		if object.GetName() == "default" {
			whole = mode
		} else if mode != nil {
			own++
		}
	}
	return own, whole
}

// TestShareOfAFlag: the share that a flag gives decides who changes; who has it keeps it while the share grows, and is
// not touched again; at the whole it becomes the cluster's value; and the way back is the same.
func TestShareOfAFlag(t *testing.T) {
	r := fleetOf(t, 100)
	in := map[string]bool{}
	for _, percent := range []int{10, 50, 100} {
		p, err := decided(t, r, "nftablesMode", modes, share(percent))
		if err != nil {
			t.Fatal(err)
		}
		for _, wave := range p.Waves {
			for _, node := range wave.Nodes {
				if in[node] {
					t.Errorf("%s has it already, and changes at %d %%", node, percent)
				}
				in[node] = true
			}
		}
		for node := range in {
			if p.Rollout.Origin.Turns[node].Value != "Enabled" {
				t.Errorf("%s lost it at %d %%", node, percent)
			}
		}
		if n := len(in); n < percent-10 || n > percent+10 {
			t.Errorf("%d of 100 nodes have it at %d %%", n, percent)
		}
		carry(t, r, p)
		own, whole := scopes(r)
		if percent < 100 && (own != len(in) || whole != nil) || percent == 100 && (own != 0 || whole != "Enabled") {
			t.Errorf("at %d %%: %d nodes have a value of their own, the cluster %v", percent, own, whole)
		}
	}
	if _, err := decided(t, r, "nftablesMode", modes, share(100)); err == nil ||
		!strings.Contains(err.Error(), "is Enabled already") {
		t.Errorf("there is nothing left to do, and: %v", err)
	}
	for _, percent := range []int{30, 0} {
		p, err := decided(t, r, "nftablesMode", modes, share(percent))
		if err != nil {
			t.Fatal(err)
		}
		carry(t, r, p)
	}
	if own, whole := scopes(r); own != 0 || whole != "Disabled" {
		t.Errorf("back at 0 %%: %d nodes have a value of their own, the cluster %v", own, whole)
	}
}

// TestShareShrinks: nodes that fall out before the whole has it take the cluster's value again.
func TestShareShrinks(t *testing.T) {
	r := fleetOf(t, 20)
	for _, percent := range []int{50, 10} {
		p, err := decided(t, r, "nftablesMode", modes, share(percent))
		if err != nil {
			t.Fatal(err)
		}
		carry(t, r, p)
	}
	p, err := decided(t, r, "nftablesMode", modes, `{"if": [false, "new"]}`)
	if err != nil {
		t.Fatal(err)
	}
	if carry(t, r, p); p.Rollout.Value != "" {
		t.Error("the cluster's value is not to change")
	}
	if own, whole := scopes(r); own != 0 || whole != nil {
		t.Errorf("%d nodes have a value of their own, the cluster %v", own, whole)
	}
}

// TestFlagOfManyValues: a flag may give nodes more than one new value, to each its own, and leave some as they are.
func TestFlagOfManyValues(t *testing.T) {
	r := fleetOf(t, 4)
	felixConfiguration(r, "node.n-2", map[string]any{"iptablesRefreshInterval": "1m0s", "ipv6Support": false})
	p, err := decided(t, r, "iptablesRefreshInterval", `{"old": "180s", "one": "60s", "two": "120s"}`,
		`{"if": [{"in": [{"var": "node"}, ["n-0"]]}, "one", {"in": [{"var": "node"}, ["n-1", "n-2"]]}, "two"]}`)
	if err != nil {
		t.Fatal(err)
	}
	text := plan.Runbook(p)
	for _, want := range []string{"set iptablesRefreshInterval=1m0s for n-0",
		"reports IptablesRefreshInterval=60000000000", "set iptablesRefreshInterval=2m0s for n-1",
		"set iptablesRefreshInterval=2m0s for n-2", "on 2 of 4 nodes; changed on 2", "keep a value of their own"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	for _, s := range p.Steps {
		if s.Node == "n-2" && s.Undo[0].Object().Object["spec"].(map[string]any)["iptablesRefreshInterval"] != "1m0s" {
			t.Error("n-2 does not get its former value back")
		}
	}
	data, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := plan.Read(data); err != nil || plan.Verify(again) != nil {
		t.Errorf("what was written does not hold: %v, %v", err, plan.Verify(again))
	}
}

// TestVerifyKnowsWhatAFlagSays: a plan whose steps give a node another value than its flag said does not hold.
func TestVerifyKnowsWhatAFlagSays(t *testing.T) {
	r := fleetOf(t, 6)
	p, err := decided(t, r, "nftablesMode", modes, share(50))
	if err != nil {
		t.Fatal(err)
	}
	node := p.Waves[0].Nodes[0]
	for name, change := range map[string]func(*plan.Plan){
		"no word on a node": func(p *plan.Plan) { delete(p.Rollout.Origin.Turns, node) },
		"another value": func(p *plan.Plan) {
			turn := p.Rollout.Origin.Turns[node]
			turn.Own = "Auto"
			p.Rollout.Origin.Turns[node] = turn
		},
		"a whole that nobody wants": func(p *plan.Plan) { p.Rollout.Value = "Enabled" },
	} {
		data, err := plan.Write(p)
		if err != nil {
			t.Fatal(err)
		}
		other, err := plan.Read(data)
		if err != nil {
			t.Fatal(err)
		}
		if change(other); plan.Verify(other) == nil {
			t.Errorf("a plan with %s holds", name)
		}
	}
}

// TestOriginRefuses: what a flag set cannot decide.
func TestOriginRefuses(t *testing.T) {
	for _, test := range []struct {
		name                    string
		change                  func(*request)
		setting, variants, rule string
		words                   string
	}{
		{"a value that is not taken", nil, "nftablesMode", `{"old": "Disabled", "new": "Enabeld"}`,
			share(50), "must be one of Disabled, Enabled"},
		{"shares besides", func(r *request) { r.change.WavePercents = []int{10, 100} }, "nftablesMode", modes,
			share(50), "--waves cannot be shares"},
		{"nothing to do", nil, "nftablesMode", modes, share(0), "is Disabled already"},
		{"a flag that nobody can prove", nil, "logSeverityScreen", `{"old": "Info", "new": "Debug"}`, share(50),
			"Theseus cannot verify calico/logSeverityScreen"},
		{"a flag that is no node's", nil, "calico/bgp", `{"old": "bird", "new": "vxlan"}`, share(50),
			"cannot be set for one node"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := fleetOf(t, 10)
			if test.change != nil {
				test.change(r)
			}
			_, err := decided(t, r, test.setting, test.variants, test.rule)
			refusal, ok := err.(*plan.Refusal)
			if !ok || !strings.Contains(refusal.Message+" / "+refusal.Hint, test.words) {
				t.Errorf("got %v (%+v), want %q", err, refusal, test.words)
			}
		})
	}
}

// inEnvironment is a cluster whose agents have a flag from their DaemonSet's environment.
func inEnvironment(t *testing.T, nodes int) *request {
	r := fleetOf(t, nodes)
	container := &r.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0]
	container.Env = append(container.Env, corev1.EnvVar{Name: "FELIX_IPTABLESREFRESHINTERVAL", Value: "90"})
	r.change.Dataplane, r.change.Flag = "", "iptablesRefreshInterval=60s"
	return r
}

// TestRolloutInTheEnvironment: a flag that the agents have from their DaemonSet's environment is changed there, while
// the DaemonSet replaces no pod by itself; each node's agent is recreated in its turn.
func TestRolloutInTheEnvironment(t *testing.T) {
	p := mustMake(t, inEnvironment(t, 3))
	text := plan.Runbook(p)
	for _, want := range []string{"to OnDelete", "to FELIX_IPTABLESREFRESHINTERVAL=60\n",
		"back to FELIX_IPTABLESREFRESHINTERVAL=90",
		"restart the agent of DaemonSet kube-system/calico-node on n-0", "reports IptablesRefreshInterval=60000000000",
		"reports IptablesRefreshInterval=90000000000", "restore the update strategy of"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "FelixConfiguration") {
		t.Errorf("a FelixConfiguration would do nothing:\n%s", text)
	}
	for i, s := range p.Steps {
		for j, action := range s.Actions {
			steps := slices.Clone(p.Steps)
			steps[i].Actions = slices.Delete(slices.Clone(s.Actions), j, j+1)
			// Those of the second and third node say what new pods are made from again: after a step was taken back
			// alone it is not so.
			repeats := action.Op() == step.OpApply && s.Node != p.Waves[0].Nodes[0]
			network := action.Op() == step.OpApply && action.Object().GetName() == "calico-node" ||
				action.Op() == step.OpRestart || action.Op() == step.OpPatch
			if network && !repeats && plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("%s without %q passes", s.ID, action.Title)
			}
		}
		for j, action := range s.Undo {
			steps := slices.Clone(p.Steps)
			steps[i].Undo = slices.Delete(slices.Clone(s.Undo), j, j+1)
			if (action.Op() == step.OpRestart || action.Op() == step.OpPatch) && plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("the undo of %s without %q passes", s.ID, action.Title)
			}
		}
	}
}

// TestEnvironmentRefuses: what cannot be staged there.
func TestEnvironmentRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*request)
		words  string
	}{
		"OnDelete already": {func(r *request) { r.snapshot.DaemonSets[0].Spec.UpdateStrategy.Type = "OnDelete" },
			"replaces no pod by itself"},
		"from elsewhere": {func(r *request) {
			env := r.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Env
			env[len(env)-1] = corev1.EnvVar{Name: "FELIX_IPTABLESREFRESHINTERVAL", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
		}, "takes FELIX_IPTABLESREFRESHINTERVAL of its environment from another object"},
		"it is so": {func(r *request) { r.change.Flag = "iptablesRefreshInterval=90s" }, "already"},
	} {
		r := inEnvironment(t, 2)
		test.change(r)
		if _, err := r.make(); err == nil || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := inEnvironment(t, 4)
	if _, err := decided(t, r, "iptablesRefreshInterval", `{"old": "90s", "new": "60s"}`, share(50)); err == nil ||
		!strings.Contains(err.Error(), "one environment for all nodes") {
		t.Errorf("by a flag set: %v", err)
	}
}
