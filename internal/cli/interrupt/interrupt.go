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

// Signals is what signals do. Most commands they just end. A migration ends after the action at hand;
// a second signal ends the program at once, which is safe at any moment: the journal is ahead of every act.
type Signals struct {
	Err io.Writer

	lock sync.Mutex
	seen bool
	run  *Run
}

// Run is a run that a signal ends in good order.
type Run struct {
	Stop   chan struct{} // closed by the first signal
	Say    func(string)
	Flight func() string // what is being done just now
}

// Catch ends the context at the first signal, or tells the run that is under way.
func (i *Signals) Catch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	for _, one := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(one) { // nohup means it
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

// signalled takes a signal, and says whether the program has to end at once.
func (i *Signals) signalled(cancel func()) (now bool) {
	i.lock.Lock()
	defer i.lock.Unlock()
	again := i.seen
	i.seen = true
	switch {
	case i.run == nil && again:
		return true
	case i.run == nil:
		fmt.Fprintln(i.Err, "interrupted; once more to stop at once")
		cancel()
	case again:
		exit.Code(i.Err, exit.Fail(exit.Interrupted, "`theseus resume` looks how far that came and goes on; `theseus status` says whether it can still be taken back",
			"stopped at once: %s", i.run.Flight()))
		return true
	default:
		i.run.Say("interrupted " + i.run.Flight() + "; it ends after the action at hand, once more to stop at once")
		close(i.run.Stop)
	}
	return false
}

// During makes signals speak to a run until done is called. One that was caught before has ended the context.
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
