package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/node"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/probe"
	"github.com/theseus-cni/theseus/internal/step"
)

const confDir = "etc/cni/net.d"

func gvr(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: manifest.Plural(kind)}
}

// newAgent is an agent of node-1 on loopback, with a folder as the node's root and an API in memory.
func newAgent(t *testing.T, objects ...runtime.Object) (*Agent, *api) {
	t.Helper()
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{
			gvr("NodeTask"): "NodeTaskList", gvr("ProbePlan"): "ProbePlanList", gvr("ProbeReport"): "ProbeReportList",
			corev1.SchemeGroupVersion.WithResource("nodes"): "NodeList",
		}, objects...)
	in := &api{FakeDynamicClient: client}
	client.PrependWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		w, err := client.Tracker().Watch(action.GetResource(), action.GetNamespace())
		in.watched.Store(action.GetResource().Resource, true)
		return true, w, err
	})
	return &Agent{
		Name: "node-1",
		Node: &node.Node{Name: "node-1", Root: t.TempDir(), Sys: "/proc/sys",
			Commands: node.NewCommands(2, 10*time.Second)},
		Client: client, Log: slog.New(slog.NewTextHandler(testLog{t}, nil)),
		Pod: "pod-1", Probers: Folder(t.TempDir()),
	}, in
}

// root is the folder that stands for the root of the agent's node, dir the one that it shares with the probers.
func root(a *Agent) string { return a.Node.(*node.Node).Root }
func dir(a *Agent) string  { return string(a.Probers.(Folder)) }

// api is an API in memory. It forgets what happens between a list and its watch, so a test that changes
// something must wait for the watch.
type api struct {
	*fake.FakeDynamicClient
	watched sync.Map // resources
}

func (in *api) wait(t *testing.T, resource string) {
	t.Helper()
	eventually(t, resource+" are watched", func() bool { _, is := in.watched.Load(resource); return is })
}

// testLog writes a log into the test's.
type testLog struct{ t *testing.T }

func (l testLog) Write(line []byte) (int, error) {
	l.t.Log(string(line))
	return len(line), nil
}

// start runs the agent until the test ends.
func start(t *testing.T, a *Agent) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent failed: %v", err)
		}
	})
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !holds() {
		if ctx.Err() != nil {
			t.Fatalf("%s: it never came to that", what)
		}
		_ = outage.Sleep(ctx, 20*time.Millisecond)
	}
}

func task(t *testing.T, name, of, verb string, args any) *unstructured.Unstructured {
	t.Helper()
	encoded, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	object, err := manifest.Task(name, of, verb, encoded, 0)
	if err != nil {
		t.Fatal(err)
	}
	object.SetUID(types.UID(name)) // as the API server would
	return object
}

func get(t *testing.T, a *Agent, kind, name string, into any) bool {
	t.Helper()
	object, err := a.resource(kind).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return false
	}
	if err := decode(object, into); err != nil {
		t.Fatal(err)
	}
	if report, is := into.(*v1alpha1.ProbeReport); is {
		if err := loss.Unpack(&report.Status); err != nil {
			t.Fatal(err)
		}
	}
	return true
}

func status(t *testing.T, a *Agent, name string) v1alpha1.NodeTaskStatus {
	t.Helper()
	var got v1alpha1.NodeTask
	get(t, a, "NodeTask", name, &got)
	return got.Status
}

func stage(t *testing.T, a *Agent) {
	t.Helper()
	confs := filepath.Join(root(a), confDir)
	if err := os.MkdirAll(confs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(confs, "10-new.conflist.theseus"),
		[]byte(`{"plugins":[{"type":"new"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
}

var conf = step.ConfArgs{Staged: "10-new.conflist.theseus", Active: "10-new.conflist"}

func TestTasks(t *testing.T) {
	running := task(t, "left-running", "node-1", step.VerbActivate, conf)
	if err := unstructured.SetNestedField(running.Object, "Running", "status", "phase"); err != nil {
		t.Fatal(err)
	}
	done := task(t, "done", "node-1", "no such verb", nil)
	if err := unstructured.SetNestedField(done.Object, "Done", "status", "phase"); err != nil {
		t.Fatal(err)
	}
	a, in := newAgent(t, running, done, task(t, "of-another", "node-2", step.VerbActivate, conf))
	stage(t, a)
	start(t, a)

	eventually(t, "a task that a former agent left running is done", func() bool {
		return status(t, a, "left-running").Phase == v1alpha1.TaskDone
	})
	got := status(t, a, "left-running")
	if !got.Changed || got.Message == "" || got.FinishedAt == nil {
		t.Errorf("its status: %+v", got)
	}
	if _, err := os.Stat(filepath.Join(root(a), confDir, conf.Active)); err != nil {
		t.Error(err)
	}
	in.wait(t, "nodetasks")
	if _, err := a.resource("NodeTask").Create(t.Context(), task(t, "later", "node-1", "dance", nil),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a task that came later has failed", func() bool {
		return status(t, a, "later").Phase == v1alpha1.TaskFailed
	})
	if got := status(t, a, "later"); got.Message != `unknown verb "dance"` {
		t.Errorf("its message: %q", got.Message)
	}
	if got := status(t, a, "of-another"); got.Phase != "" {
		t.Errorf("another node's task: %+v", got)
	}
	if got := status(t, a, "done"); got.FinishedAt != nil {
		t.Errorf("a task that was done was run again: %+v", got)
	}
}

// TestTaskOfAnOlderEpoch: the agent refuses what a process asks of it whose lock another one holds now. It retries the
// look at the lock while the API server is away, cold or busy.
func TestTaskOfAnOlderEpoch(t *testing.T) {
	lock := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
		"metadata": map[string]any{"name": manifest.Lease, "namespace": v1alpha1.Namespace},
		"spec":     map[string]any{"leaseTransitions": int64(4)}}}
	stale, fresh := task(t, "stale", "node-1", step.VerbActivate, conf), task(t, "young", "node-1", "dance", nil)
	for object, epoch := range map[*unstructured.Unstructured]int64{stale: 3, fresh: 4} {
		if err := unstructured.SetNestedField(object.Object, epoch, "spec", "epoch"); err != nil {
			t.Fatal(err)
		}
	}
	a, client := newAgent(t, lock, stale, fresh)
	stage(t, a)
	var looks atomic.Int32
	client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		switch looks.Add(1) {
		case 1:
			return true, nil, apierrors.NewServiceUnavailable("away")
		case 2:
			return true, nil, apierrors.NewForbidden(leases.GroupResource(), manifest.Lease,
				errors.New(`User "agent" cannot get resource "leases"`))
		case 3:
			return true, nil, fmt.Errorf("busy: %w", context.DeadlineExceeded)
		}
		return false, nil, nil
	})
	start(t, a)
	for _, name := range []string{"stale", "young"} {
		eventually(t, name+" is answered", func() bool { return status(t, a, name).Phase == v1alpha1.TaskFailed })
	}
	if got := status(t, a, "stale").Message; !strings.Contains(got,
		"created in epoch 3 of the lock, which another process holds now, in epoch 4") {
		t.Errorf("the task of an older epoch: %s", got)
	}
	if _, err := os.Stat(filepath.Join(root(a), confDir, conf.Active)); !os.IsNotExist(err) {
		t.Errorf("it was done: %v", err)
	}
	if got := status(t, a, "young").Message; got != `unknown verb "dance"` {
		t.Errorf("the task of the lock's epoch: %s", got)
	}
}

// TestTaskWithdrawn: a task that was deleted, or made again under its name, while the agent waited for the lock is not
// done, nor are those that wait behind it.
func TestTaskWithdrawn(t *testing.T) {
	a, client := newAgent(t, task(t, "1-deleted", "node-1", step.VerbActivate, conf),
		task(t, "2-deleted", "node-1", step.VerbActivate, conf),
		task(t, "3-replaced", "node-1", step.VerbActivate, conf),
		task(t, "4-stays", "node-1", "dance", nil))
	stage(t, a)
	var once sync.Once
	client.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		once.Do(func() {
			for _, name := range []string{"1-deleted", "2-deleted"} {
				if err := client.Tracker().Delete(gvr("NodeTask"), v1alpha1.Namespace, name); err != nil {
					t.Error(err)
				}
			}
		})
		return false, nil, nil
	})
	client.PrependReactor("patch", "nodetasks", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if name := action.(clienttesting.PatchAction).GetName(); name == "3-replaced" {
			return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "NodeTask"}, name, nil)
		}
		return false, nil, nil
	})
	start(t, a)
	eventually(t, "the last task is answered", func() bool { return status(t, a, "4-stays").Phase != "" })
	if _, err := os.Stat(filepath.Join(root(a), confDir, conf.Active)); !os.IsNotExist(err) {
		t.Errorf("a task that was withdrawn was done: %v", err)
	}
}

// TestAnswerOutlastsAnOutage: the answer of a task is published when the API takes it at last.
func TestAnswerOutlastsAnOutage(t *testing.T) {
	a, client := newAgent(t, task(t, "activate", "node-1", step.VerbActivate, conf))
	stage(t, a)
	var refused atomic.Int32
	client.PrependReactor("patch", "nodetasks", func(clienttesting.Action) (bool, runtime.Object, error) {
		if refused.Add(1) <= 3 {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	start(t, a)
	eventually(t, "the answer is published", func() bool { return status(t, a, "activate").Phase == v1alpha1.TaskDone })
	if got := status(t, a, "activate"); !got.Changed {
		t.Error("the task was run again instead of its answer being published")
	}
}

func TestMeasure(t *testing.T) {
	answering, err := json.Marshal(v1alpha1.ProbeReportStatus{Generation: 1, Seq: 41})
	if err != nil {
		t.Fatal(err)
	}
	former := &unstructured.Unstructured{}
	if err := former.UnmarshalJSON([]byte(`{"apiVersion":"theseus.dev/v1alpha1","kind":"ProbeReport",
		"metadata":{"name":"node-1","namespace":"theseus-system"},"status":` + string(answering) + `}`)); err != nil {
		t.Fatal(err)
	}
	a, client := newAgent(t, former)
	ports := probe.Ports{UDP: freeUDP(t)}
	startProber(t, a, ports)
	var refused atomic.Int32
	client.PrependReactor("patch", "probereports", func(clienttesting.Action) (bool, runtime.Object, error) {
		if refused.Add(1) <= 2 {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	start(t, a)
	host := toHost(ports)
	old := from("node-1/old>node-2/old/udp", "node-1", "old")
	object := probePlan(t, 3, host, old, from("other", "node-2", "old"))
	client.wait(t, "probeplans")
	if _, err := a.resource("ProbePlan").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	var report v1alpha1.ProbeReport
	eventually(t, "the host's path is answered, and the pod's generation is missing", func() bool {
		return get(t, a, "ProbeReport", "node-1", &report) && len(report.Status.Paths) == 1 &&
			report.Status.Paths[0].Answered > 0 && report.Status.Generation == 0
	})
	if report.Status.Seq <= 41 {
		t.Errorf("seq %d does not go on from the former agent's 41", report.Status.Seq)
	}
	asked, err := probe.ReadPaths(probe.PathsPath(dir(a), "old"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(probe.PathsFile{Generation: 3, Paths: []v1alpha1.Path{old}}, asked); diff != "" {
		t.Errorf("what the pod is asked (-want +got):\n%s", diff)
	}
	if err := probe.WriteResults(probe.ResultsPath(dir(a), "old"),
		probe.ResultsFile{Generation: 3, Paths: []v1alpha1.PathResult{{ID: old.ID, Sent: 5}}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod's results are in the report, at the plan's generation", func() bool {
		return get(t, a, "ProbeReport", "node-1", &report) && len(report.Status.Paths) == 2 &&
			report.Status.Generation == 3
	})
}

// toHost is the path of node-1's host to itself.
func toHost(ports probe.Ports) v1alpha1.Path {
	host := from("node-1/host>node-1/host/udp", "node-1", "host")
	host.Protocol, host.Size, host.IntervalMillis = v1alpha1.UDP, 64, 10
	host.Target.Address = address(ports.UDP)
	return host
}

func probePlan(t *testing.T, generation int64, paths ...v1alpha1.Path) *unstructured.Unstructured {
	t.Helper()
	encoded, err := json.Marshal(map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "ProbePlan",
		"metadata": map[string]any{"name": "node-1", "namespace": v1alpha1.Namespace},
		"spec":     v1alpha1.ProbePlanSpec{Generation: generation, Paths: paths}})
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(encoded); err != nil {
		t.Fatal(err)
	}
	return object
}

// startProber runs the prober of the agent's host, as a pod of its own does, until the test ends.
func startProber(t *testing.T, a *Agent, ports probe.Ports) {
	t.Helper()
	if err := probe.MakeFolders(dir(a), networks()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- probe.RunPod(ctx, probe.Pod{Dir: dir(a), Network: "host", Address: "127.0.0.1",
			UID: "prober-1", Ports: ports})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the prober failed: %v", err)
		}
	})
}

// TestAgentThatEnds: the end of an agent takes no probe with it, and the next agent's report goes on with the same
// counts and says that it is another.
func TestAgentThatEnds(t *testing.T) {
	ports := probe.Ports{UDP: freeUDP(t)}
	a, client := newAgent(t, probePlan(t, 1, toHost(ports)))
	startProber(t, a, ports)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	var report v1alpha1.ProbeReport
	reported := func() bool {
		report = v1alpha1.ProbeReport{} // decoding would fill the slices of the one before
		return get(t, a, "ProbeReport", "node-1", &report) && len(report.Status.Paths) == 1 &&
			report.Status.Generation == 1
	}
	eventually(t, "the host's path is answered", func() bool {
		return reported() && report.Status.Paths[0].Answered > 10
	})
	end()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	before := report.Status

	eventually(t, "probing goes on without the agent", func() bool {
		file, err := probe.ReadResults(probe.ResultsPath(dir(a), "host"))
		return err == nil && len(file.Paths) == 1 && file.Paths[0].Answered > before.Paths[0].Answered+100
	})
	next := &Agent{Name: a.Name, Node: a.Node, Client: client, Log: a.Log, Pod: "pod-2", Probers: a.Probers}
	start(t, next)
	eventually(t, "the next agent reports", func() bool { return reported() && report.Status.Seq > before.Seq })
	after := report.Status.Paths[0]
	if !after.Since.Equal(before.Paths[0].Since) || after.Sent < before.Paths[0].Answered+100 {
		t.Errorf("counting began again: %+v, before: %+v", after, before.Paths[0])
	}
	if after.Answered != after.Sent || len(after.Gaps) > 0 || after.Open != nil {
		t.Errorf("probes were lost with the agent: %+v", after)
	}
	var pods []string
	for _, part := range append(before.Parts, report.Status.Parts...) {
		pods = append(pods, part.Name+" "+part.Pod)
	}
	if diff := cmp.Diff([]string{"host prober-1", "agent pod-1", "host prober-1", "agent pod-2"}, pods); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

// TestAlive: the agent takes connections while it runs, and waits for the address where another has it.
func TestAlive(t *testing.T) {
	former, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a, _ := newAgent(t)
	a.Alive = former.Addr().String()
	start(t, a)
	if err := former.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the agent takes connections", func() bool {
		conn, err := net.Dial("tcp", a.Alive)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}
