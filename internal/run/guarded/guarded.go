// Package guarded carries out what only plans of the strategy guard have: it runs the user's command on this machine,
// if the plan has one, reacts to a loss while the command runs, and watches until the network is quiet.
package guarded

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/proof/signal/ask"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/step"
)

// look is the interval at which the measurements are read.
const look = time.Second

// Gate reads the measurements (kube.Gate).
type Gate interface {
	Look(ctx context.Context, maxLost int64) (kube.Glance, error)
}

// Actor runs the command of a plan and watches after it, and passes all other actions to the actor that it wraps.
type Actor struct {
	engine.Actor
	Guard kind.Guard
	// MaxLost is how many lost probes are no loss yet.
	MaxLost int64
	Gate    Gate
	Clock   engine.Clock
	Start   Starter
	// Signals watches the user's own signals, here and in the gates (ask.Gate); nil for none.
	Signals *ask.Watch
	// Maker makes new pods on Nodes; nil for none. Tries is the action that does so before the change.
	Maker Maker
	Nodes []string
	Tries string
	// Sampler connects the pairs of pods of Guard; nil if it has none. Samples is the action that does so before the
	// change.
	Sampler Sampler
	Samples string
	// Follower leads paths to the addresses that probe pods have now; nil leaves the paths as they are.
	Follower Follower
	// Joiner measures nodes that join; nil measures none.
	Joiner Joiner
	// Say gets messages that a person must not miss. Several goroutines call it.
	Say func(string)
	// Result is the step that watches, and whose gate is the result.
	Result string

	lock sync.Mutex
	// running is the command, way that of --on-loss, and cut ends the watching; nil when there is none.
	running, way *running
	cut          func()
	// stage is how far the step of the result is. ended is true once the user has ended the watching, and pressed once
	// an interrupt was taken while the gate measured.
	stage          stage
	ended, pressed bool
	// taken is when the last interrupt was acted on.
	taken time.Time
	// here is true if this process started the command. Only then it reacts to a loss: an earlier process may have done
	// so already.
	here bool
	// followed is when the Follower was last asked, and how many probes were lost until then.
	followed struct {
		at   time.Time
		lost int64
	}
	// joined are the nodes that have joined.
	joined joined
	// reacted is true once a loss was said.
	reacted bool
	// already are the texts of the signals that failed in the baseline, and so prove nothing.
	already []string
	onLoss  *result.Ran
	// known is what became of new pods before the change, and sampled of the pairs of pods; nil before that. failed is
	// the first that failed since then.
	known   *result.NewPods
	sampled *result.Samples
	failed  string
	// cutTries ends the trying of new pods, and of pairs, before the change; nil while none are tried.
	cutTries func()
}

// stage is how far the step of the result is.
type stage int

const (
	elsewhere stage = iota // another step, or the gate has answered
	watching
	measuring // the watching has ended, and the gate has not answered
)

// Learn follows the journal.
func (a *Actor) Learn(r engine.Record) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.tried(r)
	if r.Event == engine.GateAnswer && r.Step != a.Result && r.Verdict != nil {
		a.baseline(*r.Verdict)
	}
	switch {
	case r.Event == engine.RollingBack, r.Event == engine.GateAnswer:
		a.stage = elsewhere
	case r.Step != a.Result || r.Undo:
	case r.Event == engine.StepBegan:
		a.stage = watching
	case r.Event == engine.Acted && a.stage == watching:
		a.stage = measuring
	}
}

// baseline takes the answer of the baseline.
func (a *Actor) baseline(verdict engine.Verdict) {
	if verdict.Lossy != nil && verdict.Lossy.Lost() && verdict.Pass {
		a.Say("note: the baseline lost probes, and what is lost from now on is compared with it: " +
			verdict.Lossy.String())
	}
	a.already = nil
	for _, one := range verdict.Signals {
		if one.State == signal.Fails {
			a.already = append(a.already, one.Signal)
			if verdict.Pass {
				a.Say("note: a signal failed in the baseline, and proves nothing: " + one.Says)
			}
		}
	}
}

// counts are the answers but those of signals that fail as they did in the baseline.
func (a *Actor) counts(answers []signal.Answer) []signal.Answer {
	a.lock.Lock()
	defer a.lock.Unlock()
	return slices.DeleteFunc(answers, func(one signal.Answer) bool {
		return one.State == signal.Fails && slices.Contains(a.already, one.Signal)
	})
}

// running is a command with what was done to end it.
type running struct {
	Process
	interrupted bool // SIGINT was sent because of an interrupt,
	shot        bool // and SIGKILL because of another one
	killed      bool // a loss ended it
}

// begun is the first observation of the command: a process that finds it after a crash does not run the command again.
var begun = json.RawMessage(`{"begun":true}`)

// Observe implements engine.Actor. A command whose intent is in the journal has run: it is not run again, whatever came
// of it.
func (a *Actor) Observe(ctx context.Context, action step.Action, before json.RawMessage) (engine.Observation, error) {
	switch action.Do.(type) {
	case step.Command:
		if len(before) > 0 {
			unknown, err := json.Marshal(result.Ran{Unknown: true})
			return engine.Observation{Done: true, Before: unknown}, err
		}
		return engine.Observation{Before: begun}, nil
	case step.Watch, step.Await, step.NewPods, step.Sample:
		return engine.Observation{}, nil
	}
	return a.Actor.Observe(ctx, action, before)
}

// Do implements engine.Actor.
func (a *Actor) Do(ctx context.Context, action step.Action, before json.RawMessage) (json.RawMessage, error) {
	switch action.Do.(type) {
	case step.Command:
		return a.command(ctx)
	case step.Await:
		return json.Marshal(result.Ran{}) // the run holds its step back until the user says that the changes have ended
	case step.NewPods:
		return a.before(ctx)
	case step.Sample:
		return a.sampleBefore(ctx)
	case step.Watch:
		return a.watch(ctx)
	}
	return a.Actor.Do(ctx, action, before)
}

// command runs the command to its end. The end of the context does not end the command, which may be half way through a
// change: its outcome is kept if the journal can still be written.
func (a *Actor) command(ctx context.Context) (json.RawMessage, error) {
	process, err := a.Start(a.Guard.Command)
	if err != nil {
		return nil, engine.WithHint(fmt.Errorf("the command cannot be started: %w", err),
			"give a program of this machine after --")
	}
	a.here = true
	one := &running{Process: process}
	a.set(one, nil)
	defer a.set(nil, nil)
	stop := a.meanwhile(ctx)
	defer stop()
	samples := a.sampling(ctx, &result.Samples{})
	defer samples.stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-process.Ended():
			ran := process.Ran()
			a.lock.Lock()
			ran.Interrupted, ran.Killed, ran.OnLoss = one.interrupted, one.killed, a.onLoss
			a.lock.Unlock()
			a.Signals.Look(a.Clock.Now()) // what comes later counts while the network is watched
			ran.Signals, ran.NewPods, ran.Samples = a.Signals.Broken(), stop(), samples.stop()
			ran.Joined, ran.JoinedSilent = a.haveJoined()
			return json.Marshal(ran)
		case <-tick.C:
			if glance, err := a.Gate.Look(ctx, a.MaxLost); err == nil { // an outage of the API server ends no command
				a.noticeLoss(glance)
				a.follow(ctx, glance)
				a.join(ctx, glance)
			}
			a.Signals.Look(a.Clock.Now())
			a.failing()
			a.newPods()
		}
	}
}

// failing reacts to signals that have failed, as to a loss. One without an answer proves nothing, and neither does one
// that failed before.
func (a *Actor) failing() {
	if broken := a.counts(a.Signals.Broken()); len(broken) > 0 && broken[0].State == signal.Fails {
		a.react("SIGNAL FAILED: " + broken[0].Says)
	}
}

// noticeLoss reacts to a loss. Where the baseline may have had losses too, that is one which the comparison proves.
func (a *Actor) noticeLoss(glance kube.Glance) {
	switch {
	case !a.Guard.LossyBefore && glance.Proven:
		a.react("LOSS: " + glance.Reason)
	case a.Guard.LossyBefore && glance.Against != nil && glance.Against.Proven:
		a.react("LOSS: " + glance.Against.Why)
	}
}

// react reacts to the first loss, or signal that fails. After a resume it only says it: the command of --on-loss must
// not run twice.
func (a *Actor) react(said string) {
	if a.reacted {
		return
	}
	a.reacted = true
	a.Say(said)
	switch {
	case !a.here:
		if len(a.Guard.OnLoss) > 0 {
			a.Say("the command of --on-loss is not run: this process did not run the guarded command, and the " +
				"process that did may have run it")
		}
	case a.Guard.Kill:
		a.lock.Lock()
		if a.running != nil {
			a.running.killed = true
			a.sent(a.running.End())
		}
		a.lock.Unlock()
	case len(a.Guard.OnLoss) > 0:
		a.Say("running the command of --on-loss")
		process, err := a.Start(a.Guard.OnLoss)
		if err != nil {
			a.onLoss = &result.Ran{Code: -1, Error: err.Error()}
			a.Say("the command of --on-loss cannot be started: " + err.Error())
			return
		}
		way := &running{Process: process}
		a.back(way)
		<-process.Ended()
		a.back(nil)
		ran := process.Ran()
		ran.Interrupted = way.interrupted
		a.onLoss = &ran
		if why := ran.Failed(); why != "" {
			a.Say("the command of --on-loss failed: " + why)
		} else {
			a.Say("the command of --on-loss has ended")
		}
	}
}

func (a *Actor) back(way *running) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.way = way
}

// silence is how long a source may publish no report, beyond three times its interval, until it counts as silent.
const silence = 5 * time.Second

// watch waits until no probe was lost for a while, and every source has reported meanwhile.
func (a *Actor) watch(ctx context.Context) (json.RawMessage, error) {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	if !a.cuts(cut) {
		return json.Marshal(result.Watched{Interrupted: true, OnLoss: a.onLoss})
	}
	defer a.set(nil, nil)
	made, over := a.after(ctx)
	samples := a.sampling(ctx, &result.Samples{})
	defer func() { samples.stop() }()
	w := watcher{since: a.Clock.Now(), heard: map[string]heard{}}
	now, end := w.since, w.since.Add(time.Duration(a.Guard.AtMost))
	reacting := func(react func()) {
		begun := a.Clock.Now()
		react()
		if took := a.Clock.Now().Sub(begun); took > look { // the command of --on-loss ran: the watching begins after it
			now, end = now.Add(took), end.Add(took)
			w.since = now
		}
	}
	for {
		glance, err := a.Gate.Look(ctx, a.MaxLost)
		now = a.Clock.Now()
		if err != nil {
			w.disturbed(now, "the reports cannot be read: "+err.Error())
		} else {
			w.see(now, glance)
			reacting(func() { a.noticeLoss(glance) })
			a.follow(ctx, glance)
			if why := a.join(ctx, glance); why != "" {
				w.disturbed(now, why)
			}
		}
		came := a.Signals.Look(now)
		reacting(func() { a.failing(); a.newPods() })
		if wrong := a.counts(signal.Not(a.Signals.Last())); came && len(wrong) > 0 {
			w.disturbed(now, signal.Say(wrong))
		}
		quiet := now.Sub(w.since) >= time.Duration(a.Guard.Quiet) && w.decided
		ends := quiet || !now.Before(end)
		sampled := closed(samples.over)
		if sampled && samples.stale(w.since) && now.Before(end) {
			samples, sampled = a.sampling(ctx, samples.sum), false
		}
		if ends {
			samples.last()
		}
		if ends && closed(over) && sampled {
			joined, silent := a.haveJoined()
			return json.Marshal(result.Watched{Quiet: quiet, Why: w.why, OnLoss: a.onLoss, Signals: a.Signals.Broken(),
				NewPods: made, Samples: samples.sum, Joined: joined, JoinedSilent: silent})
		}
		if err := a.Clock.Sleep(ctx, look); err != nil {
			<-over // it has ended with the watching
			sum := samples.stop()
			a.lock.Lock()
			defer a.lock.Unlock()
			if a.ended {
				joined, silent := a.haveJoined()
				return json.Marshal(result.Watched{Interrupted: true, Why: w.why, OnLoss: a.onLoss,
					Signals: a.Signals.Broken(), NewPods: made, Samples: sum, Joined: joined, JoinedSilent: silent})
			}
			return nil, err
		}
	}
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// watcher knows since when the network is quiet, and why it was not before.
type watcher struct {
	since time.Time
	why   string
	wrong int64 // probes so far
	seen  bool
	// decided is true unless losses are compared with those of the baseline, and neither more nor no more is proven.
	decided bool
	heard   map[string]heard
}

// heard is when a source published how many reports.
type heard struct {
	reports int64
	at      time.Time
}

func (w *watcher) disturbed(now time.Time, why string) { w.since, w.why = now, why }

// see takes a look at the measurements.
func (w *watcher) see(now time.Time, glance kube.Glance) {
	w.decided = true
	if glance.Against != nil {
		w.decided = glance.Against.Proven || glance.Against.Harmless
		glance.Lost = 0 // the comparison judges losses
	}
	if wrong := glance.Lost + glance.Leaked; w.seen && wrong > w.wrong {
		w.disturbed(now, fmt.Sprintf("%d probes were lost, or answered although denied, while watching", wrong-w.wrong))
	}
	w.wrong, w.seen = glance.Lost+glance.Leaked, true
	for node, reports := range glance.Reports {
		last, known := w.heard[node]
		if !known || reports != last.reports {
			w.heard[node] = heard{reports, now}
			continue
		}
		if quiet := now.Sub(last.at); quiet > silence+3*glance.Every {
			w.disturbed(now, fmt.Sprintf("%s has reported nothing for %s", node, quiet.Round(time.Second)))
		}
	}
}

func (a *Actor) set(one *running, cut func()) {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.running, a.cut = one, cut
}

// cuts sets how the watching is ended; false if the user has ended it before it began.
func (a *Actor) cuts(cut func()) bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.cut = cut
	return !a.ended
}

// bounce is how soon after an interrupt another one counts as the same: a shell and the kernel both send SIGHUP when a
// terminal closes.
const bounce = time.Second

// Interrupt ends what runs here: a command at the first call, by SIGINT, and at the second by SIGKILL; the watching at
// once. Then the gate still answers, and one more interrupt is taken until it has. It reports false if there is nothing
// to end, or nothing more to try: then the run itself is to be interrupted.
func (a *Actor) Interrupt() bool {
	a.lock.Lock()
	defer a.lock.Unlock()
	now := a.Clock.Now()
	if now.Sub(a.taken) < bounce {
		return true
	}
	took := true
	switch {
	case a.way != nil:
		took = a.end(a.way, "the command of --on-loss")
	case a.running != nil:
		took = a.end(a.running, "the command")
	case !a.ended && (a.cut != nil || a.stage == watching):
		a.ended = true
		a.Say("interrupted: the watching ends here, and the verdict follows")
		if a.cut != nil {
			a.cut()
		}
	case !a.pressed && a.stage != elsewhere:
		a.pressed = true
		a.Say("interrupted: the verdict follows when the gate has new measurements; interrupt " +
			"again to end without a verdict")
	default:
		if a.cutTries != nil {
			a.cutTries() // the run ends after its current action, which may take minutes
		}
		took = false
	}
	if took {
		a.taken = now
	}
	return took
}

// end takes an interrupt for a command, unless two were taken before.
func (a *Actor) end(one *running, name string) bool {
	switch {
	case !one.interrupted:
		one.interrupted = true
		a.Say("interrupted: " + name +
			" gets SIGINT, and the network is watched when it has ended; interrupt again to kill " + name)
		a.sent(one.Interrupt())
	case !one.shot:
		one.shot = true
		a.Say("interrupted again: " + name + " is killed")
		a.sent(one.Kill())
	default:
		return false
	}
	return true
}

// sent says that a signal was not sent.
func (a *Actor) sent(err error) {
	if err != nil {
		a.Say("warning: the signal could not be sent: " + err.Error() + "; end the command yourself")
	}
}
