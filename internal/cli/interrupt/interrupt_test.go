package interrupt

import (
	"bytes"
	"context"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestSignalsToACommand: the first ends its context, the second the program.
func TestSignalsToACommand(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(s) { // as nohup and a script's background have it, for SIGINT and SIGHUP
			t.Logf("%v is ignored by whoever started this test, and so not tried", s)
			continue
		}
		var said bytes.Buffer
		i := &Signals{Err: &said}
		ctx, done := i.Catch(t.Context())
		if err := syscall.Kill(syscall.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		<-ctx.Done()
		done()
		if !i.signalled(func() {}) || !strings.Contains(said.String(), "interrupt again to stop at once") {
			t.Errorf("%v: a second one does not end it; said %q", s, said.String())
		}
	}
}

// TestSignalsToAWatcher: the first ends the watching and says nothing, the second the program. The context goes on.
func TestSignalsToAWatcher(t *testing.T) {
	var said bytes.Buffer
	i := &Signals{Err: &said}
	run := &Run{Stop: make(chan struct{}), Watched: true}
	defer i.During(run)()
	ended := func() { t.Error("the context was ended") }
	if i.signalled(ended) {
		t.Fatal("the first signal ends the program")
	}
	<-run.Stop
	if !i.signalled(ended) || said.Len() > 0 {
		t.Errorf("the second signal does not end the program, or it said %q", said.String())
	}
}

// TestSignalsToARun: the first lets it end by itself, the second says what is cut off.
func TestSignalsToARun(t *testing.T) {
	p := &plan.Plan{Steps: []step.Step{{ID: "a", Title: "Look"}, {ID: "b", Title: "Move the pods",
		Actions: []step.Action{{ID: "b/1", Title: "evict the pods of n1"}}}}}
	at := run.NewFlight(p)
	for _, r := range []engine.Record{{Event: engine.StepBegan, Step: "b"},
		{Event: engine.Intended, Step: "b", Action: "b/1"}} {
		at.Record(r)
	}
	var said []string
	var errors bytes.Buffer
	i := &Signals{Err: &errors}
	run := &Run{Stop: make(chan struct{}), Say: func(text string) { said = append(said, text) }, Flight: at.String}
	done := i.During(run)
	ended := func() { t.Error("the context of a run was ended") }
	if i.signalled(ended) {
		t.Fatal("the first signal ends the program")
	}
	<-run.Stop
	const doing = "during [2/2] Move the pods: evict the pods of n1"
	if len(said) != 1 || !strings.Contains(said[0], doing) || !strings.Contains(said[0], "interrupt again") {
		t.Errorf("said %q", said)
	}
	if !i.signalled(ended) {
		t.Error("the second signal does not end the program")
	}
	if want := "error: stopped at once: " + doing +
		"\nhint: `theseus resume` "; !strings.HasPrefix(errors.String(), want) {
		t.Errorf("said %q, want %q...", errors.String(), want)
	}
	done()
	at.Record(engine.Record{Event: engine.Acted, Step: "b", Action: "b/1"})
	if got := at.String(); got != "between two actions" {
		t.Errorf("after the action: %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	(&Signals{Err: &errors}).signalled(cancel)
	if ctx.Err() == nil {
		t.Error("a command without a run goes on")
	}
}

// TestSignalsTaken: what the run does just now may take a signal, which is none for the run then.
func TestSignalsTaken(t *testing.T) {
	i, takes := &Signals{}, true
	run := &Run{Stop: make(chan struct{}), Say: func(string) {}, Flight: func() string { return "" },
		Takes: func() bool { return takes }}
	defer i.During(run)()
	for range 3 {
		if i.signalled(func() {}) {
			t.Fatal("a taken signal ends the program")
		}
	}
	select {
	case <-run.Stop:
		t.Error("a taken signal stops the run")
	default:
	}
	takes = false
	if i.signalled(func() {}) {
		t.Error("the first signal that is not taken ends the program")
	}
	<-run.Stop
}
