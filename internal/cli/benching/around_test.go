package benching

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/run"
)

// TestAroundRefuses: what --bench cannot do is refused before the change. Without the flag, only the change is made.
func TestAroundRefuses(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	a := &app.App{Streams: app.Streams{Out: io.Discard, Err: io.Discard}}
	flagged := func(args ...string) *Around {
		var o Around
		command := &cobra.Command{}
		o.Register(command)
		if err := command.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		return &o
	}
	if o := flagged("--bench"); o.each != bench.Defaults().Duration {
		t.Errorf("--bench is %s", o.each)
	}
	for _, test := range []struct {
		flag, says string
	}{{"--bench=1h", "--bench=1h0m0s: "}, {"--bench=-1s", "--bench=-1s: "}, {"--bench", "this plan changes none"}} {
		err := flagged(test.flag).Announce(t.Context(), a, nil, &plan.Plan{})
		if err == nil || exit.Code(io.Discard, err) != exit.Usage || !strings.Contains(err.Error(), test.says) ||
			exit.HintOf(err) == "" {
			t.Errorf("%s: %v, hint %q", test.flag, err, exit.HintOf(err))
		}
	}
	made := errors.New("made")
	o := flagged()
	if err := o.Run(t.Context(), a, nil, &plan.Plan{}, func() error { return made }, nil); err != made || o.Given() {
		t.Errorf("without the flag: %v", err)
	}
	if err := errors.Join(o.Announce(t.Context(), a, nil, nil), o.Resumable("m"),
		o.Again(t.Context(), a, nil, "m")); err != nil {
		t.Errorf("without the flag: %v", err)
	}
}

// TestResumable: a change that this machine did not measure before it began cannot be compared.
func TestResumable(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("THESEUS_STATE_DIR", dir)
	o := &Around{each: time.Second}
	if err := o.Resumable("m"); err == nil || exit.Code(io.Discard, err) != exit.Usage {
		t.Errorf("nothing was measured: %v", err)
	}
	at, err := statedir.Make("m")
	if err != nil {
		t.Fatal(err)
	}
	if err := run.KeepLoad(at, run.LoadBefore, &bench.Result{Client: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := o.Resumable("m"); err != nil {
		t.Error(err)
	}
}
