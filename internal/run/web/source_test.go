package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	typedfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

type fixedMapper struct{ *meta.DefaultRESTMapper }

func (fixedMapper) Reset() {}

// world is a cluster of fakes in which a run goes on. Its time is that of the run, and moves with the clock of the
// test.
type world struct {
	*web.Source
	t       *testing.T
	run     *webtest.Run
	dynamic *dynamicfake.FakeDynamicClient
	typed   *typedfake.Clientset
	begun   time.Time     // by the test's clock
	from    time.Duration // the time of the run then
	written int           // records
	holder  string        // of the lock
	since   time.Time     // when it took it
	died    time.Time     // when it ended without releasing it
	fail    map[string]error
	hang    chan struct{} // reads of the journal wait for it
	asked   map[string]int
}

// follow is a page of a run that has gone on for some time.
func follow(t *testing.T, r *webtest.Run, from time.Duration) *world {
	t.Helper()
	mapper, lists := meta.NewDefaultRESTMapper(nil), map[schema.GroupVersionResource]string{}
	for _, kind := range []string{"Migration", "JournalPage", "ProbePlan", "ProbeReport"} {
		gvk := schema.GroupVersionKind{Group: v1alpha1.Group, Version: v1alpha1.Version, Kind: kind}
		mapper.Add(gvk, meta.RESTScopeNamespace)
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		lists[plural] = kind + "List"
	}
	for _, kind := range bgp.Kinds {
		gvk := bgp.Versions[0].WithKind(kind)
		mapper.Add(gvk, meta.RESTScopeRoot)
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		lists[plural] = kind + "List"
	}
	w := &world{t: t, run: r, dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		lists), typed: typedfake.NewClientset(),
		begun: time.Now(), from: from, holder: "ada@bastion-1", since: r.Begin,
		fail: map[string]error{}, asked: map[string]int{}}
	migration := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.APIVersion,
		"kind": "Migration", "metadata": map[string]any{"name": r.Plan.Name, "namespace": v1alpha1.Namespace},
		"spec": map[string]any{"desire": string(v1alpha1.DesireRun)}}}
	if err := w.dynamic.Tracker().Create(schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: "migrations"}, migration, v1alpha1.Namespace); err != nil {
		t.Fatal(err)
	}
	w.write()
	w.dynamic.PrependReactor("list", "probeplans", func(clienttesting.Action) (bool, runtime.Object, error) {
		return w.list("ProbePlan", w.plans())
	})
	w.dynamic.PrependReactor("list", "probereports", func(clienttesting.Action) (bool, runtime.Object, error) {
		return w.list("ProbeReport", w.reports())
	})
	w.dynamic.PrependReactor("get", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if w.hang != nil && a.GetResource().Resource == "journalpages" {
			<-w.hang
		}
		err := w.fail[a.GetResource().Resource]
		return err != nil, nil, err
	})
	w.typed.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.asked["leases"]++
		lease := &coordinationv1.Lease{}
		if w.holder != "" {
			lease.Spec.HolderIdentity, lease.Spec.AcquireTime = &w.holder, &metav1.MicroTime{Time: w.since}
			lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
			if !w.died.IsZero() {
				lease.Spec.RenewTime.Time = w.died
			}
		}
		return true, lease, w.fail["leases"]
	})
	w.typed.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.asked["nodes"]++
		nodes := &corev1.NodeList{}
		for i := 0; w.run.BGP != nil && i < len(w.run.BGP.Nodes); i++ {
			node := &w.run.BGP.Nodes[i]
			nodes.Items = append(nodes.Items, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name,
				Annotations: map[string]string{"projectcalico.org/IPv4Address": node.IPv4.String() + "/24"}}})
		}
		return true, nodes, w.fail["nodes"]
	})
	client := &kube.Client{Typed: w.typed, Dynamic: w.dynamic, Mapper: fixedMapper{mapper}}
	w.Source = (&web.Source{Client: client, Feed: web.NewFeed(r.Plan), Name: r.Plan.Name, Dir: t.TempDir()}).Unwatched()
	return w
}

// at is the time of the run.
func (w *world) at() time.Time { return w.run.Begin.Add(w.from + time.Since(w.begun)) }

// write writes the records until now.
func (w *world) write() {
	w.t.Helper()
	all := w.run.Journal(w.at())
	if fresh := all[w.written:]; len(fresh) > 0 {
		if err := journal.NewCluster(w.dynamic, w.run.Plan.Name).Append(w.t.Context(), fresh...); err != nil {
			w.t.Fatal(err)
		}
	}
	w.written = len(all)
}

func (w *world) plans() (all []any) {
	byNode := map[string]*v1alpha1.ProbePlan{}
	for _, one := range w.run.Paths {
		p := byNode[one.Source.Node]
		if p == nil {
			p = &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: one.Source.Node}}
			byNode[one.Source.Node], all = p, append(all, p)
		}
		p.Spec.Paths = append(p.Spec.Paths, one)
	}
	return all
}

func (w *world) reports() (all []any) {
	said := map[string]*v1alpha1.BGP{}
	for _, one := range w.run.Reports(w.at()) {
		said[one.Name] = one.Status.BGP
	}
	for _, one := range run.Reports(w.run.Evidence(w.at())) {
		one.Status.At, one.Status.BGP = w.at(), said[one.Name]
		all = append(all, &one)
	}
	return all
}

func (w *world) list(kind string, all []any) (bool, runtime.Object, error) {
	resource := strings.ToLower(kind) + "s"
	w.asked[resource]++
	if err := w.fail[resource]; err != nil {
		return true, nil, err
	}
	found := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": v1alpha1.APIVersion,
		"kind": kind + "List"}}
	for _, one := range all {
		data, err := json.Marshal(one)
		if err != nil {
			w.t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(data, &fields); err != nil {
			w.t.Fatal(err)
		}
		fields["apiVersion"], fields["kind"] = v1alpha1.APIVersion, kind
		found.Items = append(found.Items, unstructured.Unstructured{Object: fields})
	}
	return true, found, nil
}

// look reads for some seconds.
func (w *world) look(seconds int) {
	w.t.Helper()
	for range seconds {
		w.write()
		if err := w.Look(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(time.Second)
	}
}

func (w *world) expect(when, want string) {
	w.t.Helper()
	if now := w.Feed.State().Now; now.Tone+": "+now.Loss != want {
		w.t.Errorf("%s: %s: %s, want %s; %q", when, now.Tone, now.Loss, want, now.Remarks)
	}
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "x",
		errors.New(`User "ada" cannot read it`))
}

// TestHang: while the API server answers nothing, the page says so within seconds, and what it knew ages.
func TestHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follow(t, webtest.New(t, 3), 20*time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.Run(ctx) }()
		time.Sleep(5500 * time.Millisecond)
		w.expect("before", "good: Nothing is being lost")
		hang := make(chan struct{})
		w.hang = hang
		time.Sleep(7 * time.Second)
		if now := w.Feed.State().Now; now.Why != "no answer for 5 s" || now.Since.IsZero() {
			t.Errorf("while it hangs: %+v", now)
		}
		time.Sleep(15 * time.Second)
		w.expect("after 20 s", "none: Nothing is measured at the moment")
		w.hang = nil
		close(hang)
		time.Sleep(6 * time.Second)
		w.expect("when it answers again", "good: Nothing is being lost")
		if now := w.Feed.State().Now; now.Why != "" {
			t.Errorf("when it answers again: %+v", now)
		}
		cancel()
		<-done
		time.Sleep(2 * time.Second) // until watch has ended
	})
}

// TestLockFirst: nothing is shown before it is known whether a process runs the migration; and who may not see that
// sees the rest.
func TestLockFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follow(t, webtest.New(t, 3), 20*time.Second)
		w.fail["leases"] = errors.New("connection refused")
		if err := w.Look(t.Context()); err == nil {
			t.Error("the lock could not be read")
		}
		if s := w.Feed.State(); len(s.Lines) > 0 || s.Now.Stand == "interrupted" {
			t.Errorf("without the lock: %+v", s.Now)
		}
		w.fail["leases"] = forbidden("leases")
		w.look(4)
		s := w.Feed.State()
		if len(s.Lines) == 0 || s.Now.Stand != "running" ||
			!strings.HasPrefix(s.Now.Runner, "Theseus cannot read which process runs it: ") {
			t.Errorf("with a hidden lock: %+v", s.Now)
		}
		w.expect("with a hidden lock", "good: Nothing is being lost")
	})
}

// TestDeadHolder: a process that ended without releasing the lock is not said to run the migration, neither when the
// page has seen it run, nor to a page that is opened later.
func TestDeadHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follow(t, webtest.New(t, 3), 20*time.Second)
		says := func(when, want, stand string) {
			t.Helper()
			if now := w.Feed.State().Now; !strings.HasPrefix(now.Runner, want) || now.Stand != stand {
				t.Errorf("%s: %q, %s", when, now.Runner, now.Stand)
			}
		}
		w.look(3)
		says("alive", "ada@bastion-1 is running a migration on this cluster, since ", "running")
		w.died = time.Now()
		w.look(22)
		says("it died", "no process runs it", "interrupted")
		w = follow(t, webtest.New(t, 3), 20*time.Second)
		w.died = time.Now().Add(-time.Hour)
		w.look(3)
		says("at first", "ada@bastion-1 has not renewed its lock on this cluster lately, and may have ended", "running")
		w.look(20)
		says("later", "no process runs it", "interrupted")
	})
}

// TestUnread: results that cannot be read are said to be missing for as long as that is so.
func TestUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follow(t, webtest.New(t, 3), 20*time.Second)
		unread := func() bool {
			return slices.ContainsFunc(w.Feed.State().Now.Remarks, func(s string) bool {
				return strings.HasPrefix(s, "Some results cannot be read: ")
			})
		}
		w.fail["probereports"] = forbidden("probereports")
		w.look(4)
		if !unread() {
			t.Errorf("%+v", w.Feed.State().Now)
		}
		delete(w.fail, "probereports")
		w.fail["configmaps"] = forbidden("configmaps")
		w.look(40)
		if !unread() {
			t.Errorf("without the archive: %+v", w.Feed.State().Now)
		}
		delete(w.fail, "configmaps")
		w.look(40)
		if unread() {
			t.Errorf("after all could be read: %+v", w.Feed.State().Now)
		}
	})
}

// TestEnd: what a run lost is said permanently only when its last results are read. Nothing is read after that.
func TestEnd(t *testing.T) {
	r := webtest.New(t, 3)
	lasts := r.Records[len(r.Records)-1].At.Sub(r.Begin)
	for name, test := range map[string]struct {
		change func(*world) // 10 s after the end
		after  int          // seconds
		want   string
		seen   string
	}{
		"nothing was lost":      {func(w *world) { w.holder = "" }, 8, "good: The run has ended; nothing was lost", ""},
		"the last results lost": {late, 8, "fair: The run has ended; there were losses", ""},
		"the archive is hidden": {func(w *world) { w.holder, w.fail["configmaps"] = "", forbidden("configmaps") }, 8,
			missing, "Some results cannot be read: "},
		"the lock is never free": {func(*world) {}, 25, missing, "The last results may be missing: "},
		"its holder died": {func(w *world) { w.died = time.Now() }, 25, missing,
			"The last results may be missing: "},
		"the next migration runs": {func(w *world) { w.since = r.Begin.Add(lasts + time.Second) }, 8,
			"good: The run has ended; nothing was lost", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := follow(t, r, lasts-10*time.Second)
				w.look(9)
				w.expect("before the end", "good: Nothing is being lost")
				w.look(10)
				w.expect("after the end", "none: The run has ended; its last results are not read yet")
				test.change(w)
				w.look(test.after)
				w.expect("at last", test.want)
				if remarks := strings.Join(w.Feed.State().Now.Remarks, " "); !strings.HasPrefix(remarks, test.seen) {
					t.Errorf("%q, want %q", remarks, test.seen)
				}
				before := text(t, w.asked)
				w.look(30)
				if after := text(t, w.asked); after != before {
					t.Errorf("read after the end: %s, before %s", after, before)
				}
				w.expect("later", test.want)
			})
		})
	}
}

const missing = "none: The run has ended, but results may be missing: see `theseus report`"

// late keeps results with a loss that no report in the cluster has any more.
func late(w *world) {
	results := w.run.Evidence(w.run.Begin.Add(10 * time.Second))
	result := results.Results[0]
	result.Since, result.Answered = result.Since.Add(-time.Second), result.Answered-5
	result.Gaps = []v1alpha1.Gap{{From: result.Since, Millis: 50, Probes: 5}}
	if err := run.Keep(w.Dir,
		kube.Collected{Paths: results.Paths, Results: []v1alpha1.PathResult{result}}); err != nil {
		w.t.Fatal(err)
	}
	w.holder = ""
}

// TestWithdrawn: the page says that a migration was withdrawn, and reads no more. An API server that does not know the
// kind just now says nothing about it.
func TestWithdrawn(t *testing.T) {
	migrations := schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: "migrations"}
	for name, change := range map[string]func(*world) error{
		"deleted": func(w *world) error { return w.dynamic.Tracker().Delete(migrations, v1alpha1.Namespace, w.Name) },
		"another": func(w *world) error { w.UID = "earlier"; return nil },
		"with its journal": func(w *world) error {
			w.fail["journalpages"] = apierrors.NewNotFound(schema.GroupResource{Resource: "journalpages"}, "x")
			return w.dynamic.Tracker().Delete(migrations, v1alpha1.Namespace, w.Name)
		},
	} {
		w := follow(t, webtest.New(t, 3), 3*time.Second)
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.fail["migrations"] = apierrors.NewGenericServerResponse(404, "get",
			migrations.GroupResource(), w.Name, "", 0, true)
		if err := w.Look(t.Context()); err == nil || strings.Contains(err.Error(), "withdrawn") {
			t.Errorf("%s, by an API server that does not know the kind: %v", name, err)
		}
		delete(w.fail, "migrations")
		if err := change(w); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		w.Run(ctx)
		if now := w.Feed.State().Now; ctx.Err() != nil || !now.Withdrawn || !now.Over || now.Stand != "withdrawn" {
			t.Errorf("%s: %+v, %v", name, now, ctx.Err())
		}
		cancel()
	}
}
