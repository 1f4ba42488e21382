package controller

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// entered is a controller whose cluster holds a plan, and the Migration of that.
func entered(t *testing.T) (*Controller, *plan.Plan, *v1alpha1.Migration) {
	t.Helper()
	c := holding(t)
	p, err := plan.Make(cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml")),
		v1alpha1.ChangeSpec{Dataplane: "nftables", AgentImage: "theseus.dev/agent:dev"}, drivers.All(), nil,
		plan.Options{Version: "v0.0.0-test", Now: noon, Name: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if err := journal.CreateInCluster(t.Context(), c.Client.Dynamic, p); err != nil {
		t.Fatal(err)
	}
	m, err := journal.Get(t.Context(), c.Client.Dynamic, "m")
	if err != nil {
		t.Fatal(err)
	}
	c.Client.Typed = fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem,
		UID: types.UID(p.Cluster.UID)}})
	return c, p, m
}

// TestApprovedPlanOnly: somebody who may write Migrations swaps the plan after the controller has read which hash is
// approved. Neither is that plan kept as the approved one, nor does it run.
func TestApprovedPlanOnly(t *testing.T) {
	c, p, m := entered(t)
	approved := *m
	approved.Spec.PlanHash = strings.Repeat("a", 64)
	if _, err := c.unfit(t.Context(), &approved); err == nil ||
		!strings.Contains(err.Error(), "changed while it was read") || c.plans["m"] != nil {
		t.Errorf("%v, kept: %+v", err, c.plans["m"])
	}
	if unfit, err := c.unfit(t.Context(), m); err != nil || unfit != nil || c.plan.Hash != p.Hash {
		t.Errorf("the plan that was approved: %+v, %v", unfit, err)
	}
	other := *p
	other.Hash = approved.Spec.PlanHash
	for _, test := range []struct {
		name string
		m    v1alpha1.Migration
		p    *plan.Plan
	}{
		{"another plan", *m, &other},
		{"a Migration that was made again",
			func() v1alpha1.Migration { again := *m; again.UID = "another"; return again }(), p},
	} {
		if err := c.admit(t.Context(), &test.m, test.p, nil); err == nil ||
			!strings.Contains(err.Error(), "was replaced or changed") {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// TestSettled: a controller that was killed after the last record, and before the summary, does not go on where a
// person is needed; nor does any with a journal that came from another cluster, as by a backup.
func TestSettled(t *testing.T) {
	c, p, m := entered(t)
	var past []engine.Record
	chain := p.Hash
	for _, r := range []engine.Record{
		{Seq: 1, Event: engine.Started, Data: json.RawMessage(`{"plan":"` + p.Hash + `"}`)},
		{Seq: 2, Event: engine.Finished, Result: engine.ResultNeedsPerson, Error: "x"},
	} {
		var err error
		if chain, err = engine.Link(chain, r); err != nil {
			t.Fatal(err)
		}
		r.Chain = chain
		past = append(past, r)
	}
	if state, err := engine.Replay(past); err != nil || state.Phase != engine.PhaseNeedsPerson {
		t.Fatalf("%s, %v", state.Phase, err)
	}
	m.Status.Observed = &v1alpha1.Observed{}
	if err := c.admit(t.Context(), m, p, past); !errors.Is(err, errSettled) {
		t.Errorf("nobody has asked to continue: %v", err)
	}
	m.Spec.Attempt = 1
	if err := c.admit(t.Context(), m, p, past); err != nil {
		t.Errorf("a person has asked to continue: %v", err)
	}
	c.Client.Typed = fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem,
		UID: "another"}})
	var refusal *admission.Refusal
	if err := c.admit(t.Context(), m, p, past); !errors.As(err, &refusal) ||
		refusal.Reason != v1alpha1.ReasonWrongCluster {
		t.Errorf("a journal of another cluster continues: %v", err)
	}
}
