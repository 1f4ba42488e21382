package interrupt

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// Signals handles the signals of a command. Most commands end at once. A migration ends after the current action;
// a second signal ends the program at once, which is safe at any moment: the journal has every action before it starts.
type Signals struct {
	Err io.Writer

	lock sync.Mutex
	seen bool
	run  *Run
}

// Run is a run of a migration that a signal stops between two actions, or the watching of one, which a signal ends.
type Run struct {
	Stop   chan struct{} // closed by the first signal
	Say    func(string)
	Flight func() string // the current action
	// Watched is true if another process carries out the migration, and this one only watches. Say and Flight are not
	// called then.
	Watched bool
	// Takes may take a signal for something that the run does just now, such as a command of the user's: then nothing
	// else happens. It may be nil.
	Takes func() bool
}

// Catch ends the context at the first signal, or stops the current run.
func (i *Signals) Catch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	for _, one := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(one) { // nohup ignores SIGHUP
			signal.Notify(signals, one)
		}
	}
	go func() { // ends with the program, or when the channel is closed
		for range signals {
			if i.signalled(cancel) {
				os.Exit(exit.Interrupted)
			}
		}
	}()
	return ctx, func() { signal.Stop(signals); close(signals); cancel() }
}

// signalled handles a signal, and reports whether the program has to end at once.
func (i *Signals) signalled(cancel func()) (now bool) {
	i.lock.Lock()
	defer i.lock.Unlock()
	if i.run != nil && i.run.Takes != nil && i.run.Takes() {
		return false
	}
	again := i.seen
	i.seen = true
	switch {
	case again && (i.run == nil || i.run.Watched):
		return true
	case i.run == nil:
		fmt.Fprintln(i.Err, "interrupted; interrupt again to stop at once")
		cancel()
	case i.run.Watched:
		close(i.run.Stop)
	case again:
		exit.Code(i.Err, exit.Fail(exit.Interrupted, "`theseus resume` checks how far the action came and continues; "+
			"`theseus status` says whether a rollback is still possible",
			"stopped at once: %s", i.run.Flight()))
		return true
	default:
		i.run.Say("interrupted " + i.run.Flight() +
			"; Theseus stops after the current action; interrupt again to stop at once")
		close(i.run.Stop)
	}
	return false
}

// During sends signals to a run until done is called. A signal caught before has ended the context.
func (i *Signals) During(run *Run) (done func()) {
	i.lock.Lock()
	defer i.lock.Unlock()
	i.run = run
	return func() {
		i.lock.Lock()
		defer i.lock.Unlock()
		i.run = nil
	}
}
