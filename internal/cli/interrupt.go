package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interruption is what signals do. Most commands they just end. A migration ends after the action at hand;
// a second signal ends the program at once, which is safe at any moment: the journal is ahead of every act.
type interruption struct {
	err io.Writer

	lock sync.Mutex
	seen bool
	run  *stoppable
}

// stoppable is a run that a signal ends in good order.
type stoppable struct {
	stop   chan struct{} // closed by the first signal
	say    func(string)
	flight func() string // what is being done just now
}

// catch ends the context at the first signal, or tells the run that is under way.
func (i *interruption) catch(ctx context.Context) (context.Context, func()) {
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
				os.Exit(exitInterrupted)
			}
		}
	}()
	return ctx, func() { signal.Stop(signals); close(signals); cancel() }
}

// signalled takes a signal, and says whether the program has to end at once.
func (i *interruption) signalled(cancel func()) (now bool) {
	i.lock.Lock()
	defer i.lock.Unlock()
	again := i.seen
	i.seen = true
	switch {
	case i.run == nil && again:
		return true
	case i.run == nil:
		fmt.Fprintln(i.err, "interrupted; once more to stop at once")
		cancel()
	case again:
		exitCode(i.err, fail(exitInterrupted, "`theseus resume` looks how far that came and goes on; `theseus status` says whether it can still be taken back",
			"stopped at once: %s", i.run.flight()))
		return true
	default:
		i.run.say("interrupted " + i.run.flight() + "; it ends after the action at hand, once more to stop at once")
		close(i.run.stop)
	}
	return false
}

// during makes signals speak to a run until done is called. One that was caught before has ended the context.
func (i *interruption) during(run *stoppable) (done func()) {
	i.lock.Lock()
	defer i.lock.Unlock()
	i.run = run
	return func() {
		i.lock.Lock()
		defer i.lock.Unlock()
		i.run = nil
	}
}
