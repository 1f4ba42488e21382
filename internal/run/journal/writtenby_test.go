package journal

import (
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestWrittenBy: the release that began a migration, or else made its plan, is known though a record has a form of a
// later release.
func TestWrittenBy(t *testing.T) {
	s, c := newCluster(t)
	by := func(want string) {
		t.Helper()
		if got, err := WrittenBy(t.Context(), s, "flannel-to-calico-1"); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	by("v0.0.0-test")
	add(t, c, sample(1)...)
	by("v0")
	if err := patch(t.Context(), s, pageResource, "flannel-to-calico-1-0001",
		map[string]any{"records": []any{map[string]any{"event": "started", "later": true,
			"at": time.Now(), "data": map[string]any{"theseus": "v9.9.9", "form": 2}}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := takeOver(s).Records(t.Context()); err == nil {
		t.Error("a record with an unknown field was read")
	}
	by("v9.9.9")
}

// TestSummaryKeepsConditions: an append changes the progress of a Migration, and leaves the conditions of the
// controller.
func TestSummaryKeepsConditions(t *testing.T) {
	s, c := newCluster(t)
	if err := patch(t.Context(), s, migrationResource, "flannel-to-calico-1", map[string]any{"status": map[string]any{
		"conditions": []any{map[string]any{"type": v1alpha1.ConditionApproved, "status": "True"}},
		"observed":   map[string]any{"attempt": 2}}}); err != nil {
		t.Fatal(err)
	}
	add(t, c, sample(2)...)
	_, migration, err := Load(t.Context(), s, "flannel-to-calico-1")
	if err != nil {
		t.Fatal(err)
	}
	if status := migration.Status; status.Phase != string(engine.PhaseRunning) || len(status.Conditions) != 1 ||
		status.Observed == nil || status.Observed.Attempt != 2 {
		t.Errorf("%+v", status)
	}
}
