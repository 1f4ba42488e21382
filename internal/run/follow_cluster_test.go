package run

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// The cluster of TestFollowAPIServer.
const (
	followedNodes = 40
	followedPaths = 54 // of a node, as in the lab while two networks are joined
)

// TestFollowAPIServer: what gates and the view of a run read of a real API server, by lists and by a watch, and that
// who may look may watch.
func TestFollowAPIServer(t *testing.T) {
	program := clustertest.Program(t, "a watch of reports in a real API server")
	config := clustertest.ControlPlane(t, program, clustertest.Options{Users: []string{"looks"}})
	admin, err := kube.New(config, "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := Prepare(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	roles, err := kube.Roles(kube.Look, "", nil, []kube.Subject{{Kind: rbacv1.UserKind, Name: "looks"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range roles {
		if _, err := NewActor(admin).Do(t.Context(), step.Action{ID: "r", Do: step.Apply{Object: &roles[i]}},
			nil); err != nil {
			t.Fatal(err)
		}
	}
	nodes := reporters{t: t, client: admin, nodes: followedNodes, as: followedNodes}
	nodes.each(func(node string) error { return nodes.begin(node) })

	for _, test := range []struct {
		name                   string
		follows, packed, short bool
		as                     int
	}{{"lists", false, false, false, 40}, {"follows", true, false, false, 40},
		{"follows packed", true, true, false, 40}, {"follows short", true, true, true, 40},
		{"follows short, as 100 nodes", true, true, true, 100},
		{"follows short, as 500 nodes", true, true, true, 500}} {
		t.Run(test.name, func(t *testing.T) {
			nodes.packed, nodes.short, nodes.as = test.packed, nil, test.as
			if test.short {
				nodes.short = map[string]v1alpha1.ProbeReportStatus{}
			}
			measureReading(t, config, nodes, test.follows)
		})
	}
	nodes.short, nodes.as = map[string]v1alpha1.ProbeReportStatus{}, followedNodes
	t.Run("writes, short", func(t *testing.T) { measureWriting(t, nodes) })
	t.Run("short, of another version", func(t *testing.T) { refuseStale(t, nodes) })
	nodes.short = nil
	for _, lossy := range []int{0, 5} {
		for _, packed := range []bool{false, true} {
			nodes.packed, nodes.lossy = packed, lossy
			t.Run(fmt.Sprintf("writes, packed %v, %d lossy paths", packed, lossy), func(t *testing.T) {
				measureWriting(t, nodes)
			})
		}
	}
}

// refuseStale: an agent's short report is not written if somebody has written to its report since the agent did.
func refuseStale(t *testing.T, nodes reporters) {
	reports := nodes.client.Dynamic.Resource(nodes.resource("ProbeReport")).Namespace(v1alpha1.Namespace)
	write := func(text, version string) (*unstructured.Unstructured, error) {
		patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"managedFields":[{}],"annotations":{%q:%q}}}`, version,
			v1alpha1.AnnotationShort, text)
		return reports.Patch(t.Context(), "node-0000", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
	before, err := reports.Get(t.Context(), "node-0000", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := write("a", before.GetResourceVersion())
	if err != nil || after.GetGeneration() != before.GetGeneration() {
		t.Fatalf("generation %d, then %d: %v", before.GetGeneration(), after.GetGeneration(), err)
	}
	if _, err := write("b", before.GetResourceVersion()); !apierrors.IsConflict(err) {
		t.Errorf("%v", err)
	}
	patch := []byte(`{"status":{"seq":1}}`)
	if after, err = reports.Patch(t.Context(), "node-0000", types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil || after.GetGeneration() == before.GetGeneration() {
		t.Errorf("the status changed in generation %d: %v", after.GetGeneration(), err)
	}
}

// measureWriting writes 200 reports, and with THESEUS_FULL=1 1,000, one after another.
func measureWriting(t *testing.T, nodes reporters) {
	writes := 200
	if os.Getenv("THESEUS_FULL") == "1" {
		writes = 1000
	}
	size, before, begun := 0, nodes.processor(), time.Now()
	for range writes / followedNodes {
		seq := seqs.Add(1) + 1
		for i := range followedNodes {
			n, err := nodes.write(t.Context(), fmt.Sprintf("node-%04d", i), seq)
			if err != nil {
				t.Fatal(err)
			}
			size += n
		}
	}
	t.Logf("%d bytes a report, %.1f ms of the API server's processor time, %.1f ms",
		size/writes, (nodes.processor()-before)*1000/float64(writes),
		time.Since(begun).Seconds()*1000/float64(writes))
	object, err := nodes.client.Dynamic.Resource(nodes.resource("ProbeReport")).Namespace(v1alpha1.Namespace).Get(
		t.Context(), "node-0000", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := json.Marshal(object)
	managed, _ := json.Marshal(object.GetManagedFields())
	t.Logf("%d bytes an object, %d of them managedFields of %d managers", len(whole), len(managed),
		len(object.GetManagedFields()))
	if most := 3000; len(managed) > most {
		t.Errorf("%d bytes of managedFields: %s", len(managed), managed)
	}
}

// processor is the processor time of the API server in seconds.
func (r reporters) processor() (seconds float64) {
	text, err := r.client.Typed.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(r.t.Context())
	for line := range strings.Lines(string(text)) {
		if value, is := strings.CutPrefix(line, "process_cpu_seconds_total "); is && err == nil {
			seconds, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	if err != nil || seconds == 0 {
		r.t.Errorf("the processor time of the API server: %v", err)
	}
	return seconds
}

// measureReading asks a gate of 8 s, while reports come as the plans say, and the view of the run looks once a second.
func measureReading(t *testing.T, config *rest.Config, nodes reporters, follows bool) {
	var traffic traffic
	config = rest.CopyConfig(config)
	config.BearerToken = "looks"
	config.Wrap(traffic.count)
	client, err := kube.New(config, "test")
	if err != nil {
		t.Fatal(err)
	}
	empty := heap()
	actor := NewActor(client)
	var warned atomic.Value
	actor.Note = func(text string) { warned.Store(text) }
	if follows {
		stop, err := actor.Follow(t.Context(), client)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	evidence := kube.NewEvidence(kube.Collected{})
	collect := func(ctx context.Context) {
		if err := evidence.Collect(ctx, actor); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}
	if nodes.short != nil { // agents have reported for a while
		nodes.once(t.Context(), seqs.Add(1)+1)
	}
	begun := time.Now()
	collect(t.Context())
	t.Logf("first look: %s, after %s; %.0f MB on the heap after it",
		&traffic, time.Since(begun).Round(time.Millisecond), float64(heap()-empty)/1e6)
	traffic.reset()
	collect(t.Context())
	t.Logf("a look while nothing changes: %s", &traffic)

	ctx, cancel := context.WithCancel(t.Context())
	var running errgroup.Group
	running.Go(func() error { nodes.report(ctx); return nil })
	running.Go(func() error {
		for Clock.Sleep(Clock{}, ctx, time.Second) == nil {
			collect(ctx)
		}
		return nil
	})
	traffic.reset()
	cpu := nodes.processor()
	begun = time.Now()
	gate := &kube.Gate{Actor: actor, Since: []v1alpha1.ProbeReport{}}
	verdict, err := gate.Ask(ctx, step.Gate{Title: "t", Bake: step.Duration(8 * time.Second)},
		func(context.Context) error { return nil })
	read, took := traffic.bytes.Load(), time.Since(begun)
	said := fmt.Sprintf("%s, %.1f s of the API server's processor time", &traffic, nodes.processor()-cpu)
	cancel()
	_ = running.Wait()
	if text := warned.Load(); text != nil && follows && text != "measuring: t" {
		t.Errorf("noted %q", text)
	}
	if err != nil || follows && !verdict.Pass { // lists may keep the API server so busy that reports come too late
		t.Fatalf("%+v, %v", verdict, err)
	}
	t.Logf("a gate of %s: %s; %.1f kB a node and gate; %s", took.Round(time.Millisecond), said,
		float64(read)/1e3/followedNodes, verdict.Reason)
	// at most so many reports of each node
	if most := int64(followedNodes * followedPaths * 1000 * 8); follows && read > most {
		t.Errorf("%d bytes, more than %d", read, most)
	}
}

// heap is the size of the live heap in bytes.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// traffic counts what a client reads.
type traffic struct{ requests, bytes atomic.Int64 }

func (c *traffic) String() string {
	return fmt.Sprintf("%d requests, %.2f MB", c.requests.Load(), float64(c.bytes.Load())/1e6)
}

func (c *traffic) reset() { c.requests.Store(0); c.bytes.Store(0) }

func (c *traffic) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		c.requests.Add(1)
		response, err := next.RoundTrip(r)
		if err == nil {
			response.Body = counted{response.Body, &c.bytes}
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c counted) Read(into []byte) (int, error) {
	n, err := c.ReadCloser.Read(into)
	c.bytes.Add(int64(n))
	return n, err
}

// reporters are nodes whose agents report that all is well.
type reporters struct {
	t      *testing.T
	client *kube.Client
	nodes  int
	packed bool
	lossy  int // paths of each node
	// short are the reports in full, by node, where agents write short ones after them; else nil.
	short map[string]v1alpha1.ProbeReportStatus
	as    int // how many nodes the cluster would have that reports as often
}

func (r reporters) each(do func(node string) error) {
	r.t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for i := range r.nodes {
		group.Go(func() error { return do(fmt.Sprintf("node-%04d", i)) })
	}
	if err := group.Wait(); err != nil {
		r.t.Fatal(err)
	}
}

func (r reporters) paths(node string) []v1alpha1.Path {
	paths := make([]v1alpha1.Path, followedPaths)
	for i := range paths {
		paths[i] = v1alpha1.Path{ID: fmt.Sprintf("%s/old>node-%04d/new:udp", node, i), Class: "pod-pod",
			IntervalMillis: 100, Protocol: v1alpha1.UDP, Size: 64, Source: v1alpha1.Endpoint{Node: node,
				Network: path.Old}, Target: v1alpha1.Endpoint{Node: fmt.Sprintf("node-%04d", i), Network: path.New,
				Address: "10.20.30.40:9100"}}
	}
	return paths
}

// status is a report after so many publications. Its paths take 0.7 kB each, as in the lab, and differ from each other
// as much.
func (r reporters) status(node string, seq int64) v1alpha1.ProbeReportStatus {
	start := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	at := start.Add(time.Duration(seq) * path.ReportEvery(r.as))
	status := v1alpha1.ProbeReportStatus{Generation: 1, Seq: seq, At: at}
	for i, one := range r.paths(node) {
		random := rand.New(rand.NewPCG(uint64(i), uint64(len(node))))
		some := func(below time.Duration) time.Duration { return time.Duration(random.Int64N(int64(below))) }
		sent := int64(at.Sub(start)/time.Millisecond) / int64(one.IntervalMillis)
		interval := time.Duration(one.IntervalMillis) * time.Millisecond
		phase := some(interval)
		result := v1alpha1.PathResult{ID: one.ID, Sent: sent, Answered: sent, Since: start.Add(interval - phase),
			RTTMicros: [3]int64{200 + random.Int64N(300), 900 + random.Int64N(600), 9000 + random.Int64N(20000)}}
		for range 20 {
			result.RTTCounts = append(result.RTTCounts, sent*random.Int64N(100)/1000)
		}
		for n := range 4 { // the sender of a busy machine
			result.Stalls = append(result.Stalls, v1alpha1.Gap{From: start.Add(time.Duration(n)*time.Second +
				some(time.Second)), Millis: float64(30e6+some(30e6)) / 1e6, Probes: 3 + random.Int64N(3)})
		}
		// on its schedule, as a timer of a busy machine wakes it up
		result.Last = at.Add(-phase + time.Duration(rand.Int64N(int64(2*time.Millisecond))))
		if i < r.lossy {
			result.Answered -= 3
			for n := range 3 {
				result.Gaps = append(result.Gaps, v1alpha1.Gap{From: start.Add(time.Duration(n) * time.Second),
					Millis: 100.125, Probes: 1})
			}
		}
		status.Paths = append(status.Paths, result)
	}
	for i, name := range []string{"agent", "host", "new", "old"} {
		status.Parts = append(status.Parts, v1alpha1.Part{Name: name, Since: start.Add(time.Duration(i)),
			Pod: "1f0c4c1e-0000-4000-8000-00000000000" + fmt.Sprint(i), At: at.Add(-time.Duration(i))})
	}
	if r.packed {
		loss.Pack(&status)
	}
	return status
}

// shortOf is a report as a short one; nil if it must be in full, as the first one, and one in a minute.
func (r reporters) shortOf(node string, status v1alpha1.ProbeReportStatus) *string {
	if err := loss.Unpack(&status); err != nil {
		r.t.Error(err)
	}
	full, has := r.short[node]
	if text, ok := loss.Shorten(&full, &status); ok && has && status.At.Sub(full.At) < path.FullEvery(r.as) {
		return &text
	}
	r.short[node] = status
	return nil
}

func (r reporters) resource(kind string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: manifest.Plural(kind)}
}

// begin makes the plan and the first report of a node.
func (r reporters) begin(node string) error {
	for kind, content := range map[string]any{
		"ProbePlan":   map[string]any{"spec": v1alpha1.ProbePlanSpec{Generation: 1, Paths: r.paths(node)}},
		"ProbeReport": map[string]any{"status": r.status(node, 1)},
	} {
		text, err := json.Marshal(content)
		object := &unstructured.Unstructured{}
		if err == nil {
			err = json.Unmarshal(text, &object.Object)
		}
		if err != nil {
			return err
		}
		object.SetAPIVersion(v1alpha1.APIVersion)
		object.SetKind(kind)
		object.SetName(node)
		object.SetNamespace(v1alpha1.Namespace)
		if _, err := r.client.Dynamic.Resource(r.resource(kind)).Namespace(v1alpha1.Namespace).Create(r.t.Context(),
			object, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// seqs counts the publications, which go on from one gate to the next.
var seqs atomic.Int64

// report lets every node publish again and again, as often as the plan of paths says.
func (r reporters) report(ctx context.Context) {
	every := path.ReportEvery(r.as)
	for ctx.Err() == nil {
		seq, began := seqs.Add(1)+1, time.Now()
		for i := range r.nodes {
			node := fmt.Sprintf("node-%04d", i)
			if _, err := r.write(ctx, node, seq); err != nil && ctx.Err() == nil {
				r.t.Error(err)
			}
			_ = Clock.Sleep(Clock{}, ctx, time.Until(began.Add(every*time.Duration(i+1)/time.Duration(r.nodes))))
		}
	}
}

// once lets every node publish once.
func (r reporters) once(ctx context.Context, seq int64) {
	r.t.Helper()
	for i := range r.nodes {
		if _, err := r.write(ctx, fmt.Sprintf("node-%04d", i), seq); err != nil {
			r.t.Error(err)
		}
	}
}

// write publishes a report as an agent does, and returns its size.
func (r reporters) write(ctx context.Context, node string, seq int64) (int, error) {
	status := r.status(node, seq)
	content := map[string]any{"status": status}
	if r.short != nil {
		text := r.shortOf(node, status)
		content["metadata"] = map[string]any{"managedFields": []struct{}{{}},
			"annotations": map[string]*string{v1alpha1.AnnotationShort: text}}
		if text != nil {
			delete(content, "status")
		}
	}
	patch, err := json.Marshal(content)
	if err != nil {
		return 0, err
	}
	_, err = r.client.Dynamic.Resource(r.resource("ProbeReport")).Namespace(v1alpha1.Namespace).Patch(ctx, node,
		types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manifest.AgentName})
	return len(patch), err
}
