package engine_test

import (
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestFoundStays: a target creates two CRDs itself, which a rollback deletes. One of them is there when the run comes
// to it, with the user's objects, so the run is rolled back, and it is there after that.
func TestFoundStays(t *testing.T) {
	agent := step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-system", Name: "cilium"}
	target := &cni.Target{Installation: cni.Installation{CNI: "cilium", Agent: agent,
		Defines: []step.Ref{*ref("CRD", "nodes"), *ref("CRD", "policies")}}}
	b := joint.New(joint.Input{Snapshot: &cluster.Snapshot{},
		Source: &cni.Installation{CNI: "flannel"}, Target: target})
	b.Bring()
	w := newWorld()
	w.objects["CRD/policies"] = object("CRD", "policies").Object
	bench := newBench(&plan.Plan{Name: "to-cilium", Hash: "h", Steps: b.Steps}, w)
	outcome, err := bench.run(t.Context())
	if err != nil || outcome.End != engine.EndRolledBack {
		t.Errorf("the run ended with %+v, %v", outcome, err)
	}
	if w.objects["CRD/policies"] == nil {
		t.Error("the CRD that was found is gone")
	}
}
