package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// samplePlan is a small plan that holds: a flag of Calico's is rolled out on one node.
func samplePlan(t testing.TB) *plan.Plan {
	t.Helper()
	p, err := plan.Make(cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml")),
		v1alpha1.ChangeSpec{Dataplane: "nftables", AgentImage: "theseus.dev/agent:dev"},
		cni.Registry{calico.Driver{}}, nil,
		plan.Options{Version: "v0.0.0-test", Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Name: "flannel-to-calico-1"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const perPage = 4

func newCluster(t *testing.T) (*server, *Cluster) {
	t.Helper()
	s := newServer()
	if err := Create(t.Context(), s, samplePlan(t)); err != nil {
		t.Fatal(err)
	}
	return s, takeOver(s)
}

// takeOver is the journal as another process sees it.
func takeOver(s *server) *Cluster {
	c := NewCluster(s, "flannel-to-calico-1")
	c.bound = perPage
	return c
}

func add(t *testing.T, j engine.Journal, records ...engine.Record) {
	t.Helper()
	for _, r := range records {
		if err := j.Append(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
}

func wantCluster(t *testing.T, s *server, want []engine.Record) {
	t.Helper()
	got, err := takeOver(s).Records(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain(t, want), plain(t, got)); diff != "" {
		t.Fatalf("the cluster holds (-want +got):\n%s", diff)
	}
}

// TestClusterPages writes several pages, taking over now and then, and reads it all back, nulls and big
// numbers included; the Migration tells where it stands.
func TestClusterPages(t *testing.T) {
	s, c := newCluster(t)
	records := sample(5*perPage + 3)
	for i, r := range records {
		if i%7 == 0 {
			c = takeOver(s)
		}
		add(t, c, r, r) // a record once more changes nothing
	}
	wantCluster(t, s, records)
	_, migration, err := Load(t.Context(), s, "flannel-to-calico-1")
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.MigrationStatus{Phase: "running", Step: "s", Total: 1, Pages: 6}
	if !reflect.DeepEqual(migration.Status, want) {
		t.Errorf("status %+v, want %+v", migration.Status, want)
	}
	pages, err := c.list(t.Context())
	if err != nil || len(pages) != 6 || len(pages[0].records) != perPage ||
		typed(t, pages[2]).OwnerReferences[0].Kind != "Migration" {
		t.Errorf("%d pages, the first with %d records, %v", len(pages), len(pages[0].records), err)
	}
}

func typed(t *testing.T, p page) *v1alpha1.JournalPage {
	t.Helper()
	one, err := p.typed()
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// TestClusterPageBytes writes big records: a page stays under its bound of bytes, and a record that no
// object can hold is refused.
func TestClusterPageBytes(t *testing.T) {
	s, c := newCluster(t)
	records := sample(8)
	for i := range records[2:] {
		records[2+i].Before = json.RawMessage(`"` + strings.Repeat("x", pageBytes*2/5) + `"`)
	}
	records = link(records)
	add(t, c, records...)
	wantCluster(t, s, records)
	pages, err := c.list(t.Context())
	if err != nil || len(pages) != 3 {
		t.Errorf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		if n := len(slices.Concat(typed(t, page).Records...)); n > pageBytes {
			t.Errorf("page %d has %d bytes", page.number, n)
		}
	}
	huge := sample(9)[8]
	huge.Before = json.RawMessage(`"` + strings.Repeat("x", recordBytes) + `"`)
	if err := c.Append(t.Context(), huge); err == nil {
		t.Error("a record too big for any object was accepted")
	}
}

// TestClusterTogether appends several records at once, over the end of pages, and lets each write fail, before it has
// an effect and with its answer lost; the same append again adds what is missing.
func TestClusterTogether(t *testing.T) {
	const many = 3*perPage - 1
	for _, lost := range []bool{false, true} {
		for before := range perPage + 1 {
			for skip := range 5 { // writes of pages, and of the status
				s, c := newCluster(t)
				records := sample(before + many)
				add(t, c, records[:before]...)
				s.fail, s.lost, s.skip = apierrors.NewTooManyRequestsError("later"), lost, skip
				err := c.Append(t.Context(), records[before:]...)
				if failed := s.fail == nil; failed != (err != nil) {
					t.Fatalf("after %d, write %d: %v", before, skip, err)
				}
				s.fail = nil
				if err := c.Append(t.Context(), records[before:]...); err != nil {
					t.Fatalf("after %d, write %d, again: %v", before, skip, err)
				}
				wantCluster(t, s, records)
				rival := slices.Clone(records[before:])
				rival[many-1].By = "rival"
				if err := takeOver(s).Append(t.Context(), rival...); !errors.Is(err, ErrTaken) {
					t.Errorf("records that differ from those that are there: %v", err)
				}
			}
		}
	}
}

// TestClusterPageMissing demands that a journal with a lost page is an error, and never a shorter journal.
func TestClusterPageMissing(t *testing.T) {
	for _, lost := range []int{1, 2, 3} {
		s, c := newCluster(t)
		add(t, c, sample(2*perPage+3)...)
		name := fmt.Sprintf("flannel-to-calico-1-%04d", lost)
		if err := s.Resource(pageResource).Namespace(v1alpha1.Namespace).Delete(t.Context(), name,
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := takeOver(s).Records(t.Context()); err == nil || engine.HintOf(err) == "" {
			t.Errorf("page %d lost: %v", lost, err)
		}
	}
}

// TestClusterPageEmpty demands that a page without records, which nobody writes but by hand, is damage, and no crash.
func TestClusterPageEmpty(t *testing.T) {
	s, c := newCluster(t)
	add(t, c, sample(1)...)
	if err := patch(t.Context(), s, pageResource, "flannel-to-calico-1-0001",
		map[string]any{"records": []any{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := takeOver(s).Records(t.Context()); err == nil || engine.HintOf(err) == "" {
		t.Errorf("an empty page: %v", err)
	}
}

// TestSummarise: a process that was killed between a record and the summary leaves an older summary, which the next one
// mends.
func TestSummarise(t *testing.T) {
	s, c := newCluster(t)
	add(t, c, sample(3)...)
	_, before, err := Load(t.Context(), s, "flannel-to-calico-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := patch(t.Context(), s, migrationResource, "flannel-to-calico-1",
		map[string]any{"status": map[string]any{"phase": "new", "step": ""}}); err != nil {
		t.Fatal(err)
	}
	next := takeOver(s)
	if _, err := next.Records(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := next.Summarise(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, after, err := Load(t.Context(), s, "flannel-to-calico-1"); err != nil ||
		!reflect.DeepEqual(after.Status, before.Status) {
		t.Errorf("%+v, want %+v, %v", after.Status, before.Status, err)
	}
}

// TestClusterAnswers lets the API server fail in the ways that a client sees: before the call has an effect,
// and with its answer lost.
func TestClusterAnswers(t *testing.T) {
	for name, failure := range map[string]error{
		"refused":  &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"too slow": context.DeadlineExceeded,
		"etcd":     apierrors.NewInternalError(errors.New("etcdserver: request timed out")),
		"busy":     apierrors.NewTooManyRequestsError("later"),
	} {
		for _, lost := range []bool{false, true} {
			for n := range 2 * (perPage + 2) { // the record's own write, and that of the status
				before, skip := n/2, n%2
				t.Run(fmt.Sprintf("%s/lost=%v/after %d/%d", name, lost, before, skip), func(t *testing.T) {
					s, c := newCluster(t)
					records := sample(before + 1)
					add(t, c, records[:before]...)
					s.fail, s.lost, s.skip = failure, lost, skip
					err := c.Append(t.Context(), records[before])
					if failed := s.fail == nil; failed != errors.Is(err, engine.ErrUnavailable) ||
						!failed && err != nil {
						t.Fatalf("%v is not marked as an outage", err)
					}
					s.fail = nil
					add(t, c, records[before])
					wantCluster(t, s, records)
				})
			}
		}
	}
}

// TestClusterRivals lets two engines write one journal: exactly one of them gets a record in, and the other
// is told before it can act. Somebody who only touches a page's labels is no rival.
func TestClusterRivals(t *testing.T) {
	for before := range perPage + 2 {
		s, a := newCluster(t)
		records := sample(before + 2)
		add(t, a, records[:before]...)
		b := takeOver(s)
		if _, err := b.Records(t.Context()); err != nil {
			t.Fatal(err)
		}
		if before > 0 {
			page := fmt.Sprintf("flannel-to-calico-1-%04d", (before-1)/perPage+1)
			if _, err := s.Resource(pageResource).Namespace(v1alpha1.Namespace).Patch(t.Context(),
				page, types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"touched":"yes"}}}`), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		add(t, b, records[before])
		rival := records[before]
		rival.By = "rival"
		if err := a.Append(t.Context(), rival); !errors.Is(err, ErrTaken) || engine.HintOf(err) == "" {
			t.Errorf("after %d records, the second engine got %v", before, err)
		}
		add(t, b, records[before+1])
		wantCluster(t, s, records)
	}
}

func TestMigration(t *testing.T) {
	ctx, client := t.Context(), newServer()
	p := samplePlan(t)
	for range 2 { // creating it again changes nothing
		if err := Create(ctx, client, p); err != nil {
			t.Fatal(err)
		}
	}
	other := samplePlan(t)
	other.Reason = "another"
	other.Hash = plan.Hash(other)
	if err := Create(ctx, client, other); err == nil || engine.HintOf(err) == "" {
		t.Errorf("the same name with another plan: %v", err)
	}
	got, _, err := Load(ctx, client, p.Name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, got); diff != "" {
		t.Errorf("the plan came back as (-put +got):\n%s", diff)
	}
	control := NewControl(client, p.Name)
	control.age = time.Hour // a slow machine reads no sooner
	for _, desire := range []v1alpha1.Desire{v1alpha1.DesirePause, v1alpha1.DesireRollback, v1alpha1.DesireRun} {
		before, err := control.Desire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := SetDesire(ctx, client, p.Name, desire); err != nil {
			t.Fatal(err)
		}
		if got, err := control.Desire(ctx); err != nil || got != before {
			t.Errorf("desire %q is read as %q again at once, %v", before, got, err)
		}
		control.Fresh()
		if got, err := control.Desire(ctx); err != nil || got != desire {
			t.Errorf("desire %q reads as %q, %v", desire, got, err)
		}
	}
	all, err := List(ctx, client)
	if err != nil || len(all) != 1 || all[0].Name != p.Name {
		t.Errorf("list: %v, %v", all, err)
	}
	if _, _, err := Load(ctx, client, "none"); !apierrors.IsNotFound(err) || engine.HintOf(err) == "" {
		t.Errorf("a migration that is not there: %v", err)
	}
}
