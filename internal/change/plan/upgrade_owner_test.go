package plan_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// operatorManifest is what installs a release of Calico's operator, with words replaced, each of which must be there.
func operatorManifest(t testing.TB, release string, words ...string) []unstructured.Unstructured {
	t.Helper()
	text := string(cnitest.Text(t, "tigera-operator-"+release+".yaml"))
	for i := 0; i < len(words); i += 2 {
		if !strings.Contains(text, words[i]) {
			t.Fatalf("the operator %s has no %q", release, words[i])
		}
		text = strings.ReplaceAll(text, words[i], words[i+1])
	}
	return cnitest.Documents(t, []byte(text))
}

// kindOf is the first object of a kind, of which there must be one.
func kindOf(objects []unstructured.Unstructured, kind string) *unstructured.Unstructured {
	return &objects[slices.IndexFunc(objects, func(o unstructured.Unstructured) bool { return o.GetKind() == kind })]
}

const tigeraStatus = `
apiVersion: operator.tigera.io/v1
kind: TigeraStatus
metadata: {name: calico}
status:
  conditions:
  - {type: Available, status: "True", reason: AllObjectsAvailable, message: All objects available, observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: Progressing, status: "False", reason: AllObjectsAvailable, message: All objects available, observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: Degraded, status: "False", reason: AllObjectsAvailable, message: All objects available, observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z"}
`

// owned is a cluster of three nodes on Calico v3.30.1 that its operator made, and the operator's manifest that makes
// v3.31.0.
func owned(t testing.TB) *request {
	made := slices.DeleteFunc(cnitest.Documents(t,
		[]byte(strings.NewReplacer("v3.31.0", "v3.30.1", "namespace: kube-system", "namespace: calico-system").
			Replace(withTypha(t)))), func(o unstructured.Unstructured) bool {
		return o.GetKind() == "CustomResourceDefinition"
	})
	objects := slices.DeleteFunc(cnitest.Fixture(t, "calico.yaml"), func(o unstructured.Unstructured) bool {
		return o.GetKind() == "DaemonSet" || o.GetKind() == "ConfigMap"
	})
	objects = slices.Concat(objects, made,
		operatorManifest(t, "v1.38.1", "          env:\n", "          env:\n            - {name: MINE, value: mine}\n"),
		cnitest.Fixture(t, "tigera-custom-resources.yaml"), cnitest.Documents(t, []byte(tigeraStatus)))
	spec := kindOf(objects, "Installation").Object["spec"].(map[string]any)
	// the operator writes what it takes for unsaid
	spec["variant"], spec["cni"] = "Calico", map[string]any{"type": "Calico"}
	spec["calicoNetwork"].(map[string]any)["bgp"] = "Enabled"
	r := &request{snapshot: cnitest.Snapshot(t, objects),
		change: v1alpha1.ChangeSpec{To: "calico", AgentImage: "theseus.dev/agent:dev"}, drivers: drivers(),
		options: plan.Options{Version: "v0.0.0-test", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Manifest: operatorManifest(t, "v1.40.0")}}
	addNodes(r, "node-2", "node-3")
	return r
}

func TestOwnedUpgradeGolden(t *testing.T) {
	p := mustMake(t, owned(t))
	golden(t, "upgrade-owned-runbook.txt", []byte(plan.Runbook(p)))
	text, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := plan.Read(text); err != nil || again.Hash != p.Hash || again.Upgrade.Owner.To != "v1.40.0" {
		t.Errorf("reading what was written: %v", err)
	}
}

// TestOwnedUpgradeTouchesNothing: what the operator writes, the plan leaves to it, but for pods whose turn it is.
func TestOwnedUpgradeTouchesNothing(t *testing.T) {
	for _, s := range mustMake(t, owned(t)).Steps {
		for _, a := range slices.Concat(s.Actions, s.Undo) {
			var ref step.Ref
			switch {
			case a.Object() != nil:
				ref = step.RefOf(a.Object())
			case a.Ref() != (step.Ref{}) && (a.Op() == step.OpPatch || a.Op() == step.OpDelete):
				ref = a.Ref()
			}
			if ref.Namespace == "calico-system" || ref.Kind == "Installation" {
				t.Errorf("step %s: %s changes %s", s.ID, a.Title, ref)
			}
		}
	}
}

// TestOwnedUpgradeCannotDoWithout: there is no step, no action, no undo, no gate and no mark that it can do without.
func TestOwnedUpgradeCannotDoWithout(t *testing.T) {
	p := mustMake(t, owned(t))
	for i, s := range p.Steps {
		if strings.HasPrefix(s.ID, "prepare/theseus") || strings.HasPrefix(s.ID, "finish/") {
			continue
		}
		fails := func(what string, change func(*step.Step)) {
			steps := slices.Clone(p.Steps)
			steps[i].Actions, steps[i].Undo = slices.Clone(s.Actions), slices.Clone(s.Undo)
			change(&steps[i])
			if plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("step %s without %s passes", s.ID, what)
			}
		}
		if plan.Verify(mutant(p, slices.Delete(slices.Clone(p.Steps), i, i+1))) == nil {
			t.Errorf("a plan without %s passes", s.ID)
		}
		fails("its gate", func(s *step.Step) { s.Gate = nil })
		if strings.HasPrefix(s.ID, "prepare/") || s.ID == "upgrade/rights" || s.ID == "fold/rights" {
			continue
		}
		needed := func(a *step.Action) bool {
			do, waits := a.Do.(step.Wait)
			return !waits || do.Condition.Kind() == step.KindHeld ||
				do.Condition.Kind() == step.KindRenders && do.Condition.Ref() == p.Source.Agent
		}
		for j, a := range s.Actions {
			// A later step sees to it that the owner has made the agents' form.
			if needed(&a) && (s.ID != "owner/tigera-operator" || a.Op() != step.OpWait) {
				fails(a.Title, func(s *step.Step) { s.Actions = slices.Delete(s.Actions, j, j+1) })
			}
			if do, is := a.Do.(step.Restart); is && do.Mark != "" {
				fails("a mark", func(s *step.Step) {
					step.Edit(&s.Actions[j], func(do *step.Restart) { do.Mark = "" })
				})
			}
		}
		for j, a := range s.Undo {
			if needed(&a) && len(s.Undo) > 1 && (s.ID != "owner/tigera-operator" || a.Op() != step.OpWait) {
				fails("undoing: "+a.Title, func(s *step.Step) { s.Undo = slices.Delete(s.Undo, j, j+1) })
			}
		}
	}
}

// TestOwnedUpgradeCatchesReordering: no two steps may change places, but for what comes before the owner, and the end.
func TestOwnedUpgradeCatchesReordering(t *testing.T) {
	p := mustMake(t, owned(t))
	for i := range len(p.Steps) - 1 {
		one, two := p.Steps[i].ID, p.Steps[i+1].ID
		free := one == "prepare/theseus" || strings.HasPrefix(one, "finish/") ||
			one == "upgrade/rights" && two == "upgrade/hold" || one == "fold/strategy"
		steps := slices.Clone(p.Steps)
		steps[i], steps[i+1] = steps[i+1], steps[i]
		if !free && plan.Verify(mutant(p, steps)) == nil {
			t.Errorf("a plan with %s before %s passes", two, one)
		}
	}
}

func TestOwnedUpgradeRefuses(t *testing.T) {
	says := func(r *request, value string, fields ...string) {
		if err := unstructured.SetNestedField(kindOf(r.snapshot.Other, "Installation").Object,
			value, fields...); err != nil {
			t.Fatal(err)
		}
	}
	manifest := func(r *request, from, to string) {
		r.options.Manifest = operatorManifest(t, "v1.40.0", from, to)
	}
	with := func(r *request, text string) {
		r.options.Manifest = append(r.options.Manifest, cnitest.Documents(t, []byte(text))...)
	}
	for _, test := range []struct {
		name        string
		change      func(*request)
		words, hint string
	}{
		{"an API server that cannot hold", func(r *request) { r.snapshot.Kubernetes = "v1.29.15+k3s1" },
			`this API server is "v1.29.15+k3s1"`, "theseus probe run"},
		{"an API server of which nothing is known",
			func(r *request) { r.snapshot.Kubernetes = "" }, `this API server is ""`, ""},
		{"Calico's own manifest", func(r *request) { r.options.Manifest = cnitest.Documents(t, []byte(withTypha(t))) },
			"no Deployment tigera-operator", "manifests/tigera-operator.yaml"},
		{"no operator that runs", func(r *request) {
			r.snapshot.Deployments = slices.DeleteFunc(r.snapshot.Deployments, func(d appsv1.Deployment) bool {
				return d.Name == "tigera-operator"
			})
		}, "which does not run here", ""},
		{"an operator that stands still", func(r *request) {
			for i := range r.snapshot.Deployments {
				r.snapshot.Deployments[i].Spec.Replicas = new(int32)
			}
		}, "scaled to 0", "--replicas=1"},
		{"an operator of a release that is not known", func(r *request) { manifest(r, "v1.40.0", "v1.44.0") },
			"the operator v1.44.0 installs", "--cni-version"},
		{"another version than wanted", func(r *request) { r.change.CNIVersion = "v3.31.1" },
			"installs calico v3.31.0, not v3.31.1", ""},
		{"too far", func(r *request) { manifest(r, "v1.40.0", "v1.50.0"); r.change.CNIVersion = "v3.36.0" },
			"more than 3 minor releases", "several plans"},
		{"the same version", func(r *request) { manifest(r, "v1.40.0", "v1.38.2") }, "runs already", ""},
		{"Enterprise", func(r *request) { says(r, "TigeraSecureEnterprise", "spec", "variant") },
			"spec.variant: TigeraSecureEnterprise", ""},
		{"policy alone", func(r *request) { says(r, "AmazonVPC", "spec", "cni", "type") },
			"spec.cni.type: AmazonVPC", ""},
		{"BPF", func(r *request) { says(r, "BPF", "spec", "calicoNetwork", "linuxDataplane") },
			"linuxDataplane: BPF", ""},
		{"agents that are not taken over", func(r *request) { r.snapshot.DaemonSets[0].Namespace = "kube-system" },
			"has not taken over all", ""},
		{"what does not exist", func(r *request) {
			conditions := kindOf(r.snapshot.Other,
				"TigeraStatus").Object["status"].(map[string]any)["conditions"].([]any)
			conditions[0].(map[string]any)["status"] = "False"
		}, "does not report Calico as Available", "kubectl get tigerastatus calico"},
		{"surging", func(r *request) {
			one := intstr.FromInt32(1)
			r.snapshot.DaemonSets[0].Spec.UpdateStrategy.RollingUpdate.MaxSurge = &one
		}, "maxSurge 1", ""},
		{"another Installation", func(r *request) {
			with(r, "apiVersion: operator.tigera.io/v1\nkind: Installation\nmetadata: {name: default}\n"+
				"spec: {calicoNetwork: {bgp: Disabled}}\n")
		}, "contains Installation default, which differs", "afterwards"},
		{"another kind of the operator's", func(r *request) {
			with(r, "apiVersion: operator.tigera.io/v1\nkind: GatewayAPI\nmetadata: {name: default}\n")
		}, "contains GatewayAPI default", ""},
		{"something beside it", func(r *request) {
			with(r, "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: calico-node, namespace: calico-system}\n")
		}, "in addition to the operator", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := owned(t)
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

// TestOwnedUpgradeSays: the version that an unknown release makes is the user's to say, and the operator's own objects
// in the manifest are nothing where they are in force.
func TestOwnedUpgradeSays(t *testing.T) {
	r := owned(t)
	r.change.CNIVersion = "v3.32.0"
	r.options.Manifest = slices.Concat(operatorManifest(t, "v1.40.0", "v1.40.0", "v1.42.0"),
		cnitest.Fixture(t, "tigera-custom-resources.yaml"))
	if p := mustMake(t, r); p.Upgrade.To != "v3.32.0" || p.Upgrade.Owner.To != "v1.42.0" {
		t.Errorf("%+v", p.Upgrade)
	}
}

// TestOwnedUpgradeThatIsAFlag: what another version changes by itself is said where the operator makes it too.
func TestOwnedUpgradeThatIsAFlag(t *testing.T) {
	r := owned(t)
	for i := range r.snapshot.DaemonSets[0].Spec.Template.Spec.Containers {
		container := &r.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[i]
		container.Image = strings.ReplaceAll(container.Image, "v3.30.1", "v3.32.0")
	}
	r.change.CNIVersion = "v3.33.0"
	r.options.Manifest = operatorManifest(t, "v1.40.0", "v1.40.0", "v1.44.0")
	p := mustMake(t, r)
	if !slices.ContainsFunc(p.Findings, func(f finding.Finding) bool {
		return strings.Contains(f.Message, "calico/programClusterRoutes changes from Disabled to EnabledIPIPOnly")
	}) {
		t.Errorf("%+v", p.Findings)
	}
}

// TestOwnedUpgradeAsksTheOwner: while agents' pods are held the operator says that Calico is in progress, so that all
// is there is asked before it is changed and when the hold has gone, and in between that nothing fails. Where it says
// nothing, nothing is asked.
func TestOwnedUpgradeAsksTheOwner(t *testing.T) {
	asked := func(p *plan.Plan) (all []string) {
		for _, s := range p.Steps {
			conditions := slices.Clone(s.Before)
			for _, a := range s.Actions {
				if do, is := a.Do.(step.Wait); is {
					conditions = append(conditions, do.Condition)
				}
			}
			for _, c := range conditions {
				if is, ok := c.Is.(step.Reports); ok {
					all = append(all, fmt.Sprint(s.ID, " ", is.Ref, " ", is.Status))
				}
			}
		}
		return all
	}
	want := []string{
		"owner/tigera-operator TigeraStatus/calico map[Available:True Degraded:False]",
		"owner/tigera-operator TigeraStatus/calico map[Degraded:False]",
		"fold/strategy TigeraStatus/calico map[Available:True Degraded:False]",
	}
	r := owned(t)
	if diff := cmp.Diff(want, asked(mustMake(t, r))); diff != "" {
		t.Error(diff)
	}
	r.snapshot.Other = slices.DeleteFunc(r.snapshot.Other, func(o unstructured.Unstructured) bool {
		return o.GetKind() == "TigeraStatus"
	})
	if got := asked(mustMake(t, r)); got != nil {
		t.Errorf("%q", got)
	}
}
