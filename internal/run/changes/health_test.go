package changes

import (
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/run/kstatus"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// TestHealth writes Changes in every state, with the status that this package gives them. The module test/health asks
// kstatus, and the health script for Argo CD, what they make of them.
func TestHealth(t *testing.T) {
	fresh := kstatus.Initial(metav1.NewTime(noon))
	with := func(m *v1alpha1.Migration, kind string, is metav1.ConditionStatus, reason string) *v1alpha1.Migration {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: is, Reason: reason,
			Message: "because"})
		return m
	}
	unapproved := made("a", 2, "")
	unapproved.Status.Conditions = fresh // the controller has not seen it yet
	halted := with(made("a", 2, "paused"), v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonAsked)
	undone := with(made("a", 2, "rolled-back"), v1alpha1.ConditionComplete, metav1.ConditionFalse,
		v1alpha1.ReasonRolledBack)
	block := []finding.Finding{{ID: "cidr/overlap", Severity: finding.Block, Message: "overlaps"}}
	a := change("a", 2)
	migrated := func(m *v1alpha1.Migration) v1alpha1.ChangeStatus { return of(a, m, nil).status(a, m, noon) }
	golden := ""
	for _, one := range []struct {
		name   string
		status v1alpha1.ChangeStatus
	}{
		{"unseen", v1alpha1.ChangeStatus{ObservedGeneration: -1}}, // by default
		{"edited", unplanned(v1alpha1.ReasonRefused, "x").status(change("a", 1), nil, noon)},
		{"planning", unplanned(v1alpha1.ReasonPlanning, "x").status(a, nil, noon)},
		{"waiting", waiting(made("b", 1, "")).status(a, nil, noon)},
		{"retrying", unplanned(v1alpha1.ReasonRetrying, "x").status(a, nil, noon)},
		{"stale", unplanned(v1alpha1.ReasonStale, "x").status(a, nil, noon)},
		{"refused", why(errors.New("x")).status(a, nil, noon)},
		{"manifest-missing", unplanned(v1alpha1.ReasonManifestMissing, "x").status(a, nil, noon)},
		{"blocked", blocked(finding.NewResult(block, nil), block).status(a, nil, noon)},
		{"too-many", tooMany().status(a, nil, noon)},
		{"planned", migrated(unapproved)},
		{"running", migrated(with(made("a", 2, "running"), v1alpha1.ConditionProgressing, metav1.ConditionTrue,
			v1alpha1.ReasonRunning))},
		{"edited-too-late", migrated(made("a", 1, "running"))},
		{"paused", migrated(halted)},
		{"needs-a-person", migrated(made("a", 2, "needs-person", "Degraded:NeedsPerson"))},
		{"rolled-back", migrated(undone)},
		{"done", migrated(made("a", 2, "done", "Complete:Done"))},
	} {
		object := change(one.name, 2)
		object.APIVersion, object.Kind, object.Status = v1alpha1.APIVersion, "Change", one.status
		text, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		golden += "---\n" + string(text)
	}
	const path = "testdata/health.yaml"
	if *update {
		if err := os.WriteFile(path, []byte(golden), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), golden); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", path, diff)
	}
}
