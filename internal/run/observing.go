package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/report"
)

const (
	// observeEvery is the time between two looks at nodes and DaemonSets, and at least observeNode for each node. Pods,
	// and the Events of Kubernetes, are read every observePods.
	observeEvery = 3 * time.Second
	observeNode  = 4 * time.Millisecond
	observePods  = 30 * time.Second
	// observeEnd bounds the last look of a run.
	observeEnd = 10 * time.Second
)

// observing reads the cluster until stopped, and once more then: the report shows its events next to the gaps.
func (r *Run) observing(ctx context.Context, evidence *kube.Evidence) (stop func()) {
	running, cancel := context.WithCancel(ctx)
	done, told := make(chan struct{}), false
	every := max(observeEvery, time.Duration(len(r.Plan.Cluster.Nodes))*observeNode)
	look := func(ctx context.Context, pods bool) bool {
		unseen, err := evidence.Observe(ctx, r.Client, time.Now(), pods)
		if unseen != "" && !told {
			told = true
			r.View.Say("note: events of the cluster are incomplete: this user may not list " + unseen +
				" (`theseus rights operate`)")
		}
		return err == nil // an outage: the next look sees what has happened meanwhile
	}
	go func() {
		defer close(done)
		for last := (time.Time{}); ; {
			pods := time.Since(last) >= observePods
			if look(running, pods) && pods {
				last = time.Now()
			}
			if (Clock{}).Sleep(running, every) != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), observeEnd)
		defer cancel()
		look(last, true)
	}
}

// recall adds to the evidence what earlier processes kept in the cluster, and lets the gate count from their baseline.
func (r *Run) recall(
	ctx context.Context, archive *archive, evidence *kube.Evidence, gate *kube.Gate, past []engine.Record,
) error {
	state, err := engine.Replay(past)
	if err != nil {
		return err
	}
	baseline := taken(r.Plan, state)
	if baseline == nil {
		return nil
	}
	err = r.patiently(ctx, func(ctx context.Context) error {
		err := archive.addTo(ctx, evidence)
		var damaged *damagedError
		if errors.As(err, &damaged) || apierrors.IsForbidden(err) {
			r.View.Say("warning: " + err.Error())
			err = nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if since := evidence.Baseline(); since != nil {
		gate.Since = since
		if gate.Contrast != nil && baseline.Verdict != nil && baseline.Verdict.Lossy != nil {
			gate.Contrast.Resume(baseline.Verdict.Lossy, since)
		}
	} else {
		gate.Lacks = "the counts of the baseline are neither in the cluster nor on this machine, so restarts of " +
			"probers since then cannot be seen"
	}
	if last := state.Steps[len(state.Steps)-1]; last.ID == baseline.ID && !r.Ended && !state.Undoing &&
		r.Desire == v1alpha1.DesireRun {
		r.View.Say(fmt.Sprintf("note: the baseline of %s UTC is kept, and all losses since then count; `theseus "+
			"rollback` and a new guard take a new one",
			baseline.EndedAt.UTC().Format(time.DateTime)))
	}
	return nil
}

// taken is the step whose gate took the baseline, if it is done.
func taken(p *plan.Plan, state engine.State) *engine.StepState {
	for i := range p.Steps {
		if gate := p.Steps[i].Gate; gate != nil && gate.Baseline {
			if known := state.Find(p.Steps[i].ID); known != nil && known.Done {
				return known
			}
		}
	}
	return nil
}

// counts keeps what the result counts from, when a baseline has passed.
func (r *Run) counts(record engine.Record, evidence *kube.Evidence, gate *kube.Gate) {
	if record.Event != engine.GateAnswer || record.Verdict == nil || !record.Verdict.Pass || !r.Plan.Foreign() {
		return
	}
	if one := r.flight.script.Step(record.Step); one != nil && one.Gate != nil && one.Gate.Baseline {
		evidence.Count(gate.Since)
	}
}

// Looking is a person who looks at a run that measures, or marks its timeline.
type Looking struct {
	Client *kube.Client
	Plan   *plan.Plan
	// Dir is the folder of the run on this machine.
	Dir string
	// Holder says who looks, for the lock and the journal; "" means journal.Holder().
	Holder string
	// Say gets what makes the look incomplete.
	Say func(string)
}

// Mark puts a line on the timeline, and keeps in the cluster what a look sees. It returns a *journal.HeldError while a
// process runs the plan.
func (l *Looking) Mark(ctx context.Context, text string) error {
	return l.locked(ctx, journal.Acquire, func(ctx context.Context, client *kube.Client, lease *journal.Lease) error {
		records := journal.NewMirrored(journal.NewCluster(client.Dynamic, l.Plan.Name), filepath.Join(l.Dir,
			JournalFile), l.Plan.Hash, func(err error) {
			l.Say(fmt.Sprintf("warning: the local copy of the journal: %v", err))
		})
		defer records.Close()
		past, err := records.Records(ctx)
		if err != nil {
			return err
		}
		if n := len(past); n > 0 {
			if err := lease.Exceed(ctx, past[n-1].Epoch); err != nil {
				return err
			}
		}
		if err := engine.Mark(ctx, l.Plan, engine.Deps{Journal: lease.GuardJournal(records), Clock: Clock{},
			Epoch: lease.Epoch(), By: l.holder()}, text); err != nil {
			return err
		}
		if _, err := l.look(ctx, client, true); err != nil {
			l.Say("warning: the mark is set, but the state of the cluster could not be read: " + err.Error())
		}
		return nil
	})
}

// Look is everything that was measured and observed until now. It looks at the cluster, and keeps in the cluster what
// it sees, if this user may and no other process has the lock: Kubernetes keeps its Events for an hour. Of a plan that
// has ended it only reads what is kept: what is measured now is another's.
func (l *Looking) Look(ctx context.Context) (all kube.Collected, err error) {
	over, err := ended(ctx, l.Client, l.Plan)
	if err != nil {
		return all, err
	}
	if over {
		return l.look(ctx, l.Client, false)
	}
	err = l.locked(ctx, journal.TryAcquire, func(ctx context.Context, client *kube.Client,
		_ *journal.Lease) (err error) {
		all, err = l.look(ctx, client, true)
		return err
	})
	var held *journal.HeldError
	if !errors.As(err, &held) && !apierrors.IsForbidden(err) && !errors.Is(err, engine.ErrRefused) {
		return all, err
	}
	l.Say("note: the cluster's state of this look is not stored: " + err.Error())
	return l.look(ctx, l.Client, false)
}

// ended reports whether a plan has ended, by the journal in the cluster.
func ended(ctx context.Context, client *kube.Client, p *plan.Plan) (bool, error) {
	records, err := journal.NewCluster(client.Dynamic, p.Name).Records(ctx)
	if err != nil {
		return false, err
	}
	return over(records), nil
}

// over reports whether a plan with this journal has ended.
func over(records []engine.Record) bool {
	state, err := engine.Replay(records)
	return err == nil && state.Over()
}

// Report looks (Look), and is the report until now, with what was measured since the baseline.
func (l *Looking) Report(ctx context.Context) (report.Model, Seen, error) {
	document, err := l.Look(ctx)
	if err != nil {
		return report.Model{}, Seen{}, err
	}
	records, err := journal.NewCluster(l.Client.Dynamic, l.Plan.Name).Records(ctx)
	if err != nil {
		return report.Model{}, Seen{}, err
	}
	quiet := func(string) {} // what a report lacks is no news at every look; the report at the end says it
	input, err := inputOf(ctx, l.Client, l.Plan, l.Dir, records, document, quiet)
	return report.Build(input), SeenIn(document), err
}

// locked does something with the lock on the cluster, which acquire takes.
func (l *Looking) locked(ctx context.Context,
	acquire func(context.Context, coordination.LeaseInterface, string) (*journal.Lease, context.Context, error),
	do func(context.Context, *kube.Client, *journal.Lease) error) error {
	lease, ctx, err := acquire(ctx, Leases(l.Client), journal.Onlooker(l.holder()))
	if err != nil {
		return err
	}
	defer lease.Release(context.WithoutCancel(ctx)) //nolint:errcheck // a lock that is not released expires
	client, err := l.Client.Fenced(lease.Check)
	if err != nil {
		return err
	}
	return do(ctx, client, lease)
}

func (l *Looking) holder() string { return cmp.Or(l.Holder, journal.Holder()) }

// look gathers what is kept and, unless the plan has ended, what the probes report, and looks at the cluster. keeps
// writes all of it to the cluster; the caller has the lock.
func (l *Looking) look(ctx context.Context, client *kube.Client, keeps bool) (kube.Collected, error) {
	before, err := kept(l.Dir)
	if err != nil {
		return before, err
	}
	evidence, archive := kube.NewEvidence(before), newArchive(client.Dynamic, l.Plan.Name)
	err = archive.addTo(ctx, evidence)
	var damaged *damagedError
	if errors.As(err, &damaged) || apierrors.IsForbidden(err) {
		l.Say("warning: the evidence that is kept in the cluster is not complete: " + err.Error())
		err = nil
	}
	if err != nil {
		return before, err
	}
	if over, err := ended(ctx, client, l.Plan); err != nil || over {
		return evidence.Document(), err
	}
	if err := evidence.Collect(ctx, NewActor(client)); err != nil {
		return evidence.Document(), err
	}
	unseen, err := evidence.Observe(ctx, client, time.Now(), true)
	if err != nil {
		l.Say("note: this look lacks the state of the cluster: " + err.Error())
	}
	if unseen != "" {
		l.Say("note: events of the cluster are incomplete: this user may not list " + unseen +
			" (`theseus rights operate`)")
	}
	if keeps {
		l.follow(ctx, client)
		(&archiver{archive: archive, evidence: evidence, say: l.Say}).keep(ctx, true)
	}
	return evidence.Document(), nil
}

// follow leads paths to the addresses that the probe pods have now: between the looks no process does. The caller has
// the lock.
func (l *Looking) follow(ctx context.Context, client *kube.Client) {
	nodes, err := NewActor(client).FollowProbePods(ctx)
	if err != nil {
		l.Say("note: paths to probe pods with a new address may still lead to the former one: " + err.Error())
		return
	}
	for _, node := range nodes {
		l.Say(kube.Followed(node))
	}
}
