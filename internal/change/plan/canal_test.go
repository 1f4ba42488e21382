package plan_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/canal"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// narrowPools is a CRD of pools with few of their fields.
const narrowPools = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ippools.crd.projectcalico.org}
spec:
  group: crd.projectcalico.org
  names: {kind: IPPool, plural: ippools}
  versions:
    - name: v1
      served: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
        cidr: {type: string}, vxlanMode: {type: string}, ipipMode: {type: string}, natOutgoing: {type: boolean}}}}}}
`

// fromCanal is a change from Canal.
func fromCanal(t testing.TB) *request {
	r := flannelToCalico(t)
	r.snapshot, r.drivers = cnitest.Shape(t, "canal"), append(r.drivers, canal.Driver{})
	// of the pool in the cluster, nothing may be lost
	r.options.Manifest = cnitest.Documents(t, []byte(strings.ReplaceAll(string(cnitest.Text(t, "calico-manifest.yaml")),
		"openAPIV3Schema: {type: object}",
		"openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}")))
	return r
}

// TestFromCanal: two of Calico's agents never run on one node, and what both networks have is never removed.
func TestFromCanal(t *testing.T) {
	p := mustMake(t, fromCanal(t))
	place := func(id string) int {
		at := slices.IndexFunc(p.Steps, func(s step.Step) bool { return strings.HasPrefix(s.ID, id) })
		if at < 0 {
			t.Fatalf("no step %s", id)
		}
		return at
	}
	if cede, agents, pool := place("joint/cede"), place("joint/agents"), place("joint/pool"); cede > agents ||
		agents > pool {
		t.Errorf("the order is wrong: %d, %d, %d", cede, agents, pool)
	}
	for i := range p.Steps {
		for _, a := range slices.Concat(p.Steps[i].Actions, p.Steps[i].Undo) {
			if a.Verb() != step.VerbClean && a.Verb() != step.VerbInventory {
				if a.Op() == step.OpDelete && a.Ref().Kind == "CustomResourceDefinition" &&
					strings.Contains(a.Ref().Name, "calico") {
					t.Errorf("%s deletes %s", p.Steps[i].ID, a.Ref())
				}
				continue
			}
			if text := string(a.Do.(step.Node).Args); strings.Contains(text, `"cali`) ||
				strings.Contains(text, "/var/lib/calico") {
				t.Errorf("%s removes what both networks have: %s", p.Steps[i].ID, text)
			}
		}
	}

	isRight := func(a step.Action) bool { return a.Ref().Name == "canal-cni-token" }
	fit := func(change func(*plan.Plan)) error {
		p := mustMake(t, fromCanal(t))
		change(p)
		return plan.Verify(p)
	}
	drop := func(id string) func(*plan.Plan) {
		return func(p *plan.Plan) {
			p.Steps = slices.DeleteFunc(p.Steps, func(s step.Step) bool { return s.ID == id })
		}
	}
	for name, test := range map[string]struct {
		change func(*plan.Plan)
		says   string
	}{
		"nothing leaves": {drop("joint/cede"), "the agents of both networks would enforce policy"},
		"no pool":        {drop("joint/pool"), "IPPool/default-ipv4-ippool does not exist yet"},
		"no rights": {func(p *plan.Plan) {
			s := &p.Steps[slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "joint/target" })]
			s.Actions = slices.DeleteFunc(s.Actions, isRight)
		}, "agents of the source could not start"},
		"rights that stay": {func(p *plan.Plan) {
			s := &p.Steps[slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "remove/source" })]
			s.Actions = slices.DeleteFunc(s.Actions, isRight)
		}, "canal-cni-token is still there"},
		"no rest": {func(p *plan.Plan) {
			s := &p.Steps[slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "joint/cede" })]
			s.Actions = s.Actions[1:]
		}, "nothing does the rest of its work"},
	} {
		if err := fit(test.change); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, not %q", name, err, test.says)
		}
	}

	adopt := fromCanal(t)
	adopt.change.Strategy, adopt.change.PodCIDR = "adopt", ""
	if _, err := adopt.make(); err == nil || !strings.Contains(err.Error(), "not attached to a bridge") {
		t.Errorf("an adoption: %v", err)
	}
	other := fromCanal(t)
	other.change.To, other.change.Manifest, other.change.PodCIDR = "flannel", "flannel.yaml", "10.244.0.0/16"
	other.options.Manifest = cnitest.Fixture(t, "flannel-manifest.yaml")
	if _, err := other.make(); err == nil || !strings.Contains(err.Error(), "only the agent of calico") {
		t.Errorf("another network: %v", err)
	}
	old := fromCanal(t)
	old.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Image = "quay.io/calico/node:v3.99.0"
	if _, err := old.make(); err == nil || !strings.Contains(err.Error(), "v3.99.0 already") {
		t.Errorf("an older Calico: %v", err)
	}
	const byDigest = "calico/node@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	digest := fromCanal(t)
	digest.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0].Image = "quay.io/" + byDigest
	if _, err := digest.make(); err == nil || !strings.Contains(err.Error(), "which version runs") {
		t.Errorf("a Canal by digest: %v", err)
	}
	digest = fromCanal(t)
	digest.options.Manifest = cnitest.Documents(t, []byte(strings.ReplaceAll(
		string(cnitest.Text(t, "calico-manifest.yaml")), "calico/node:v3.31.0", byDigest)))
	if _, err := digest.make(); err == nil || !strings.Contains(err.Error(), "which version it is") {
		t.Errorf("a manifest by digest: %v", err)
	}
	lossy := fromCanal(t)
	lossy.snapshot.Other[0].Object["spec"].(map[string]any)["fromLater"] = true
	lossy.options.Manifest = append(lossy.options.Manifest, cnitest.Documents(t, []byte(narrowPools))...)
	if _, err := lossy.make(); err == nil || !strings.Contains(err.Error(), "fromLater") {
		t.Errorf("CRDs without a field that is in use: %v", err)
	}

	set := fromCanal(t)
	felix := &set.snapshot.DaemonSets[0].Spec.Template.Spec.Containers[0]
	felix.Env = append(felix.Env, corev1.EnvVar{Name: "FELIX_CHAININSERTMODE", Value: "Append"},
		corev1.EnvVar{Name: "FELIX_IPTABLESREFRESHINTERVAL", Value: "60"})
	if got := mustMake(t, set).Target.NeverRun; len(got) != 1 || !strings.Contains(got[0], "(FELIX_CHAININSERTMODE)") {
		t.Errorf("settings that would be lost: %q", got)
	}
}

// TestVerifyFromCanalOrder: no step of such a plan may be left out or stand anywhere else.
func TestVerifyFromCanalOrder(t *testing.T) { mustNeedOrder(t, mustMake(t, fromCanal(t)), nil) }
