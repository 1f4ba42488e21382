package follow

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/clitest"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/interrupt"
	"github.com/theseus-cni/theseus/internal/cli/view"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

func resource(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: manifest.Plural(kind)}
}

// holding is a cluster that holds a plan; the controller has it.
func holding(t *testing.T, p *plan.Plan) *kube.Client {
	t.Helper()
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	kinds := map[schema.GroupVersionResource]string{}
	for _, kind := range []string{"Migration", "PlanPage", "JournalPage", "Approval"} {
		kinds[resource(kind)] = kind + "List"
	}
	client, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"}, "test") // what is asked otherwise is not there
	if err != nil {
		t.Fatal(err)
	}
	client.Typed, client.Dynamic = fake.NewClientset(),
		dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	if err := journal.CreateInCluster(t.Context(), client.Dynamic, p); err != nil {
		t.Fatal(err)
	}
	return client
}

// observe writes a condition, as the controller does.
func observe(t *testing.T, client *kube.Client, name string, c metav1.Condition) {
	t.Helper()
	c.LastTransitionTime = metav1.Now()
	data, err := json.Marshal(map[string]any{"status": map[string]any{"observed": map[string]any{"attempt": 0},
		"conditions": []metav1.Condition{c}}})
	if err == nil {
		_, err = client.Dynamic.Resource(resource("Migration")).Namespace(v1alpha1.Namespace).Patch(t.Context(), name,
			types.MergePatchType, data, metav1.PatchOptions{})
	}
	if err != nil {
		t.Error(err)
	}
}

// safe is a buffer for several goroutines.
type safe struct {
	lock sync.Mutex
	text bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.text.Write(p)
}

func (s *safe) String() string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.text.String()
}

func watcher(out *safe, output string) *app.App {
	return &app.App{Streams: app.Streams{In: &bytes.Buffer{}, Out: out, Err: out},
		Signals: &interrupt.Signals{Err: out}, Output: output}
}

// TestEnds: a watched migration ends with the exit codes of apply, and says why.
func TestEnds(t *testing.T) {
	p := clitest.Plan(t, nil)
	finished := func(result, why string) engine.Record {
		return engine.Record{Event: engine.Finished, Result: result, Error: why}
	}
	degraded := func(reason, message string) *metav1.Condition {
		return &metav1.Condition{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue,
			Reason: reason, Message: message}
	}
	for name, test := range map[string]struct {
		records   []engine.Record
		condition *metav1.Condition
		code      int
		says      []string
	}{
		"done": {records: clitest.Records(t, p, finished(engine.ResultDone, "")), code: exit.Done},
		"rolled back": {records: clitest.Records(t, p, engine.Record{Event: engine.RollingBack,
			Result: engine.ResultFailed, Error: "gate failed"}, finished(engine.ResultRolledBack, "")), code: 4,
			says: []string{"error: rolled-back: gate failed\nhint: fix the cause"}},
		"rollback wanted": {records: clitest.Records(t, p, engine.Record{Event: engine.RollingBack,
			Result: engine.ResultAsked, Error: "as asked"}, finished(engine.ResultRolledBack, "")), code: exit.Stopped,
			says: []string{"error: stopped: as asked"}},
		"needs a person": {records: clitest.Records(t, p, finished(engine.ResultNeedsPerson, "it broke")),
			condition: degraded(v1alpha1.ReasonNeedsPerson, "do this"), code: exit.NeedsPerson,
			says: []string{"error: needs-person: it broke\nhint: do this\n"}},
		"findings": {condition: degraded(v1alpha1.ReasonBlocked, "fix that"), code: exit.Blocked,
			says: []string{"(Blocked): fix that\nhint: nothing was changed"}},
		"stale": {condition: degraded(v1alpha1.ReasonStalePlan, "a node has joined"), code: exit.Failed,
			says: []string{"(StalePlan): a node has joined"}},
		"format": {condition: degraded(v1alpha1.ReasonUnknownFormat, "v0.3.0 wrote it"), code: exit.NeedsPerson,
			says: []string{"(UnknownFormat): v0.3.0 wrote it"}},
	} {
		t.Run(name, func(t *testing.T) {
			client, out := holding(t, p), &safe{}
			if len(test.records) > 0 {
				if err := journal.NewCluster(client.Dynamic, p.Name).Append(t.Context(), test.records...); err != nil {
					t.Fatal(err)
				}
			}
			if test.condition != nil { // the controller finds it while the command watches
				time.AfterFunc(1500*time.Millisecond, func() { observe(t, client, p.Name, *test.condition) })
			}
			code := exit.Code(out, Run(t.Context(), watcher(out, "json"), client, p.Name, 0))
			if code != test.code {
				t.Errorf("exit %d, want %d:\n%s", code, test.code, out)
			}
			for _, want := range test.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%q is not in:\n%s", want, out)
				}
			}
		})
	}
}

// TestGoesOn: an end before the run was asked for is none. Records and conditions are shown as they come, and missing
// rights are waited for.
func TestGoesOn(t *testing.T) {
	p := clitest.Plan(t, nil)
	client, out := holding(t, p), &safe{}
	records := clitest.Records(t, p, engine.Record{Event: engine.StepBegan, Step: p.Steps[0].ID},
		engine.Record{Event: engine.Finished, Result: engine.ResultNeedsPerson, Error: "it broke"},
		engine.Record{Event: engine.Resumed, By: "controller@node-1"},
		engine.Record{Event: engine.Finished, Result: engine.ResultDone})
	cluster := journal.NewCluster(client.Dynamic, p.Name)
	if err := cluster.Append(t.Context(), records[:3]...); err != nil {
		t.Fatal(err)
	}
	observe(t, client, p.Name, metav1.Condition{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonRightsMissing, Message: "theseus rights operate"})
	ended := make(chan error)
	go func() { ended <- Run(t.Context(), watcher(out, ""), client, p.Name, 3) }()
	waitFor(t, out, "Degraded=True (RightsMissing): theseus rights operate")
	if err := cluster.Append(t.Context(), records[3:4]...); err != nil {
		t.Fatal(err)
	}
	waitFor(t, out, "resumed by controller@node-1")
	if err := cluster.Append(t.Context(), records[4:]...); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, want := range []string{"watching held: ", "finished: done"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
}

// TestInterrupt ends the watching, not the migration.
func TestInterrupt(t *testing.T) {
	p := clitest.Plan(t, nil)
	client, out := holding(t, p), &safe{}
	a := watcher(out, "")
	ctx, done := a.Signals.Catch(t.Context())
	defer done()
	ended := make(chan error)
	go func() { ended <- Run(ctx, a, client, p.Name, 0) }()
	waitFor(t, out, "watching held: ")
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	code := exit.Code(out, <-ended)
	if want := "error: stopped watching held; the migration itself was not interrupted\nhint: `theseus watch held` " +
		"shows it again; "; code != exit.Interrupted || !strings.Contains(out.String(), want) {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if ctx.Err() != nil {
		t.Error("the command's context was ended")
	}
	if migration, err := journal.Get(context.WithoutCancel(ctx), client.Dynamic, p.Name); err != nil ||
		!migration.Spec.InCluster || migration.Spec.Desire != v1alpha1.DesireRun {
		t.Errorf("%+v, %v", migration, err)
	}
}

// TestLastResults: at the end, a watch waits for the process that ran the migration to release the lock, but not for
// the next run.
func TestLastResults(t *testing.T) {
	t.Setenv("THESEUS_STATE_DIR", t.TempDir())
	p := clitest.Plan(t, nil)
	records := clitest.Records(t, p, engine.Record{Event: engine.Finished, Result: engine.ResultDone})
	end := records[len(records)-1].At
	for name, test := range map[string]struct {
		since   time.Time // when the holder took the lock
		held    time.Duration
		died    bool // the holder
		written bool
		within  time.Duration
		says    bool
	}{
		"released":      {end.Add(-time.Minute), 0, false, true, 0, false},
		"released soon": {end.Add(-time.Minute), 5 * time.Second, false, true, 6 * time.Second, true},
		"never":         {end.Add(-time.Minute), time.Hour, false, false, writtenWithin, true},
		"it died":       {end.Add(-time.Minute), time.Hour, true, false, 16 * time.Second, true},
		"the next run":  {end.Add(time.Minute), time.Hour, false, true, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, out, begun := holding(t, p), &safe{}, time.Now()
				typed := fake.NewClientset()
				typed.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					lease := &coordinationv1.Lease{}
					if time.Since(begun) < test.held {
						lease.Spec.HolderIdentity, lease.Spec.AcquireTime = new("ada@bastion"),
							&metav1.MicroTime{Time: test.since}
						lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
						if test.died {
							lease.Spec.RenewTime.Time = begun
						}
					}
					return true, lease, nil
				})
				client.Typed = typed
				if err := journal.NewCluster(client.Dynamic, p.Name).Append(t.Context(), records...); err != nil {
					t.Fatal(err)
				}
				f := &follower{a: watcher(out, ""), client: client, plan: p,
					view: view.Watching(watcher(out, ""), p, end), tail: journal.NewTail(client.Dynamic, p.Name)}
				if _, err := f.tail.Next(t.Context()); err != nil {
					t.Fatal(err)
				}
				if f.evidence(t.Context()); !f.looked.IsZero() {
					t.Error("reports are read after the end")
				}
				written, says := f.written(t.Context()),
					strings.Contains(out.String(), "waiting for its last results: ada@bastion ")
				if took := time.Since(begun); written != test.written || took > test.within || says != test.says {
					t.Errorf("written: %v after %s, said: %s", written, took, out)
				}
			})
		})
	}
}

// TestDeadHolder: a process that ended without releasing the lock is not said to run the migration.
func TestDeadHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := clitest.Plan(t, nil)
		client, out := holding(t, p), &safe{}
		if _, err := run.Leases(client).Create(t.Context(), clustertest.DeadLease(),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		f := &follower{a: watcher(out, ""), client: client, plan: p, migration: &v1alpha1.Migration{},
			view: view.Watching(watcher(out, ""), p, time.Now()), tail: journal.NewTail(client.Dynamic, p.Name)}
		for range 20 {
			if err := f.lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		silent := strings.Index(out.String(), "bob@gone/1 has not renewed its lock ")
		if none := strings.Index(out.String(), "no process runs it: "); silent < 0 || none < silent ||
			strings.Contains(out.String(), "is running") {
			t.Error(out.String())
		}
	})
}

func waitFor(t *testing.T, out *safe, want string) {
	t.Helper()
	for begun := time.Now(); !strings.Contains(out.String(), want); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("%q does not come:\n%s", want, out)
		}
	}
}
