package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/term"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/engine"
	"github.com/theseus-cni/theseus/internal/journal"
	"github.com/theseus-cni/theseus/internal/kube"
	"github.com/theseus-cni/theseus/internal/path"
	"github.com/theseus-cni/theseus/internal/plan"
)

// headers are what a probe's payload leaves of the MTU to IPv4 and UDP, in bytes.
const headers = 28

// run is one execution of a plan by this process.
type run struct {
	app    *app
	client *kube.Client
	plan   *plan.Plan
	view   view
	// desire is what is asked of it when this process has the lock.
	desire v1alpha1.Desire
	// fresh counts losses only from now on: a person has seen the earlier ones.
	fresh bool
	dir   string
}

// execute carries a plan out from where its journal stands, and keeps everything that a report needs.
func (r *run) execute(ctx context.Context) (engine.Outcome, error) {
	dir, err := stateDir(r.plan.Name)
	if err != nil {
		return engine.Outcome{}, err
	}
	r.dir = dir
	lease, ctx, err := journal.Acquire(ctx, r.app.leases(r.client), journal.Holder())
	if err != nil {
		return engine.Outcome{}, err
	}
	defer lease.Release(context.WithoutCancel(ctx)) //nolint:errcheck // a lock that is not given back runs out by itself
	if err := journal.SetDesire(ctx, r.client.Dynamic, r.plan.Name, r.desire); err != nil {
		return engine.Outcome{}, err
	}
	records := journal.NewMirrored(journal.NewCluster(r.client.Dynamic, r.plan.Name), filepath.Join(dir, "journal.jsonl"), func(err error) {
		fmt.Fprintf(r.app.Err, "warning: the local copy of the journal: %v\n", err)
	})
	defer records.Close()

	actor := r.actor()
	gate := &kube.Gate{Actor: actor, Since: []v1alpha1.ProbeReport{}}
	if r.fresh {
		gate.Since = nil
	}
	evidence := r.evidence()
	stop := r.collect(ctx, actor, evidence)
	defer stop()
	return engine.Run(ctx, r.plan, engine.Deps{
		Actor: lease.Guard(actor), Gate: gate, Journal: records, Clock: clock{},
		Control: journal.NewControl(r.client.Dynamic, r.plan.Name),
		By:      journal.Holder(), Theseus: r.app.version,
		Note: r.view.Note,
		Notify: func(record engine.Record) {
			if record.Event == engine.StepBegan {
				evidence.Collect(ctx, actor) //nolint:errcheck // the collector tries again; an outage is the engine's to report
			}
			r.view.Record(record)
		},
	})
}

func (r *run) actor() *kube.Actor {
	return &kube.Actor{
		Typed: r.client.Typed, Dynamic: r.client.Dynamic, Mapper: r.client.Mapper, Clock: clock{},
		Migration: r.plan.Name, Measured: measured(r.plan), Note: r.view.Note,
	}
}

// measured says what the networks of a plan allow to be measured.
func measured(p *plan.Plan) kube.Measured {
	enforced := func(i cni.Installation) bool {
		return i.Capabilities.Policy != cni.PolicyNone && i.Capabilities.Policy != "" || i.PolicyAgent != nil
	}
	m := kube.Measured{Denied: map[string]bool{path.Old: enforced(p.Source), path.New: enforced(p.Target)},
		Interval: time.Duration(p.Change.ProbeIntervalMillis) * time.Millisecond}
	for _, mtu := range []int{p.Source.Capabilities.MTU, p.Target.Capabilities.MTU} {
		if mtu > 0 && (m.FullSize == 0 || mtu-headers < m.FullSize) {
			m.FullSize = mtu - headers
		}
	}
	return m
}

// collect gathers evidence once a second until stopped, and keeps it on disk.
func (r *run) collect(ctx context.Context, actor *kube.Actor, evidence *kube.Evidence) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for clock.Sleep(clock{}, ctx, time.Second) == nil {
			if evidence.Collect(ctx, actor) == nil {
				r.view.Evidence(summarise(evidence.Document()))
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

const evidenceFile = "evidence.json"

func (r *run) save(evidence *kube.Evidence) {
	if err := writeJSON(filepath.Join(r.dir, evidenceFile), evidence.Document()); err != nil {
		r.view.Note("the evidence cannot be kept: " + err.Error())
	}
}

// evidence goes on from what an earlier process kept.
func (r *run) evidence() *kube.Evidence {
	var before kube.Collected
	if err := readJSON(filepath.Join(r.dir, evidenceFile), &before); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.view.Note("earlier evidence cannot be read: " + err.Error())
	}
	return kube.NewEvidence(before)
}

func summarise(document kube.Collected) evidenceSummary {
	summary := evidenceSummary{Paths: len(document.Paths)}
	for _, result := range document.Results {
		summary.Sent += result.Sent
		if path.Denies(result.ID) { // another process may have planned the path, so the list need not hold it
			summary.Leaked += result.Answered
		} else {
			summary.Lost += result.Sent - result.Answered
		}
		for _, gap := range result.Gaps {
			summary.LongestGapMillis = max(summary.LongestGapMillis, gap.Millis)
		}
		if result.Open != nil {
			summary.LongestGapMillis = max(summary.LongestGapMillis, result.Open.Millis)
		}
	}
	return summary
}

// newView chooses how a run is shown: live on a terminal, JSON when asked for, lines otherwise.
func (a *app) newView(p *plan.Plan) view {
	if a.output == "json" {
		return &events{out: a.Out}
	}
	if isTerminal(a.Out) {
		width, _, err := term.GetSize(int(a.Out.(*os.File).Fd()))
		if err != nil || width < 20 {
			width = 80
		}
		return newLive(a.Out, p, width, os.Getenv("NO_COLOR") != "")
	}
	return &lines{out: a.Out, script: newScript(p)}
}

// clock is the real time.
type clock struct{}

func (clock) Now() time.Time { return time.Now() }

func (clock) Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// stateDir is where this machine keeps what belongs to a migration: THESEUS_STATE_DIR, else the user's
// state folder.
func stateDir(migration string) (string, error) {
	base := os.Getenv("THESEUS_STATE_DIR")
	if base == "" {
		state := os.Getenv("XDG_STATE_HOME")
		if state == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fail(exitFailed, "set THESEUS_STATE_DIR", "no folder for the local journal: %w", err)
			}
			state = filepath.Join(home, ".local", "state")
		}
		base = filepath.Join(state, "theseus")
	}
	dir := filepath.Join(base, migration)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fail(exitFailed, "set THESEUS_STATE_DIR to a folder that can be written", "no folder for the local journal: %w", err)
	}
	return dir, nil
}

// writeJSON replaces a file as a whole.
func writeJSON(file string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	temporary := file + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, file)
}

func readJSON(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
