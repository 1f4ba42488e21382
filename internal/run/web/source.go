package web

import (
	"context"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

const (
	// The journal and the Migration are read every second, the lock less often. Results are counted every two seconds, or less
	// often if counting takes long: it uses at most a quarter of the time.
	readEvery  = time.Second
	countEvery = 2 * time.Second
	lockEvery  = 5 * time.Second
	countShare = 4
)

// Source reads a run from the cluster for a Feed.
type Source struct {
	Client *kube.Client
	Feed   *Feed
	Name   string
	// Dir is the folder of the run's evidence on this machine.
	Dir string
	// Waits says what a migration waits for, one a line.
	Waits func(*v1alpha1.Migration) []string

	actor    *kube.Actor
	tail     *journal.Tail
	evidence *kube.Evidence
	about    About
	counted  time.Time
	takes    time.Duration // counting
	asked    time.Time     // for the lock
}

// Run reads until the context ends. It goes on through every outage: the page says since when it is stale.
func (s *Source) Run(ctx context.Context) {
	var stop func()
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	for ctx.Err() == nil {
		if s.actor == nil {
			actor := run.NewActor(s.Client)
			var err error
			if stop, err = actor.Follow(ctx, s.Client); err == nil {
				s.actor, s.tail = actor, journal.NewTail(s.Client.Dynamic, s.Name)
			} else {
				s.Feed.Stale(err.Error(), time.Now())
			}
		}
		if s.actor != nil {
			if err := s.look(ctx); err != nil && ctx.Err() == nil {
				s.Feed.Stale(outage.Steady(err).Error(), time.Now())
			}
		}
		if outage.Sleep(ctx, readEvery) != nil {
			return
		}
	}
}

// look reads everything once.
func (s *Source) look(ctx context.Context) error {
	records, err := s.tail.Next(ctx)
	if err != nil {
		return err
	}
	state := s.tail.State()
	if len(records) > 0 { // whatever fails below, they are read
		s.Feed.Publish(s.about, time.Now(), func(b *Board) { b.Record(state, records...) })
	}
	migration, err := journal.Get(ctx, s.Client.Dynamic, s.Name)
	if err != nil {
		return err
	}
	s.about.Asked, s.about.Waits = "", nil
	if migration.Spec.Desire != v1alpha1.DesireRun && !state.Over() {
		s.about.Asked = strings.ToLower(string(migration.Spec.Desire))
	}
	if s.Waits != nil && migration.Spec.InCluster && !state.Over() {
		s.about.Waits = s.Waits(migration)
	}
	if err := s.lock(ctx, state, migration); err != nil {
		return err
	}
	results, err := s.count(ctx, state)
	if err != nil {
		return err
	}
	at := time.Now()
	s.Feed.Publish(s.about, at, func(b *Board) {
		if results != nil {
			b.Measure(*results, at)
			s.takes = time.Since(at)
		}
	})
	return nil
}

// lock finds out which process runs the migration.
func (s *Source) lock(ctx context.Context, state engine.State, migration *v1alpha1.Migration) error {
	if time.Since(s.asked) < lockEvery {
		return nil
	}
	holder, err := journal.HeldBy(ctx, run.Leases(s.Client))
	if err != nil {
		return err
	}
	s.asked, s.about.Held, s.about.Runner = time.Now(), holder != nil, ""
	switch {
	case holder != nil:
		s.about.Runner = holder.Error()
	case state.Over():
	case migration.Spec.InCluster:
		s.about.Runner = "the controller in the cluster has it, and does not run it now"
	default:
		s.about.Runner = "no process runs it"
	}
	return nil
}

// count collects the probes' results; nil if it is too early, or if there are none.
func (s *Source) count(ctx context.Context, state engine.State) (*kube.Collected, error) {
	if state.Seq == 0 || time.Since(s.counted) < max(countEvery, countShare*s.takes) {
		return nil, nil
	}
	if s.evidence == nil {
		before, err := run.Gather(ctx, s.actor, s.Name, s.Dir)
		if err != nil && (outage.Passes(err) || errors.Is(err, engine.ErrUnavailable)) {
			return nil, err
		}
		s.unread(err)
		s.evidence = kube.NewEvidence(before)
	}
	if err := s.evidence.Collect(ctx, s.actor); apierrors.IsForbidden(err) {
		s.unread(err) // who may not read them sees the rest
	} else if err != nil {
		return nil, err
	}
	s.counted = time.Now()
	results := s.evidence.Document()
	if len(results.Paths) == 0 {
		return nil, nil
	}
	return &results, nil
}

// unread says that results are missing, and why.
func (s *Source) unread(err error) {
	if err != nil {
		s.about.Unread = "Some results cannot be read: " + err.Error() + "."
	}
}
