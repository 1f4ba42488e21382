package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/nodepool"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
)

// headers are what a probe's payload leaves of the MTU to IPv4 and UDP, in bytes.
const headers = 28

// run is one execution of a plan by this process.
type run struct {
	app    *app
	client *kube.Client
	plan   *plan.Plan
	view   view
	// begins: the cluster does not have the plan yet.
	begins bool
	// desire is what is asked of it when this process has the lock.
	desire v1alpha1.Desire
	// fresh counts losses only from now on: a person has seen the earlier ones.
	fresh bool
	// head is that of the journal which the run must find; "" where any will do.
	head string
	dir  string
	// unkept is why the evidence cannot be kept on this machine, once that was said.
	unkept string
	flight flight
}

// flight is what a run is doing, in words, for whoever interrupts it.
type flight struct {
	lock   sync.Mutex
	script *script
	what   string
}

func (f *flight) record(r engine.Record) {
	f.lock.Lock()
	defer f.lock.Unlock()
	switch title := f.script.place(r.Step); r.Event {
	case engine.Intended:
		f.what = title + ": " + f.script.action(r)
	case engine.GateAsked:
		f.what = title + ": the gate measures"
	default:
		f.what = ""
	}
}

func (f *flight) String() string {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.what == "" {
		return "between two actions"
	}
	return "in the middle of " + f.what
}

// execute carries a plan out from where its journal stands, and keeps everything that a report needs.
func (r *run) execute(ctx context.Context) (engine.Outcome, error) {
	dir, err := makeStateDir(r.plan.Name)
	if err != nil {
		return engine.Outcome{}, err
	}
	r.dir, r.flight.script = dir, newScript(r.plan)
	lease, ctx, err := journal.Acquire(ctx, r.app.leases(r.client), journal.Holder())
	if err != nil {
		return engine.Outcome{}, err
	}
	defer lease.Release(context.WithoutCancel(ctx)) //nolint:errcheck // a lock that is not given back runs out by itself
	if r.client, err = r.client.Fenced(lease.Check); err != nil {
		return engine.Outcome{}, err
	}
	if err := hooksRun(r.plan); err != nil {
		return engine.Outcome{}, err
	}
	if err := r.app.patiently(ctx, begin, r.enter); err != nil {
		return engine.Outcome{}, err
	}
	records := journal.NewMirrored(journal.NewCluster(r.client.Dynamic, r.plan.Name), filepath.Join(dir, journalFile), r.plan.Hash, func(err error) {
		r.view.Say(fmt.Sprintf("warning: the local copy of the journal: %v", err))
	})
	defer records.Close()

	var past []engine.Record
	err = r.app.patiently(ctx, begin, func(ctx context.Context) (err error) {
		past, err = records.Records(ctx)
		return err
	})
	if err != nil {
		return engine.Outcome{}, err
	}
	if err := mustBeHead(r.plan.Name, past, r.head); err != nil {
		return engine.Outcome{}, err
	}
	if n := len(past); n > 0 {
		if err := r.app.patiently(ctx, begin, func(ctx context.Context) error { return lease.Exceed(ctx, past[n-1].Epoch) }); err != nil {
			return engine.Outcome{}, err
		}
	}
	r.view.Past(past)
	r.flight.script.learn(past)
	actor := r.actor(lease.Epoch())
	r.keepGraph(ctx, actor)
	gate := &kube.Gate{Actor: actor, Since: []v1alpha1.ProbeReport{}}
	if r.fresh {
		gate.Since = nil
	}
	evidence := r.evidence()
	deps := engine.Deps{Actor: r.withPool(actor), Gate: gate}
	if r.plan.OnNodes() {
		defer r.collect(ctx, actor, evidence)()
	}
	if r.plan.Mirror != nil {
		if deps.Actor, deps.Gate, err = r.mirrored(ctx, deps, records); err != nil {
			return engine.Outcome{}, err
		}
	}
	if r.plan.Rollout != nil && r.plan.Rollout.Origin != nil {
		defer r.app.followOrigin(ctx, r.plan.Rollout.Origin, r.view.Say)()
	}
	if r.plan.Mirror == nil { // with a mirror, the original is idle while it is changed
		versions := &kube.Versions{Client: r.client, Clock: clock{}}
		deps.Hindrance = versions.Changed
	}
	stopping := &stoppable{stop: make(chan struct{}), say: r.view.Say, flight: r.flight.String}
	defer r.app.signals.during(stopping)()
	return engine.Run(ctx, r.plan, engine.Deps{
		Actor: lease.Guard(deps.Actor), Gate: deps.Gate, Journal: lease.GuardJournal(records), Clock: clock{},
		Control: journal.NewControl(r.client.Dynamic, r.plan.Name), Hindrance: deps.Hindrance, Stop: stopping.stop, Together: together,
		Epoch: lease.Epoch(), By: journal.Holder(), Theseus: r.app.version,
		Note: r.view.Note,
		Notify: func(record engine.Record) {
			r.flight.record(record)
			if record.Event == engine.StepBegan && r.plan.OnNodes() {
				evidence.Collect(ctx, actor) //nolint:errcheck // the collector tries again; an outage is the engine's to report
			}
			r.view.Record(record)
		},
	})
}

// enter writes the plan to the cluster, unless the cluster has it, and then what is asked of the run. It is idempotent.
func (r *run) enter(ctx context.Context) error {
	if r.begins {
		if err := journal.Create(ctx, r.client.Dynamic, r.plan); err != nil {
			return err
		}
	} else if err := journal.Settle(ctx, r.client.Dynamic); err != nil {
		r.view.Say(fmt.Sprintf("warning: pages of plans that nobody has: %v", err))
	}
	return journal.SetDesire(ctx, r.client.Dynamic, r.plan.Name, r.desire)
}

// mirrored are the hands and the gate of a plan of the strategy mirror; own are those for the original's nodes.
func (r *run) mirrored(ctx context.Context, own engine.Deps, records engine.Journal) (engine.Actor, engine.Gate, error) {
	pair, err := r.app.reach(ctx, r.plan)
	if err != nil {
		return nil, nil, err
	}
	return pair.hands(own, records, r.dir, r.view.Note)
}

// sideBySide is how many actions that do not need each other are done at once.
const sideBySide = 8

func together(calls []func()) {
	slots := make(chan struct{}, sideBySide)
	var running sync.WaitGroup
	for _, call := range calls {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			call()
		})
	}
	running.Wait()
}

func (r *run) actor(epoch int64) *kube.Actor {
	return &kube.Actor{
		Typed: r.client.Typed, Dynamic: r.client.Dynamic, Mapper: r.client.Mapper, Clock: clock{},
		Migration: r.plan.Name, Epoch: epoch, Measured: measured(r.plan), Note: r.view.Note,
	}
}

// withPool lets the nodes of a plan come and go.
func (r *run) withPool(actor *kube.Actor) engine.Actor {
	if r.plan.Surge == nil {
		return actor
	}
	return &nodepool.Actor{Actor: actor, Typed: actor.Typed, Clock: actor.Clock, Slots: r.plan.Surge.Slots(), Known: r.plan.Cluster.Nodes,
		Migration: r.plan.Name, Note: actor.Note}
}

// hooksRun demands that the commands of a plan can be run on this machine.
func hooksRun(p *plan.Plan) error {
	if p.Surge == nil {
		return nil
	}
	if err := nodepool.Runnable(p.Surge.AddHook, p.Surge.RemoveHook); err != nil {
		return fail(exitFailed, "install it here, or go on where it is; in the plan --add-hook and --remove-hook name it", "%w", err)
	}
	return nil
}

// nodesOutside says whether a network treats the addresses of other nodes as it treats those beyond the cluster. Cilium knows nodes
// and handles them in another way.
func nodesOutside(i cni.Installation) bool {
	return slices.Contains([]string{"bridge", "calico", "flannel", "weave"}, i.CNI)
}

// measured says what the networks of a plan allow to be measured.
func measured(p *plan.Plan) kube.Measured {
	enforced := func(i cni.Installation) bool {
		return i.Capabilities.Policy != cni.PolicyNone && i.Capabilities.Policy != "" || i.PolicyAgent != nil
	}
	m := kube.Measured{Denied: map[string]bool{path.Old: enforced(p.Source), path.New: enforced(p.Target)},
		Interval:     time.Duration(p.Change.ProbeIntervalMillis) * time.Millisecond,
		NodesOutside: map[string]bool{path.Old: nodesOutside(p.Source), path.New: nodesOutside(p.Target)}}
	if p.Change.OutsideRate > 0 {
		m.OutsideEvery = time.Second / time.Duration(p.Change.OutsideRate)
	}
	for _, text := range p.Change.Outside {
		if responder, err := path.ParseResponder(text); err == nil { // else the plan would not have been made
			m.Outside = append(m.Outside, responder)
		}
	}
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
	why := ""
	if err := writeJSON(filepath.Join(r.dir, evidenceFile), evidence.Document()); err != nil {
		why = err.Error()
	}
	if why != r.unkept && why != "" {
		r.view.Say("warning: the evidence for the report cannot be kept on this machine: " + why)
	}
	r.unkept = why
}

// evidence goes on from what an earlier process kept.
func (r *run) evidence() *kube.Evidence {
	var before kube.Collected
	if err := readJSON(filepath.Join(r.dir, evidenceFile), &before); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.view.Say("warning: earlier evidence cannot be read: " + err.Error())
	}
	return kube.NewEvidence(before)
}

func summarise(document kube.Collected) evidenceSummary {
	seen := report.Sum(document.Paths, reportsOf(document))
	return evidenceSummary{Paths: len(document.Paths), Sent: seen.Sent, Lost: seen.Lost, Leaked: seen.Leaked, LongestGapMillis: seen.LongestGapMillis}
}

// newView chooses how a run is shown: live on a terminal, JSON when asked for, lines otherwise.
func (a *app) newView(p *plan.Plan) view {
	if a.output == "json" {
		return &events{out: a.Out}
	}
	if file, ok := fileOf(a.Out); ok && isTerminal(file) {
		return newLive(file, p, func() (width, height int) { return screen(file) }, os.Getenv("NO_COLOR") != "")
	}
	return &lines{out: a.Out, script: newScript(p), begun: time.Now()}
}

// screen is the size of a terminal now; one that does not tell, or is too small for words, has 80 by 24.
func screen(terminal *os.File) (width, height int) {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width < 20 || height < 5 {
		return 80, 24
	}
	return width, height
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
	return filepath.Join(base, migration), nil
}

// room is what a disk must still take before a run begins, in bytes: the journal and the evidence of a small one.
const room = 1 << 20

// makeStateDir makes the folder, and makes sure that it can be written to.
func makeStateDir(migration string) (string, error) {
	dir, err := stateDir(migration)
	if err != nil {
		return "", err
	}
	trial := filepath.Join(dir, ".room")
	if err = os.MkdirAll(dir, 0o700); err == nil {
		err = os.WriteFile(trial, make([]byte, room), 0o600)
		err = errors.Join(err, os.Remove(trial))
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "", fail(exitFailed, "free some space, or set THESEUS_STATE_DIR to a folder on another disk", "no room for the local journal: %w", err)
	case err != nil:
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
	return outfile.Write(file, data)
}

func readJSON(file string, into any) error {
	data, err := infile.ReadUpTo(file, document.MaxInput)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}
