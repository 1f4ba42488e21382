package ask

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/signal"
)

const (
	// every is the time between two rounds of questions.
	every = 5 * time.Second
	// MostSilence is how long a signal may go without an answer until it counts as not proven.
	MostSilence = 30 * time.Second
)

// Watch asks signals again and again, and follows what they say. A query that fails once is broken, also if it holds
// again later. A URL or a command that fails is asked again after a second, and is broken if it fails again: a single
// packet that is lost between this machine and a URL is not a failure of the service. A signal that is not answered for
// MostSilence is broken, too. Time without questions is no silence. Questions are on the way while others go on: who
// watches never waits for them, but in Fresh. A Watch is used by one goroutine. A nil one has no signals.
type Watch struct {
	// Waits says that silence breaks no signal for now.
	Waits bool

	ctx     context.Context // that of the run, which outlives steps and gates
	begin   Begin
	signals []signal.Signal
	// round is on the way since asked; nil if none is. The next one is due at next.
	round       <-chan []signal.Answer
	asked, next time.Time
	// last is the latest answer of each signal, heard when it was asked for the last time that it answered, and broken
	// why it is broken; State is empty if it is not.
	last, broken []signal.Answer
	heard        []time.Time
	// doubted are the URLs and commands that failed when they were last asked, but not before.
	doubted []bool
}

// NewWatch returns a watch of signals that lasts as long as the context, and asks by begin.
func NewWatch(ctx context.Context, signals []signal.Signal, begin Begin) *Watch {
	w := &Watch{ctx: ctx, begin: begin, signals: signals}
	w.Restart()
	return w
}

// Restart forgets what the signals have said.
func (w *Watch) Restart() {
	n := len(w.signals)
	w.round, w.asked, w.next, w.Waits = nil, time.Time{}, time.Time{}, false
	w.last, w.broken, w.heard = make([]signal.Answer, n), make([]signal.Answer, n), make([]time.Time, n)
	w.doubted = make([]bool, n)
}

// Forgive forgets how signals were broken until now, which was before the change.
func (w *Watch) Forgive() { clear(w.broken) }

// Interrupted says that signals were asked before, and that their answers are not known: that they held is not proven
// any more.
func (w *Watch) Interrupted() {
	for i, one := range w.signals {
		w.broken[i] = one.Silent(errors.New("an earlier process asked it, and ended without storing the answer"))
	}
}

// Look takes the answers that have come, and asks again if that is due. It does not wait. It reports whether answers
// came.
func (w *Watch) Look(now time.Time) (came bool) {
	if w == nil {
		return false
	}
	came = w.take()
	if w.round == nil && !now.Before(w.next) {
		w.ask(now)
		came = w.take() || came
	}
	return came
}

// Fresh asks once more, and waits for the answers. It calls heed meanwhile, whose error ends it.
func (w *Watch) Fresh(ctx context.Context, now func() time.Time, follow func(context.Context) error) error {
	for fresh := false; ; {
		if w.round == nil {
			if fresh {
				return nil
			}
			w.ask(now())
			fresh = true
		}
		select {
		case answers := <-w.round:
			w.hear(answers)
		case <-ctx.Done():
		case <-time.After(again):
			if err := follow(ctx); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (w *Watch) ask(now time.Time) {
	unasked := now.Sub(w.asked)
	for i := range w.heard {
		switch {
		case w.asked.IsZero():
			w.heard[i] = now
		case unasked > MostSilence:
			w.heard[i] = w.heard[i].Add(unasked)
		}
	}
	w.round, w.asked, w.next = w.begin(w.ctx, w.signals), now, now.Add(every)
}

func (w *Watch) take() bool {
	if w.round == nil {
		return false
	}
	select {
	case answers := <-w.round:
		w.hear(answers)
		return true
	default:
		return false
	}
}

// hear records a round of answers.
func (w *Watch) hear(answers []signal.Answer) {
	w.round = nil
	for i, one := range answers {
		if one.State == signal.Unknown && w.ctx.Err() != nil {
			continue // the question was cut off, which proves nothing
		}
		w.last[i] = one
		if one.State != signal.Unknown || w.Waits {
			w.heard[i] = w.asked
		}
		quiet := w.asked.Sub(w.heard[i])
		switch {
		case w.broken[i].State == signal.Fails:
		case one.State == signal.Fails && w.signals[i].Query == "" && !w.doubted[i]:
			w.doubted[i], w.next = true, w.asked.Add(again)
		case one.State == signal.Fails:
			if w.doubted[i] {
				one.Says += ", twice in a row"
			}
			w.broken[i], w.doubted[i] = one, false
		case one.State == signal.Holds:
			w.doubted[i] = false
		case quiet > MostSilence && w.broken[i].State == "":
			one.Says += ", for " + quiet.Round(time.Second).String()
			w.broken[i] = one
		}
	}
}

// Broken are the answers by which signals are broken, failures first.
func (w *Watch) Broken() []signal.Answer {
	if w == nil {
		return nil
	}
	return signal.Not(slices.DeleteFunc(slices.Clone(w.broken), func(a signal.Answer) bool { return a.State == "" }))
}

// Last are the latest answers.
func (w *Watch) Last() []signal.Answer {
	if w == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(w.last), func(a signal.Answer) bool { return a.State == "" })
}

// answered reports whether the last round answered every signal, and no failure is to be confirmed.
func (w *Watch) answered() bool {
	return !slices.Contains(w.doubted, true) && !slices.ContainsFunc(w.last, func(a signal.Answer) bool {
		return a.State == signal.Unknown || a.State == ""
	})
}

// Answers are what the watch proves of each signal: how it is broken, or else its latest answer.
func (w *Watch) Answers() []signal.Answer {
	all := slices.Clone(w.last)
	for i, one := range w.broken {
		if one.State != "" {
			all[i] = one
		}
	}
	return slices.DeleteFunc(all, func(a signal.Answer) bool { return a.State == "" })
}
