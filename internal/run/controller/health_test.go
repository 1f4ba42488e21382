package controller

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/kstatus"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// TestHealth writes Migrations at every phase, with the conditions that this package gives them. The module test/health
// asks kstatus what it makes of them.
func TestHealth(t *testing.T) {
	sound := Policy{Since: noon}
	ann := []v1alpha1.Approval{by("ann")}
	tells := func(s Situation) Conditions { // what the controller decides about it at noon
		s.Needed, s.Now = 1, noon
		return Decide(s).Conditions
	}
	ends := func(state engine.State) Conditions {
		told, over := ended(state, "do this")
		if !over {
			t.Fatalf("%s is no end", state.Phase)
		}
		return told
	}
	progress := running(engine.State{Phase: engine.PhaseRunning}, "[1/9] a")
	golden := ""
	for _, one := range []struct {
		name string
		told []Conditions // one after the other
	}{
		{"unseen", nil},
		{"not-approved", []Conditions{tells(Situation{Migration: migration(), Policy: sound})}},
		{"approved", []Conditions{tells(Situation{Migration: migration(), Approvals: ann, Policy: sound})}},
		{"outside-window", []Conditions{tells(Situation{Migration: migration(within("22:00-05:00 UTC")),
			Approvals: ann, Policy: sound})}},
		{"running", []Conditions{progress}},
		{"retrying", []Conditions{progress, retrying(os.ErrDeadlineExceeded, time.Minute)}},
		{"rolling-back", []Conditions{running(engine.State{Phase: engine.PhaseRunning, Undoing: true}, "[1/9] a")}},
		{"paused-by-a-person", []Conditions{ends(engine.State{Phase: engine.PhasePaused})}},
		{"paused-by-the-cluster", []Conditions{ends(engine.State{Phase: engine.PhasePaused, Cause: "an upgrade"})}},
		{"window-ended", []Conditions{ends(engine.State{Phase: engine.PhasePaused, Held: engine.ResultWindowEnded,
			Cause: "x"})}},
		{"frozen", []Conditions{ends(engine.State{Phase: engine.PhasePaused, Held: engine.ResultFrozen, Cause: "x"})}},
		{"unfit", []Conditions{tells(Situation{Migration: migration(), Approvals: ann, Policy: sound,
			Unfit: &Obstacle{v1alpha1.ReasonNotSupported, "it runs commands"}})}},
		{"needs-a-person", []Conditions{progress, ends(engine.State{Phase: engine.PhaseNeedsPerson, Cause: "x"})}},
		{"continued", []Conditions{obstructed(Obstacle{v1alpha1.ReasonNeedsPerson, "x"}), progress}},
		{"handed-over", []Conditions{progress, handedOver(migration(onTerminal, inPhase(engine.PhaseRunning)))}},
		{"rolled-back", []Conditions{progress, ends(engine.State{Phase: engine.PhaseRolledBack, Cause: "x"})}},
		{"stopped", []Conditions{progress, ends(engine.State{Phase: engine.PhaseRolledBack, Asked: true})}},
		{"done", []Conditions{progress, ends(engine.State{Phase: engine.PhaseDone})}},
	} {
		m := migration(func(m *v1alpha1.Migration) {
			m.APIVersion, m.Kind, m.Name, m.Generation = v1alpha1.APIVersion, "Migration", one.name, 7
			m.Status.Conditions = kstatus.Initial(metav1.NewTime(noon))
		})
		for _, told := range one.told {
			m.Status.Conditions, _ = told.onto(m.Status.Conditions, noon)
		}
		text, err := yaml.Marshal(m)
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
