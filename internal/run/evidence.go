package run

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/report"
)

// collect gathers evidence once a second until stopped, shows it, and keeps it on disk: at once if it has losses,
// restarts or paths that are new, and else as often as its size allows (pace). If the process is killed, what it has
// not kept is still in the reports in the cluster, until their agents restart.
func (r *Run) collect(ctx context.Context, actor *kube.Actor, evidence *kube.Evidence) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var pace pace
		for Clock.Sleep(Clock{}, ctx, time.Second) == nil {
			_ = evidence.Collect(ctx, actor) // it is tried again; the engine reports outages
			if begun := time.Now(); pace.due(begun, evidence) {
				seen, kept := r.keep(evidence)
				pace.did(begun, time.Now(), kept)
				r.View.Evidence(seen) // a terminal may block: that is not what looks cost
			}
		}
	}()
	return func() {
		cancel()
		<-done
		seen, _ := r.keep(evidence)
		r.View.Evidence(seen)
	}
}

// keep counts all of the evidence, and keeps it on this machine.
func (r *Run) keep(evidence *kube.Evidence) (seen Seen, kept bool) {
	document := evidence.Document()
	account := accountOf(document)
	r.Metrics.Measured(account, evidence.Planned(), time.Now())
	return seenIn(account), r.save(document)
}

// pace says when all of the evidence is looked at and kept again: after the longer, the longer it took, so that it
// takes a third of a processor at most while there is news, and a twentieth else. The time to the next look is bounded,
// as a look also takes long when this process or the disk was stopped.
type pace struct {
	next, nextNews time.Time
	grown, news    bool
}

const (
	newsRest, mostNewsRest   = 2, 10 * time.Second
	usualRest, mostUsualRest = 20, time.Minute
)

// due reports whether the evidence must be read now.
func (p *pace) due(now time.Time, evidence *kube.Evidence) bool {
	p.pending(evidence)
	return p.news && !now.Before(p.nextNews) || p.grown && !now.Before(p.next)
}

// pending reports whether evidence has changed since the last look.
func (p *pace) pending(evidence *kube.Evidence) bool {
	grown, news := evidence.Changed()
	p.grown, p.news = p.grown || grown, p.news || news
	return p.grown
}

// did records a look from one time to another. If its evidence is not kept, the next look is not bound to changes.
func (p *pace) did(from, to time.Time, kept bool) {
	p.grown, p.news = !kept, !kept
	took := to.Sub(from)
	p.nextNews, p.next = to.Add(min(newsRest*took, mostNewsRest)), to.Add(min(usualRest*took, mostUsualRest))
}

// Gather combines the evidence in the folder of a run with what the run keeps in the cluster, and with the current
// reports of the probes there. Of a run that has ended (over), it leaves these out: they are of whatever runs now. If
// the cluster cannot be read, Gather returns what it could read, and an error that says why.
func Gather(ctx context.Context, actor *kube.Actor, migration, dir string, over bool) (kube.Collected, error) {
	all, unread, err := gather(ctx, actor, migration, dir, over)
	return all, cmp.Or(err, unread)
}

// gather is Gather. unread says why the evidence that the run keeps in the cluster is not complete, and err what else
// failed.
func gather(ctx context.Context, actor *kube.Actor, migration, dir string,
	over bool) (all kube.Collected, unread, err error) {
	before, err := kept(dir)
	if err != nil {
		return before, nil, err
	}
	evidence := kube.NewEvidence(before)
	unread = newArchive(actor.Dynamic, migration).addTo(ctx, evidence)
	if !over {
		err = evidence.Collect(ctx, actor)
	}
	return evidence.Document(), unread, err
}

// Happened is what a run has kept, in the cluster and on this machine, of what happened in the cluster.
func Happened(ctx context.Context, actor *kube.Actor, migration, dir string) (kube.Collected, error) {
	here, err := kept(dir)
	if err != nil {
		return kube.Collected{}, err
	}
	all := kube.NewEvidence(kube.Collected{})
	all.Happened(here)
	there, err := newArchive(actor.Dynamic, migration).load(ctx)
	all.Happened(there)
	return all.Document(), err
}

// SeenIn adds up the evidence of all paths.
func SeenIn(document kube.Collected) Seen { return seenIn(accountOf(document)) }

func accountOf(document kube.Collected) loss.Account {
	account := loss.NewAccount(document.Paths, nil, Reports(document), 0)
	account.Leave(Left(document))
	return account
}

// Left are the nodes that have left the cluster, since they began to leave.
func Left(document kube.Collected) map[string]time.Time {
	if document.State == nil {
		return nil
	}
	return document.State.Left
}

func seenIn(account loss.Account) Seen {
	sum := account.Sum()
	return Seen{Paths: len(account), Sent: sum.Sent, Lost: sum.Lost, Excused: sum.Excused, Leaked: sum.Leaked,
		LongestGapMillis: sum.LongestMillis}
}

// Foreign are results in a node's report of paths that start on another node.
func Foreign(document kube.Collected) []report.Foreign {
	var all []report.Foreign
	for _, node := range slices.Sorted(maps.Keys(document.Foreign)) {
		all = append(all, report.Foreign{Node: node, Path: document.Foreign[node]})
	}
	return all
}

// Reports turns evidence into one report per sending node. A path's id begins with its sending node.
func Reports(document kube.Collected) []v1alpha1.ProbeReport {
	byNode := map[string]*v1alpha1.ProbeReport{}
	of := func(name string) *v1alpha1.ProbeReport {
		if byNode[name] == nil {
			byNode[name] = &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: name}}
		}
		return byNode[name]
	}
	for _, result := range document.Results {
		name, _, _ := strings.Cut(result.ID, "/")
		of(name).Status.Paths = append(of(name).Status.Paths, result)
	}
	for _, one := range document.Parts {
		of(one.Node).Status.Parts = append(of(one.Node).Status.Parts, one.Part)
	}
	var reports []v1alpha1.ProbeReport
	for _, name := range slices.Sorted(maps.Keys(byNode)) {
		reports = append(reports, *byNode[name])
	}
	return reports
}
