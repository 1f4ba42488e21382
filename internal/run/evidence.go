package run

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

// collect gathers evidence once a second until stopped, and keeps it on disk.
func (r *Run) collect(ctx context.Context, actor *kube.Actor, evidence *kube.Evidence) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for Clock.Sleep(Clock{}, ctx, time.Second) == nil {
			if evidence.Collect(ctx, actor) == nil {
				r.View.Evidence(SeenIn(evidence.Document()))
			}
			r.save(evidence)
		}
	}()
	return func() {
		cancel()
		<-done
		r.save(evidence)
	}
}

// EvidenceFile holds the probes' results, in the folder of a run.
const EvidenceFile = "evidence.json"

func (r *Run) save(evidence *kube.Evidence) {
	why := ""
	if err := Keep(r.Dir, evidence.Document()); err != nil {
		why = err.Error()
	}
	if why != r.unkept && why != "" {
		r.View.Say("warning: the evidence for the report cannot be kept on this machine: " + why)
	}
	r.unkept = why
}

// Keep writes evidence to the folder of a run.
func Keep(dir string, document kube.Collected) error {
	return outfile.WriteJSON(filepath.Join(dir, EvidenceFile), document)
}

// evidence continues with what an earlier process kept.
func (r *Run) evidence() *kube.Evidence {
	before, err := kept(r.Dir)
	if err != nil {
		r.View.Say("warning: earlier evidence cannot be read: " + err.Error())
	}
	return kube.NewEvidence(before)
}

// kept is the evidence in the folder of a run; empty if there is none.
func kept(dir string) (kube.Collected, error) {
	var before kube.Collected
	err := infile.ReadJSON(filepath.Join(dir, EvidenceFile), document.MaxInput, &before)
	if errors.Is(err, fs.ErrNotExist) {
		return before, nil
	}
	return before, err
}

// Gather combines the evidence in the folder of a run with what the run keeps in the cluster, and with the current reports of
// the probes there. If the cluster cannot be read, Gather returns what it could read, and an error that says why.
func Gather(ctx context.Context, actor *kube.Actor, migration, dir string) (kube.Collected, error) {
	all, unread, err := gather(ctx, actor, migration, dir, true)
	return all, cmp.Or(err, unread)
}

// gather is Gather; without running, it leaves out the current reports, which are another's. unread says why the evidence that the run
// keeps in the cluster is not complete, and err what else failed.
func gather(ctx context.Context, actor *kube.Actor, migration, dir string, running bool) (all kube.Collected, unread, err error) {
	before, err := kept(dir)
	if err != nil {
		return before, nil, err
	}
	evidence := kube.NewEvidence(before)
	archived, unread := newArchive(actor.Dynamic, migration).load(ctx)
	evidence.Merge(archived)
	if running {
		err = evidence.Collect(ctx, actor)
	}
	return evidence.Document(), unread, err
}

// Watch combines the evidence in the folder of a run with the current reports of the probes in the cluster. It is cheap enough
// to call once a second.
func Watch(ctx context.Context, actor *kube.Actor, dir string) (kube.Collected, error) {
	before, err := kept(dir)
	if err != nil {
		return before, err
	}
	evidence := kube.NewEvidence(before)
	err = evidence.Collect(ctx, actor)
	return evidence.Document(), err
}

// SeenIn adds up the evidence of all paths.
func SeenIn(document kube.Collected) Seen {
	sum := loss.NewAccount(document.Paths, nil, Reports(document), 0).Sum()
	return Seen{Paths: len(document.Paths), Sent: sum.Sent, Lost: sum.Lost, Excused: sum.Excused, Leaked: sum.Leaked,
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
