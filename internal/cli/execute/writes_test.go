package execute

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// TestWrites: every run is bounded, and a bound is refused where another process would carry the run out without it.
func TestWrites(t *testing.T) {
	r := New(&app.App{}, &kube.Client{}, mirror.Access{}, &plan.Plan{}, false)
	if r.MaxWrites != kube.WritesPerSecond {
		t.Errorf("a run may write %d times a second", r.MaxWrites)
	}
	command, writes := &cobra.Command{}, &Writes{}
	if err := writes.Elsewhere("m"); err != nil {
		t.Errorf("a command without the flag: %v", err)
	}
	writes.Register(command)
	if err := writes.Elsewhere("m"); err != nil {
		t.Errorf("without a bound: %v", err)
	}
	if err := command.Flags().Set(maxWrites, "0"); err != nil {
		t.Fatal(err)
	}
	if err := writes.Elsewhere("m"); exit.Code(t.Output(), err) != exit.Usage {
		t.Errorf("with a bound: %v", err)
	}
	if got := writes.Of(r).MaxWrites; got != 0 {
		t.Errorf("no bound is %d", got)
	}
}
