package plan_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/step"
)

// ciliumTo asks for another version of Cilium on a cluster of the shape in which its chart deploys it.
func ciliumTo(t testing.TB, from string, charts ...string) *request {
	r := &request{
		snapshot: cnitest.Snapshot(t, cnitest.Cilium(t, from)),
		change:   v1alpha1.ChangeSpec{To: "cilium", AgentImage: "theseus.dev/agent:dev", Waves: []int{1, 0}},
		drivers:  drivers(),
		options:  plan.Options{Version: "v0.0.0-test", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)},
	}
	for _, chart := range charts {
		r.options.Manifest = append(r.options.Manifest, cnitest.Fixture(t, "charts/"+chart+".yaml")...)
	}
	return r
}

func ciliumUp(t testing.TB) *request {
	return ciliumTo(t, "v1.19.6", "cilium-v1.20.2", "cilium-preflight-v1.20.2")
}

func TestCiliumUpgradeGolden(t *testing.T) {
	p := mustMake(t, ciliumUp(t))
	golden(t, "cilium-upgrade-runbook.txt", []byte(plan.Runbook(p)))
	text, err := plan.Write(p)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := plan.Read(text); err != nil || again.Hash != p.Hash || !again.InPlace() {
		t.Errorf("reading what was written: %v", err)
	}
	if !slices.ContainsFunc(p.Findings, func(f finding.Finding) bool {
		return f.ID == "upgrade/setting" && strings.Contains(f.Message, "enable-datapath-plugins")
	}) {
		t.Errorf("the settings that 1.20 adds are not said: %+v", p.Findings)
	}
}

// TestCiliumOperatorLeads: the operator is changed before the first agent, up and down, after the pre-flight check.
func TestCiliumOperatorLeads(t *testing.T) {
	for name, r := range map[string]*request{"up": ciliumUp(t), "down": ciliumTo(t, "v1.20.2", "cilium-v1.19.6")} {
		t.Run(name, func(t *testing.T) {
			p := mustMake(t, r)
			at := func(id string) int {
				return slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == id })
			}
			trial, operator, first := at("trial/check"), at("before/cilium-operator"), at("wave-1/node-1")
			if operator < 0 || first < operator || trial > operator || (trial < 0) == (name == "up") {
				t.Fatalf("the check, the operator and the first agent are the steps %d, %d and %d", trial, operator,
					first)
			}
			for _, node := range []string{"wave-1/node-1", "wave-2/node-2"} {
				late := p.Steps[operator]
				late.Before = nil
				steps := slices.DeleteFunc(slices.Clone(p.Steps), func(s step.Step) bool {
					return s.ID == "before/cilium-operator"
				})
				behind := slices.IndexFunc(steps, func(s step.Step) bool { return s.ID == node })
				err := plan.Verify(mutant(p, slices.Insert(steps, behind+1, late)))
				if err == nil || !strings.Contains(err.Error(), "objects that agents of "+p.Upgrade.To+" need") {
					t.Errorf("the operator behind %s: %v", node, err)
				}
			}
		})
	}
}

// TestCiliumUpgradeCannotDoWithout: no step, no restart and no undo of a node can be left out.
func TestCiliumUpgradeCannotDoWithout(t *testing.T) {
	p := mustMake(t, ciliumUp(t))
	free := []string{"prepare/theseus", "finish/theseus", "trial/check"}
	for i, s := range p.Steps {
		if !slices.Contains(free, s.ID) && plan.Verify(mutant(p, slices.Delete(slices.Clone(p.Steps), i, i+1))) == nil {
			t.Errorf("a plan without %s passes", s.ID)
		}
		if s.Node == "" {
			continue
		}
		for j, action := range s.Actions {
			if action.Op() != step.OpRestart {
				continue
			}
			steps := slices.Clone(p.Steps)
			steps[i].Actions = slices.Delete(slices.Clone(s.Actions), j, j+1)
			if plan.Verify(mutant(p, steps)) == nil {
				t.Errorf("%s without %q passes", s.ID, action.Title)
			}
		}
		steps := slices.Clone(p.Steps)
		steps[i].Undo = nil
		if plan.Verify(mutant(p, steps)) == nil {
			t.Errorf("%s without its undo passes", s.ID)
		}
	}
}

// TestCiliumTrialIsTakenBack: the pre-flight check cannot stay.
func TestCiliumTrialIsTakenBack(t *testing.T) {
	p := mustMake(t, ciliumUp(t))
	i := slices.IndexFunc(p.Steps, func(s step.Step) bool { return s.ID == "trial/check" })
	steps := slices.Clone(p.Steps)
	steps[i].Actions = slices.DeleteFunc(slices.Clone(steps[i].Actions), func(a step.Action) bool {
		return a.Op() == step.OpDelete && strings.HasPrefix(a.Ref().Kind, "ClusterRole")
	})
	if plan.Verify(mutant(p, steps)) == nil {
		t.Error("a plan whose pre-flight check keeps its permissions passes")
	}
}

func TestCiliumUpgradeRefused(t *testing.T) {
	ranged := ciliumUp(t)
	ranged.change.PodCIDR = "10.9.0.0/16"
	for want, r := range map[string]*request{
		"already on cilium": ranged,
		// which the manifest lacks
		"DaemonSet cilium-envoy is Cilium's L7 proxy": ciliumTo(t, "v1.19.0", "cilium-v1.20.2"),
	} {
		_, err := r.make()
		if refused, ok := errors.AsType[*plan.Refusal](err); !ok || !strings.Contains(refused.Message, want) {
			t.Errorf("it is to be refused with %q: %v", want, err)
		}
	}
}
