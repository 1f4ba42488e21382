package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/clustertest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/step"
)

// follower is an actor on a server that serves probe plans and reports, with a clock in real time.
type follower struct {
	*Actor
	server *clustertest.APIServer
	lock   sync.Mutex
	notes  []string
	full   map[string]v1alpha1.ProbeReportStatus // by node; every third report is in full, and those with losses
	shorts int
}

func (f *follower) Now() time.Time { return time.Now() }

func (f *follower) Sleep(ctx context.Context, d time.Duration) error { return outage.Sleep(ctx, d) }

// newFollower returns two actors on one server: one that follows, and one that lists.
func newFollower(t *testing.T) (f *follower, lists *Actor) {
	t.Helper()
	f = &follower{server: clustertest.NewAPIServer(t), full: map[string]v1alpha1.ProbeReportStatus{}}
	client, err := New(f.server.Config, "test")
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ProbePlan", "ProbeReport"} {
		mapper.Add(schema.GroupVersionKind{Group: v1alpha1.Group, Version: v1alpha1.Version, Kind: kind},
			meta.RESTScopeNamespace)
	}
	actor := func() *Actor {
		return &Actor{Dynamic: client.Dynamic, Mapper: fixedMapper{mapper}, Clock: f, Note: func(text string) {
			f.lock.Lock()
			defer f.lock.Unlock()
			f.notes = append(f.notes, text)
		}}
	}
	f.Actor = actor()
	stop, err := f.Follow(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return f, actor()
}

// said returns what was noted.
func (f *follower) said() string {
	f.lock.Lock()
	defer f.lock.Unlock()
	return strings.Join(f.notes, "\n")
}

// put stores the plan of one path that starts on a node, and a report on it.
func (f *follower) put(t *testing.T, node string, sent, lost int64) {
	t.Helper()
	id := node + "/old>x/old:udp"
	if sent == 0 {
		f.server.Put(t, "ProbePlan", node, &v1alpha1.ProbePlan{Spec: v1alpha1.ProbePlanSpec{Generation: 1,
			Paths: []v1alpha1.Path{{ID: id, Source: v1alpha1.Endpoint{Node: node, Network: "old"},
				IntervalMillis: 100}}}})
	}
	start := time.Unix(1_800_000_000, 0).UTC()
	at := start.Add(time.Duration(sent) * 100 * time.Millisecond)
	status := v1alpha1.ProbeReportStatus{Generation: 1, Seq: sent + 1, At: at,
		Paths: []v1alpha1.PathResult{{ID: id, Sent: sent, Answered: sent - lost, Since: start, Last: at,
			RTTCounts: []int64{sent}}}}
	full := f.full[node]
	if text, ok := loss.Shorten(&full, &status); ok && sent%3 > 0 {
		f.shorts++
		report := &v1alpha1.ProbeReport{Status: full}
		report.Annotations = map[string]string{v1alpha1.AnnotationShort: text}
		f.server.Put(t, "ProbeReport", node, report)
		return
	}
	f.full[node] = status
	f.server.Put(t, "ProbeReport", node, &v1alpha1.ProbeReport{Status: status})
}

// TestFollow: while reports change at random, and the watch is cut off and refused a hundred times, every look sees at
// least what was written before it, and in the end the evidence is that of lists.
func TestFollow(t *testing.T) {
	f, lists := newFollower(t)
	var written [5]atomic.Int64
	name := func(i int) string { return fmt.Sprintf("n%d", i) }
	for i := range written {
		f.put(t, name(i), 0, 0)
	}
	evidence := NewEvidence(Collected{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for cut := range 100 {
			for range 3 {
				i := rand.IntN(len(written))
				f.put(t, name(i), written[i].Load()+1, 0)
				written[i].Add(1)
			}
			if cut%10 == 9 {
				f.server.Forget()
			} else {
				f.server.Cut()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	for looks, ended := 0, false; !ended; looks++ {
		select {
		case <-done:
			ended = true
		default:
		}
		var before [len(written)]int64
		for i := range written {
			before[i] = written[i].Load()
		}
		reports, err := f.probeReports(t.Context())
		if err != nil || len(reports) != len(written) {
			t.Fatalf("look %d: %d reports, %v", looks, len(reports), err)
		}
		for i := range reports {
			if sent := reports[i].Status.Paths[0].Sent; reports[i].Name != name(i) || sent < before[i] {
				t.Fatalf("look %d: %s has sent %d of at least %d", looks, reports[i].Name, sent, before[i])
			}
		}
		if err := evidence.Collect(t.Context(), f.Actor); err != nil {
			t.Fatal(err)
		}
	}
	want := NewEvidence(Collected{})
	if err := want.Collect(t.Context(), lists); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Document(), evidence.Document(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-list +watch):\n%s", diff)
	}
	if said := f.said(); said != "" || f.shorts < 100 {
		t.Errorf("said %q, %d short reports", said, f.shorts)
	}
}

// What a list says of nodes that went, of strangers' results and of kinds that are not defined, a watch says too.
func TestFollowIsAList(t *testing.T) {
	f, lists := newFollower(t)
	same := func(reports int) {
		t.Helper()
		want, err := lists.probeReports(t.Context())
		got, failed := f.probeReports(t.Context())
		if err != nil || failed != nil || len(want) != reports {
			t.Fatalf("%d reports, %v, %v", len(want), err, failed)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(metav1.TypeMeta{}, "Kind", "APIVersion")); diff != "" {
			t.Errorf("(-list +watch):\n%s", diff)
		}
		wantPlans, _ := lists.probePlans(t.Context())
		plans, err := f.probePlans(t.Context())
		if diff := cmp.Diff(wantPlans, plans,
			cmpopts.IgnoreFields(metav1.TypeMeta{}, "Kind", "APIVersion")); diff != "" || err != nil {
			t.Errorf("%v (-list +watch):\n%s", err, diff)
		}
	}
	same(0)
	f.put(t, "a", 0, 0)
	f.put(t, "b", 0, 0)
	same(2)
	f.put(t, "a", 5, 1)
	f.server.Put(t, "ProbeReport", "c", &v1alpha1.ProbeReport{Status: v1alpha1.ProbeReportStatus{
		Paths: []v1alpha1.PathResult{{ID: "c/old>a", Sent: 3}, {ID: "a/old>b", Sent: 9}}}})
	same(3)
	if said := f.said(); strings.Count(said, "the report of c holds a result") != 2 { // of either actor
		t.Errorf("said %q", said)
	}
	f.server.Delete("ProbeReport", "b")
	same(2)
	for sent := range int64(9) {
		f.put(t, "d", sent+1, 0)
		same(3)
	}
	f.put(t, "d", 12, 2)
	same(3)
	full := f.full["d"]
	report := &v1alpha1.ProbeReport{Status: full}
	report.Annotations = map[string]string{v1alpha1.AnnotationShort: "AQ=="}
	f.server.Put(t, "ProbeReport", "d", report)
	same(3)
	if reports, _ := f.probeReports(t.Context()); reports[2].Status.Generation != 0 ||
		len(reports[2].Status.Paths) > 0 { // none of them has a gap
		t.Errorf("%+v", reports[2])
	}
	if said := f.said(); strings.Count(said, "the report of d is ignored: read its short report: ") != 2 {
		t.Errorf("said %q", said)
	}
	report.Annotations = nil
	report.Status.Seq++
	f.server.Put(t, "ProbeReport", "d", report)
	same(3)
}

// TestFollowOlderAgent: an agent of an older version writes in full, and leaves the short report of the agent before as
// it is. No reader takes that for evidence, nor for an excuse, until an agent that knows short reports has written.
func TestFollowOlderAgent(t *testing.T) {
	f, lists := newFollower(t)
	for sent := range int64(3) {
		f.put(t, "a", sent, 0)
	}
	before, err := f.probeReports(t.Context())
	if err != nil || before[0].Status.Seq != 3 || f.shorts != 1 {
		t.Fatalf("%+v, %v, %d short reports", before, err, f.shorts)
	}
	full := f.full["a"]
	text, _ := loss.Shorten(&full, &before[0].Status)
	older := before[0].Status
	older.Seq = full.Seq + 1
	older.Parts = []v1alpha1.Part{{Name: "old", Since: older.At,
		Gone: []v1alpha1.Absence{{From: full.At, To: older.At}}}}
	report := &v1alpha1.ProbeReport{Status: older}
	report.Annotations = map[string]string{v1alpha1.AnnotationShort: text}
	for range 3 {
		report.Status.Seq++
		f.server.Put(t, "ProbeReport", "a", report)
		for name, actor := range map[string]*Actor{"watch": f.Actor, "list": lists} {
			reports, err := actor.probeReports(t.Context())
			if err != nil || reports[0].Status.Generation != 0 || len(reports[0].Status.Parts[0].Gone) > 0 {
				t.Errorf("%s: %+v, %v", name, reports, err)
			}
		}
	}
	if said := f.said(); strings.Count(said, "the report of a is ignored: ") != 2 {
		t.Errorf("said %q", said)
	}
	report.Annotations = nil
	report.Status.Seq++
	f.server.Put(t, "ProbeReport", "a", report)
	for name, actor := range map[string]*Actor{"watch": f.Actor, "list": lists} {
		if reports, err := actor.probeReports(t.Context()); err != nil || reports[0].Status.Generation != 1 {
			t.Errorf("%s: %+v, %v", name, reports, err)
		}
	}
}

// TestFollowReplaced: a report that was deleted and made again, with the same number of contents, is read in full,
// although its watch brings both at once.
func TestFollowReplaced(t *testing.T) {
	f, lists := newFollower(t)
	f.put(t, "a", 0, 0)
	for sent := range int64(20) {
		f.full = map[string]v1alpha1.ProbeReportStatus{}
		if _, err := f.probeReports(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.server.Deaf(true)
		f.server.Delete("ProbeReport", "a")
		f.put(t, "a", sent+1, sent+1)
		f.server.Deaf(false)
		for name, actor := range map[string]*Actor{"watch": f.Actor, "list": lists} {
			reports, err := actor.probeReports(t.Context())
			if err != nil || len(reports) != 1 || reports[0].Status.Paths[0].Sent != sent+1 ||
				reports[0].Status.Paths[0].Answered != 0 {
				t.Fatalf("%s: %+v, %v", name, reports, err)
			}
		}
	}
}

// TestFollowReadsLittle: a watch reads a report again only when its agent has written it in full, and never goes back.
func TestFollowReadsLittle(t *testing.T) {
	f, _ := newFollower(t)
	var reads atomic.Int64
	list := f.reports.list
	f.reports.list = func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.FieldSelector != "" {
			reads.Add(1)
		}
		return list(ctx, options)
	}
	last := int64(0)
	for sent := range int64(60) {
		f.put(t, "a", sent, 0)
		reports, err := f.probeReports(t.Context())
		if err != nil || reports[0].Status.Paths[0].Sent != sent || reports[0].Status.Seq <= last {
			t.Fatalf("%d sent: %+v, %v", sent, reports, err)
		}
		last = reports[0].Status.Seq
	}
	// the first one is listed, and the second is in full, as is every third
	if n := reads.Load(); f.shorts < 30 || n > 60-int64(f.shorts) {
		t.Errorf("%d reads, %d short reports", n, f.shorts)
	}
	head := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: v1alpha1.Namespace}}
	report, err := f.reports.read(t.Context(), head)
	if err != nil {
		t.Fatal(err)
	}
	f.complete(report)
	former := report.Status
	former.Seq++ // it was read after the event
	older := &reportObject{ProbeReport: v1alpha1.ProbeReport{ObjectMeta: report.ObjectMeta}, full: report.full,
		former: &former}
	if f.complete(older); older.Status.Seq != former.Seq {
		t.Errorf("it goes back from %d to %d", former.Seq, older.Status.Seq)
	}
}

// While the API server is away, looks fail as lists do. What was written meanwhile is there when it is back.
func TestFollowOutage(t *testing.T) {
	f, _ := newFollower(t)
	f.put(t, "a", 0, 0)
	if _, err := f.probeReports(t.Context()); err != nil {
		t.Fatal(err)
	}
	for sent := range int64(3) {
		f.server.Down(true)
		f.put(t, "a", sent+1, 0)
		if reports, err := f.probeReports(t.Context()); !outage.Passes(err) {
			t.Fatalf("%d reports, %v", len(reports), err)
		}
		if _, err := (&Gate{Actor: f.Actor}).Ask(t.Context(), step.Gate{}, goOn); !outage.Passes(err) {
			t.Fatal(err)
		}
		f.server.Down(false)
		reports, err := f.probeReports(t.Context())
		if err != nil || reports[0].Status.Paths[0].Sent != sent+1 {
			t.Fatalf("%+v, %v", reports, err)
		}
	}
}

// A watch that brings nothing, or is not allowed, is not believed: reports are listed until it has caught up, which is
// said once.
func TestFollowBehind(t *testing.T) {
	for name, test := range map[string]struct {
		hinder func(*clustertest.APIServer, bool)
		why    string
	}{
		"deaf":        {(*clustertest.APIServer).Deaf, "it brings nothing"},
		"not allowed": {(*clustertest.APIServer).Deny, "refused: Forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := newFollower(t)
			f.put(t, "a", 0, 0)
			if _, err := f.probeReports(t.Context()); err != nil {
				t.Fatal(err)
			}
			test.hinder(f.server, true)
			done := make(chan struct{})
			go func() { // a node that loses from its fifth report on
				defer close(done)
				for sent := int64(1); t.Context().Err() == nil && sent < 100; sent++ {
					f.put(t, "a", sent, max(0, sent-5))
					time.Sleep(100 * time.Millisecond)
				}
			}()
			verdict, err := (&Gate{Actor: f.Actor, Since: []v1alpha1.ProbeReport{}}).Ask(t.Context(),
				step.Gate{Title: "t", Bake: step.Duration(2 * time.Second)}, goOn)
			if err != nil || verdict.Pass || verdict.Lost == 0 {
				t.Errorf("%+v, %v", verdict, err)
			}
			for end := time.Now().Add(10 * time.Second); f.said() == "measuring: t" && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			if said := f.said(); strings.Count(said, "ProbeReports cannot be watched") != 1 ||
				!strings.Contains(said, test.why) {
				t.Errorf("said %q", said)
			}
			test.hinder(f.server, false)
			<-done
			f.put(t, "a", 200, 0)
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if reports, ok, err := f.reports.current(t.Context(), 0); err == nil && ok {
					if sent := reports[0].(*reportObject).Status.Paths[0].Sent; sent != 200 {
						t.Errorf("the watch has caught up with %d sent", sent)
					}
					return
				}
			}
			t.Error("the watch does not catch up")
		})
	}
}
