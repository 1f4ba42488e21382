package ask

import (
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

// Watch follows signals for a while. A signal that fails once is broken, also if it holds again later; so is one that is not answered
// for MostSilence. A Watch is used by one goroutine.
type Watch struct {
	signals []signal.Signal
	next    time.Time
	// last is the latest answer of each signal, heard when it last had one, and broken why it is broken; State is empty if it is not.
	last, broken []signal.Answer
	heard        []time.Time
}

// NewWatch begins to watch signals.
func NewWatch(signals []signal.Signal, now time.Time) *Watch {
	n := len(signals)
	return &Watch{signals: signals, next: now, last: make([]signal.Answer, n), broken: make([]signal.Answer, n),
		heard: slices.Repeat([]time.Time{now}, n)}
}

// Due reports whether the signals are to be asked again.
func (w *Watch) Due(now time.Time) bool { return len(w.signals) > 0 && !now.Before(w.next) }

// Take records a round of answers.
func (w *Watch) Take(now time.Time, answers []signal.Answer) {
	w.next = now.Add(every)
	for i, one := range answers {
		w.last[i] = one
		if one.State != signal.Unknown {
			w.heard[i] = now
		}
		quiet := now.Sub(w.heard[i])
		switch {
		case w.broken[i].State == signal.Fails:
		case one.State == signal.Fails:
			w.broken[i] = one
		case one.State == signal.Unknown && quiet > MostSilence && w.broken[i].State == "":
			one.Says += ", for " + quiet.Round(time.Second).String()
			w.broken[i] = one
		}
	}
}

// Broken are the answers by which signals are broken, failures first.
func (w *Watch) Broken() []signal.Answer {
	return signal.Not(slices.DeleteFunc(slices.Clone(w.broken), func(a signal.Answer) bool { return a.State == "" }))
}

// answered reports whether the last round answered every signal.
func (w *Watch) answered() bool {
	return !slices.ContainsFunc(w.last, func(a signal.Answer) bool { return a.State == signal.Unknown || a.State == "" })
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
