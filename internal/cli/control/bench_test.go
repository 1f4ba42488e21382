package control

import (
	"bytes"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/approval"
	"github.com/theseus-cni/theseus/internal/cli/asking"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/statedir"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// What status and resume may take of a run of 5,000 nodes with a full journal, in seconds of CPU time.
const (
	mostStatus = 1
	mostFirst  = 10 // the first status on a machine, which proves the plan
	mostResume = 10 // until the run goes on
)

// planFor is a change of the data plane of so many nodes.
func planFor(t testing.TB, nodes int) *plan.Plan {
	t.Helper()
	snapshot := cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml"))
	like, pods, facts := snapshot.Nodes[0], snapshot.Pods, snapshot.Facts
	snapshot.Nodes, snapshot.Pods, snapshot.Facts = nil, pods[:0:0], nil
	for i := range nodes {
		node := *like.DeepCopy()
		node.Name = fmt.Sprintf("node-%d", i+1)
		snapshot.Nodes = append(snapshot.Nodes, node)
		if len(facts) > 0 {
			one := facts[0]
			one.Node = node.Name
			snapshot.Facts = append(snapshot.Facts, one)
		}
	}
	p, err := plan.Make(snapshot, v1alpha1.ChangeSpec{Dataplane: "nftables", AgentImage: "theseus.dev/agent:dev"},
		drivers.All(), nil, plan.Options{Version: "v0.0.0-test", Name: "held",
			Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// nearlyDone are the records of a run of which only the last step is not done.
func nearlyDone(p *plan.Plan) (records []engine.Record) {
	for i, s := range p.Steps {
		records = append(records, engine.Record{Event: engine.StepBegan, Step: s.ID})
		for _, a := range s.Actions {
			records = append(records, engine.Record{Event: engine.Intended, Step: s.ID, Action: a.ID},
				engine.Record{Event: engine.Acted, Step: s.ID, Action: a.ID, Result: engine.ResultDone})
		}
		if i == len(p.Steps)-1 {
			break
		}
		if s.Gate != nil {
			records = append(records, engine.Record{Event: engine.GateAsked, Step: s.ID},
				engine.Record{Event: engine.GateAnswer, Step: s.ID, Verdict: &engine.Verdict{Pass: true,
					Reason: "no probe was lost", Paths: 54 * len(p.Cluster.Nodes), Sent: 9000}})
		}
		records = append(records, engine.Record{Event: engine.StepDone, Step: s.ID})
	}
	return records
}

// held is a migration in the cluster with a full journal, of which this machine has a copy. The cluster is a fake in
// this process, whose time counts too.
type held struct {
	*kube.Client
	app     *app.App
	name    string
	journal string // the copy
	steps   int
	records int
}

func newHeld(b *testing.B, nodes int) held {
	b.Helper()
	b.Setenv("THESEUS_STATE_DIR", b.TempDir())
	p := planFor(b, nodes)
	records := clitest.Records(b, p, nearlyDone(p)...)
	h := held{Client: controlled(b, p, records...), app: quietApp(&bytes.Buffer{}, ""), name: p.Name,
		steps: len(p.Steps), records: len(records)}
	told(b, p)
	dir, err := statedir.Of(p.Name)
	if err != nil {
		b.Fatal(err)
	}
	h.journal = filepath.Join(dir, run.JournalFile)
	copied, err := journal.OpenFile(h.journal)
	if err == nil {
		err = copied.Append(b.Context(), records...)
	}
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// took is how much CPU time something takes, in seconds.
func took(b *testing.B, do func() error) float64 {
	b.Helper()
	begun := cpu(b)
	if err := do(); err != nil {
		b.Fatal(err)
	}
	return cpu(b) - begun
}

// demand reports a time, and that it is too long.
func (h held) demand(b *testing.B, unit string, seconds, most float64) {
	b.Helper()
	b.ReportMetric(float64(h.steps), "steps")
	b.ReportMetric(float64(h.records), "records")
	if b.ReportMetric(seconds, unit); seconds > most {
		b.Errorf("%s: %.1f s of CPU time, of at most %.0f s", unit, seconds, most)
	}
}

// cpu is the time that this process had on all cores.
func cpu(b *testing.B) float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func BenchmarkStatus(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			h := newHeld(b, nodes)
			show := func() error { return status(b.Context(), h.app, h.Client, h.name) }
			first, again := took(b, show), 0.0
			for b.Loop() {
				again = took(b, show)
			}
			h.demand(b, "first-cpu-s", first, mostFirst)
			h.demand(b, "status-cpu-s", again, mostStatus)
		})
	}
}

// BenchmarkResume does what theseus resume does before the run goes on: the command proves the plan and the journal,
// then, under the lock, the run reads the journal again, and the engine proves what the run has read.
func BenchmarkResume(b *testing.B) {
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprint(nodes), func(b *testing.B) {
			h := newHeld(b, nodes)
			seconds := 0.0
			for b.Loop() {
				seconds = took(b, func() error { return h.begin(b) })
			}
			h.demand(b, "resume-cpu-s", seconds, mostResume)
		})
	}
}

func (h held) begin(b *testing.B) error {
	ctx := b.Context()
	p, _, records, err := asking.Load(ctx, h.app, h.Client, h.name)
	if err == nil {
		err = asking.MayTakeOver(p, records, v1alpha1.DesireRun)
	}
	if err == nil {
		_, err = engine.Replay(records)
	}
	if err == nil {
		_, err = approval.Approve(ctx, h.app, h.Client, p, records, &approval.Flags{})
	}
	if err != nil {
		return err
	}
	copied := journal.NewMirrored(journal.NewCluster(h.Dynamic, h.name), h.journal, p.Hash, nil)
	defer copied.Close()
	if records, err = copied.Records(ctx); err != nil { // the run, which hands them on to the engine
		return err
	}
	if err = engine.Validate(p); err == nil {
		_, err = engine.Admit(p, records)
	}
	return err
}
