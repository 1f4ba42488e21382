package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

const (
	// The journal and the Migration are read every second, the lock less often. Results are counted every two seconds,
	// or less often if counting takes long: it uses at most a quarter of the time.
	readEvery  = time.Second
	countEvery = 2 * time.Second
	lockEvery  = 5 * time.Second
	countShare = 4
	// What asks for BGP sessions is read again after this time, or once the run has gone on, if reading it takes at
	// most a tenth of the time. A read is given up after graphWithin: measurements wait for it meanwhile, and are not
	// old yet.
	graphEvery  = 15 * time.Second
	graphShare  = 10
	graphWithin = 10 * time.Second
	// What a run keeps in the cluster is read again only after this time, if it could not be read completely. What it
	// keeps of the cluster's events, once a minute, is read again after this time in any case, or less often: reading
	// takes at most a tenth of the time.
	gatherEvery = 30 * time.Second
	eventShare  = 10
	// A read without an answer makes the page stale after the first of these times, and is given up after the second.
	staleAfter = 5 * time.Second
	lookWithin = time.Minute
	// A run that has ended writes its last results within 20 s, and releases the lock then. After endWithin, they are
	// not waited for.
	endWithin = 30 * time.Second
	// A counter that began later than this after the end of a run, by the clock of another node, is not of this run.
	laterThan = time.Minute
)

// Source reads a run from the cluster for a Feed.
type Source struct {
	Client *kube.Client
	Feed   *Feed
	Name   string
	// UID is that of the Migration; empty means that of the one that is read first.
	UID types.UID
	// Dir is the folder of the run's evidence on this machine.
	Dir string
	// Waits says what a migration waits for, one a line.
	Waits func(*v1alpha1.Migration) []string

	actor    *kube.Actor
	tail     *journal.Tail
	holder   journal.Watch
	fresh    []engine.Record // read, and not published yet
	evidence *kube.Evidence
	about    About
	counted  time.Time
	takes    time.Duration // counting
	asked    time.Time     // for the lock
	ended    time.Time     // when the run was first seen to be over
	released bool          // the lock, by the process that ran it to the end
	graphed  time.Time     // when what asks for BGP sessions was last read
	reads    time.Duration // reading that
	moved    bool          // the run has gone on since then
	rebase   bool          // results of earlier times that were not known before are not published yet

	happened time.Time     // when the events that the run keeps were last read
	recalls  time.Duration // reading them
	unseen   error         // why they could not be read

	gathered    time.Time
	ungathered  error // why what the run keeps in the cluster could not be read completely
	uncollected error // why the probes' reports could not be read

	reading atomic.Pointer[time.Time] // when the read under way began; nil if there is none
}

// Run reads until the context ends, or the migration is withdrawn. It goes on through every outage: the page says since
// when it is stale.
func (s *Source) Run(ctx context.Context) {
	var stop func()
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.watch(ctx) // ends with the context
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
			bounded, cancel := context.WithTimeout(ctx, lookWithin)
			err := s.look(bounded)
			cancel()
			s.read(false)
			if errors.Is(err, errWithdrawn) {
				s.Feed.Withdraw()
				return
			}
			if err != nil && ctx.Err() == nil {
				s.Feed.Stale(outage.Steady(err).Error(), time.Now())
			}
		}
		if outage.Sleep(ctx, readEvery) != nil {
			return
		}
	}
}

// watch says that the page is stale while a read hangs, and lets what it shows age.
func (s *Source) watch(ctx context.Context) {
	for outage.Sleep(ctx, readEvery) == nil {
		if began := s.reading.Load(); began != nil && time.Since(*began) >= staleAfter {
			s.Feed.Stale(fmt.Sprintf("no answer for %d s", int(staleAfter.Seconds())), time.Now())
		}
		s.Feed.Age(time.Now())
	}
}

// read notes that a read begins, or that none is under way.
func (s *Source) read(begins bool) {
	var now *time.Time
	if begins {
		now = new(time.Now())
	}
	s.reading.Store(now)
}

// look reads everything once.
func (s *Source) look(ctx context.Context) error {
	s.read(true)
	records, err := s.tail.Next(ctx)
	if err != nil && !outage.Passes(err) { // it has no journal if it was deleted
		if _, gone := s.migration(ctx); errors.Is(gone, errWithdrawn) {
			err = gone
		}
	}
	if err != nil {
		return err
	}
	s.fresh = append(s.fresh, records...) // whatever fails below, they are read
	s.moved = s.moved || len(records) > 0
	state := s.tail.State()
	if !state.Over() {
		s.ended, s.about.Final = time.Time{}, false
	} else if s.ended.IsZero() {
		s.ended, s.asked, s.counted, s.released = time.Now(), time.Time{}, time.Time{}, false
	}
	s.read(true)
	migration, err := s.migration(ctx)
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
	s.read(true)
	if err := s.lock(ctx, state, migration); err != nil {
		return err
	}
	if len(s.fresh) > 0 { // reading and counting the results takes seconds with many nodes
		s.Feed.Publish(s.about, time.Now(), func(b *Board) { b.Record(state, s.fresh...) })
		s.fresh = nil
	}
	s.read(true)
	results, err := s.count(ctx, state)
	if err != nil {
		return err
	}
	s.read(false)
	at := time.Now()
	s.about.CountEvery = max(countEvery, countShare*s.takes)
	s.Feed.Publish(s.about, at, func(b *Board) {
		counts := time.Now() // before that, it may have waited for readers of the board
		if s.rebase {
			b.Rebase()
			s.rebase = false
		}
		if results != nil {
			b.Measure(*results, s.evidence.Planned(), at)
			b.Hear(s.evidence.Reports(), at)
			s.takes = time.Since(counts)
		}
	})
	if results == nil || state.Over() {
		return nil
	}
	// after the measurements, and no reason to call them stale
	if change := s.graph(ctx); change != nil {
		s.Feed.Publish(s.about, time.Now(), change)
	}
	return nil
}

// errWithdrawn says that the migration is not in the cluster any more.
var errWithdrawn = errors.New("the migration was withdrawn")

// migration reads the Migration. It returns errWithdrawn if the API server says that there is none, or another one of
// this name.
func (s *Source) migration(ctx context.Context) (*v1alpha1.Migration, error) {
	migration, err := journal.Get(ctx, s.Client.Dynamic, s.Name)
	// else it does not know the kind, or not yet
	if apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return nil, errWithdrawn
	}
	if err != nil {
		return nil, err
	}
	if s.UID = cmp.Or(s.UID, migration.UID); s.UID != migration.UID {
		return nil, errWithdrawn
	}
	return migration, nil
}

// lock finds out which process runs the migration.
func (s *Source) lock(ctx context.Context, state engine.State, migration *v1alpha1.Migration) error {
	if s.about.Final || time.Since(s.asked) < lockEvery {
		return nil
	}
	holder, err := s.holder.Look(ctx, run.Leases(s.Client), state.End())
	hidden := apierrors.IsForbidden(err) // who may not read it sees the rest
	if err != nil && !hidden {
		return err
	}
	s.asked, s.about.Held, s.about.Runner = time.Now(), hidden || holder != nil, ""
	s.released = state.Over() && !s.about.Held && !s.holder.Died
	switch {
	case holder != nil:
		s.about.Runner = holder.Error()
	case state.Over():
	case hidden:
		s.about.Runner = "Theseus cannot read which process runs it: " + err.Error()
	case migration.Spec.InCluster:
		s.about.Runner = "the controller in the cluster has it, but does not run it now"
	default:
		s.about.Runner = "no process runs it"
	}
	return nil
}

// count collects the probes' results; nil if it is too early, or if there are none.
func (s *Source) count(ctx context.Context, state engine.State) (*kube.Collected, error) {
	if state.Seq == 0 || s.about.Final || time.Since(s.counted) < max(countEvery, countShare*s.takes) {
		return nil, nil
	}
	last := state.Over() && (s.released || time.Since(s.ended) >= endWithin)
	if s.evidence == nil || state.Over() || s.ungathered != nil && time.Since(s.gathered) >= gatherEvery {
		if err := s.gather(ctx, state.Over()); err != nil {
			return nil, err
		}
		s.rebase = true
	}
	if !state.Over() { // then they are of whatever runs next
		s.uncollected = s.evidence.Collect(ctx, s.actor)
		if err := s.uncollected; err != nil && !apierrors.IsForbidden(err) { // who may not read them sees the rest
			return nil, err
		}
	}
	if err := s.events(ctx, state.Over()); err != nil {
		return nil, err
	}
	s.counted = time.Now()
	s.about.Final, s.about.Unread = last, ""
	if err := cmp.Or(s.ungathered, s.uncollected); err != nil {
		s.about.Unread = "Some results cannot be read: " + err.Error() + "."
	} else if last && !s.released {
		s.about.Unread = "The last results may be missing: Theseus does not know whether the process that ran it has " +
			"written them."
	}
	found := s.evidence.Document()
	if state.Over() {
		found.Results = slices.DeleteFunc(found.Results, func(r v1alpha1.PathResult) bool {
			return r.Since.After(state.At.Add(laterThan))
		})
	}
	if len(found.Paths) == 0 {
		return nil, nil
	}
	return &found, nil
}

// graph reads what asks for BGP sessions, if it is time to, and if the gates check them or an agent reports some.
// change is nil if there is nothing new.
func (s *Source) graph(ctx context.Context) (change func(*Board)) {
	age := time.Since(s.graphed)
	if !s.speaks() || age < graphShare*s.reads || age < graphEvery && !s.moved {
		return nil
	}
	begun := time.Now()
	bounded, cancel := context.WithTimeout(ctx, graphWithin)
	defer cancel()
	objects, unread := s.actor.BGPObjects(bounded)
	late := ""
	switch {
	case unread == nil:
	case bounded.Err() != nil:
		late = fmt.Sprintf("no answer within %d s", int(graphWithin.Seconds()))
	case outage.Passes(unread):
		late = outage.Steady(unread).Error()
	}
	s.graphed, s.reads, s.moved = time.Now(), time.Since(begun), false
	if ctx.Err() != nil { // the reading ends
		return nil
	}
	return func(b *Board) {
		switch {
		case unread == nil:
			b.Graph(bgp.FromSnapshot(objects), "")
		case late != "":
			b.KeepGraph(late)
		default:
			b.Graph(nil, "The BGP graph is not known: "+unread.Error()+".")
		}
	}
}

// speaks says whether the gates check BGP sessions, or an agent reports some.
func (s *Source) speaks() (speaks bool) {
	s.Feed.On(func(b *Board) { speaks = run.SpeaksBGP(b.plan) })
	return speaks || slices.ContainsFunc(s.evidence.Reports(), func(r v1alpha1.ProbeReport) bool {
		return r.Status.BGP != nil
	})
}

// gather adds what the run keeps in the cluster and on this machine.
func (s *Source) gather(ctx context.Context, over bool) error {
	before, err := run.Gather(ctx, s.actor, s.Name, s.Dir, over)
	if err != nil && (outage.Passes(err) || errors.Is(err, engine.ErrUnavailable) || ctx.Err() != nil) {
		return err
	}
	if s.gathered, s.ungathered = time.Now(), err; err == nil {
		s.uncollected = nil
	}
	s.happened, s.unseen = s.gathered, err
	if s.evidence == nil {
		s.evidence = kube.NewEvidence(before)
	} else {
		s.evidence.Merge(before)
	}
	return nil
}

// events reads again what the run keeps of what happened in the cluster, if it is time to. Only guards keep that.
func (s *Source) events(ctx context.Context, over bool) error {
	guard := false
	if s.Feed.On(func(b *Board) { guard = b.plan.Foreign() }); !guard {
		return nil
	}
	if age := time.Since(s.happened); !over && age >= gatherEvery && age >= eventShare*s.recalls {
		begun := time.Now()
		found, err := run.Happened(ctx, s.actor, s.Name, s.Dir)
		if err != nil && (outage.Passes(err) || ctx.Err() != nil) {
			return err
		}
		s.happened, s.recalls, s.unseen = time.Now(), time.Since(begun), err
		s.evidence.Happened(found)
	}
	s.about.Unseen = ""
	if s.unseen != nil {
		s.about.Unseen = s.unseen.Error()
	}
	return nil
}
