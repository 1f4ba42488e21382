package run

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// collect gathers evidence once a second until stopped, shows it, and keeps it on disk: at once if it has losses, restarts or paths
// that are new, and else as often as its size allows (pace). If the process is killed, what it has not kept is still in the reports in
// the cluster, until their agents restart.
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

// pace says when all of the evidence is looked at and kept again: after the longer, the longer it took, so that it takes a third of
// a processor at most while there is news, and a twentieth else. The time to the next look is bounded, as a look also takes long
// when this process or the disk was stopped.
type pace struct {
	next, nextNews time.Time
	grown, news    bool
}

const (
	newsRest, mostNewsRest   = 2, 10 * time.Second
	usualRest, mostUsualRest = 20, time.Minute
)

// due reports whether the evidence is to be looked at now.
func (p *pace) due(now time.Time, evidence *kube.Evidence) bool {
	grown, news := evidence.Changed()
	p.grown, p.news = p.grown || grown, p.news || news
	return p.news && !now.Before(p.nextNews) || p.grown && !now.Before(p.next)
}

// did records a look from one time to another. If its evidence is not kept, the next look is not bound to changes.
func (p *pace) did(from, to time.Time, kept bool) {
	p.grown, p.news = !kept, !kept
	took := to.Sub(from)
	p.nextNews, p.next = to.Add(min(newsRest*took, mostNewsRest)), to.Add(min(usualRest*took, mostUsualRest))
}

// EvidenceFile holds the probes' results, in the folder of a run.
const EvidenceFile = "evidence.json"

// save keeps evidence on this machine, and reports whether it is kept.
func (r *Run) save(document kube.Collected) bool {
	why := ""
	if err := Keep(r.Dir, document); err != nil {
		why = err.Error()
	}
	if why != r.unkept && why != "" {
		r.View.Say("warning: the evidence for the report cannot be kept on this machine: " + why)
	}
	r.unkept = why
	return why == ""
}

// Keep writes evidence to the folder of a run.
func Keep(dir string, document kube.Collected) error {
	return outfile.WriteBy(filepath.Join(dir, EvidenceFile), func(to io.Writer) error { return encode(to, document) })
}

// encode writes evidence as JSON, path by path: the whole text need not fit into memory.
func encode(to io.Writer, document kube.Collected) error {
	out := bufio.NewWriterSize(to, 1<<16)
	short := document
	short.Paths, short.Results = nil, nil
	rest, err := json.Marshal(short)
	if err != nil {
		return err
	}
	rest, lists := bytes.CutPrefix(rest, []byte(`{"paths":null,"results":null`))
	if !lists {
		return fmt.Errorf("evidence begins with %.40q", rest)
	}
	out.WriteString(`{"paths":`) //nolint:errcheck // Flush returns it
	if err := encodeList(out, document.Paths); err != nil {
		return err
	}
	out.WriteString(`,"results":`) //nolint:errcheck // Flush returns it
	if err := encodeList(out, document.Results); err != nil {
		return err
	}
	out.Write(rest) //nolint:errcheck // Flush returns it
	return out.Flush()
}

// encodeList writes a list as json.Marshal does.
func encodeList[T any](out *bufio.Writer, list []T) error {
	if list == nil {
		_, err := out.WriteString("null")
		return err
	}
	for i := range list {
		text, err := json.Marshal(&list[i])
		if err != nil {
			return err
		}
		out.WriteByte("[,"[min(i, 1)]) //nolint:errcheck // the writer keeps the first error
		if _, err := out.Write(text); err != nil {
			return err
		}
	}
	_, err := out.WriteString("[]"[min(len(list), 1):])
	return err
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

// Watcher has the evidence of a run that another process carries out: what is in the folder of the run on this machine, and what the
// probes have reported since the watching began.
type Watcher struct {
	// Dir is the folder of the run; evidence is kept there too. Without one it is not kept.
	Dir string

	evidence *kube.Evidence
	pace     pace
}

// Look reads the current reports. It is cheap enough to call once a second: looked is false if not enough has changed to count and keep
// all of it again, or if nothing could be read. unkept says why the evidence is not kept on this machine.
func (w *Watcher) Look(ctx context.Context, actor *kube.Actor) (seen Seen, looked bool, unkept error) {
	if w.evidence == nil {
		before, err := w.kept()
		if err != nil {
			return seen, false, nil
		}
		w.evidence = kube.NewEvidence(before)
	}
	begun := time.Now()
	if w.evidence.Collect(ctx, actor) != nil || !w.pace.due(begun, w.evidence) {
		return seen, false, nil
	}
	document := w.evidence.Document()
	if len(document.Paths) == 0 {
		return seen, false, nil
	}
	seen = SeenIn(document)
	if w.Dir != "" {
		unkept = Keep(w.Dir, document)
	}
	w.pace.did(begun, time.Now(), true)
	return seen, true, unkept
}

func (w *Watcher) kept() (kube.Collected, error) {
	if w.Dir == "" {
		return kube.Collected{}, nil
	}
	return kept(w.Dir)
}

// SeenIn adds up the evidence of all paths.
func SeenIn(document kube.Collected) Seen { return seenIn(accountOf(document)) }

func accountOf(document kube.Collected) loss.Account {
	return loss.NewAccount(document.Paths, nil, Reports(document), 0)
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
