package journal

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// TestHandOver: a migration goes to the controller, back to a command line, and to the controller again, which tries
// again.
func TestHandOver(t *testing.T) {
	s, p := newServer(), samplePlan(t)
	if err := CreateInCluster(t.Context(), s, p); err != nil {
		t.Fatal(err)
	}
	spec := func() v1alpha1.MigrationSpec {
		t.Helper()
		migration, err := Get(t.Context(), s, p.Name)
		if err != nil {
			t.Fatal(err)
		}
		return migration.Spec
	}
	if is := spec(); !is.InCluster || is.Attempt != 0 || is.PlanHash != p.Hash {
		t.Errorf("begun: %+v", is)
	}
	if err := TakeBack(t.Context(), s, p.Name); err != nil {
		t.Fatal(err)
	}
	if is := spec(); is.InCluster {
		t.Errorf("taken back: %+v", is)
	}
	for attempt, desire := range []v1alpha1.Desire{v1alpha1.DesireRollback, v1alpha1.DesireRun} {
		if err := HandOver(t.Context(), s, p.Name, desire); err != nil {
			t.Fatal(err)
		}
		if is := spec(); !is.InCluster || is.Attempt != attempt+1 || is.Desire != desire {
			t.Errorf("handed over: %+v", is)
		}
	}
}

// TestWindows: a migration is created with its windows.
func TestWindows(t *testing.T) {
	s, p := newServer(), samplePlan(t)
	night := v1alpha1.Window{Days: []string{"Tue"}, From: "22:00", To: "05:00", TimeZone: "Europe/Berlin"}
	if err := CreateInCluster(t.Context(), s, p, night, night); err != nil {
		t.Fatal(err)
	}
	if migration, err := Get(t.Context(), s, p.Name); err != nil || len(migration.Spec.Windows) != 2 ||
		migration.Spec.Windows[0].TimeZone != "Europe/Berlin" {
		t.Errorf("%+v, %v", migration, err)
	}
}

// TestApprovals: a user approves a plan once, and approvals of other plans and migrations do not count.
func TestApprovals(t *testing.T) {
	s := newServer()
	for i, one := range []struct {
		migration, hash, user string
		created               bool
	}{
		{"a", "h1", "bob", true}, {"a", "h1", "alice", true}, {"a", "h1", "bob", false},
		{"a", "h2", "carol", true}, {"b", "h1", "dave", true},
	} {
		if created, err := Approve(t.Context(), s, one.migration, one.hash, one.user, ""); created != one.created ||
			err != nil {
			t.Errorf("%d: created %v, %v", i, created, err)
		}
	}
	approvals, err := Approvals(t.Context(), s, "a", "h1")
	if err != nil {
		t.Fatal(err)
	}
	var users []string
	for _, one := range approvals {
		users = append(users, one.Spec.User)
	}
	if got := strings.Join(users, " "); got != "alice bob" {
		t.Errorf("approved by %s", got)
	}
}

// TestTail: a reader gets each record once, over several pages, and nothing that does not follow from what it has read.
func TestTail(t *testing.T) {
	s, c := newCluster(t)
	tail, records := NewTail(s, "flannel-to-calico-1"), sample(3*perPage+2)
	read := func() []engine.Record {
		t.Helper()
		fresh, err := tail.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fresh
	}
	if fresh := read(); len(fresh) != 0 || tail.State().Phase != engine.PhaseNew {
		t.Errorf("an empty journal has %d records", len(fresh))
	}
	var got []engine.Record
	for i, n := range []int{1, 1, perPage, 2 * perPage} {
		add(t, c, records[len(got):len(got)+n]...)
		fresh := read()
		if len(fresh) != n {
			t.Errorf("read %d: %d records, not %d", i, len(fresh), n)
		}
		got = append(got, fresh...)
	}
	if again := read(); len(again) != 0 || tail.State().Seq != len(got) {
		t.Errorf("%d records once more, state at %d", len(again), tail.State().Seq)
	}
	if head, err := engine.Chained(got); err != nil || head != tail.State().Head {
		t.Errorf("head %q, not %q, %v", tail.State().Head, head, err)
	}
}

// TestTailBetweenReads: the writer fills a page and begins others between any two reads of the reader, which gets each
// record once.
func TestTailBetweenReads(t *testing.T) {
	for between := range 4 {
		s, c := newCluster(t)
		tail, records := NewTail(s, "flannel-to-calico-1"), sample(4*perPage)
		add(t, c, records[:perPage-1]...)
		got, err := tail.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		left := between
		s.got = func(kind schema.GroupVersionResource) {
			if kind != pageResource {
				return
			}
			if left--; left < 0 {
				s.got = nil
				add(t, c, records[perPage-1:]...)
			}
		}
		for range 3 {
			fresh, err := tail.Next(t.Context())
			if err != nil {
				t.Fatalf("with the writer after read %d: %v", between+1, err)
			}
			got = append(got, fresh...)
		}
		if diff := cmp.Diff(plain(t, records[:len(got)]), plain(t, got)); diff != "" {
			t.Errorf("with the writer after read %d (-want +got):\n%s", between+1, diff)
		}
		if s.got == nil && len(got) != len(records) {
			t.Errorf("with the writer after read %d: %d of %d records", between+1, len(got), len(records))
		}
	}
}

// TestTailBroken: a record that was edited on its way is refused, and so is a journal that lost a page.
func TestTailBroken(t *testing.T) {
	s, c := newCluster(t)
	tail, records := NewTail(s, "flannel-to-calico-1"), sample(perPage)
	add(t, c, records[:2]...)
	if _, err := tail.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	edited := records[2]
	edited.By = "someone else"
	add(t, c, edited)
	_, err := tail.Next(t.Context())
	var broken *engine.Broken
	if !errors.As(err, &broken) || broken.Record.Seq != 3 || !strings.HasPrefix(broken.Place, "JournalPage ") {
		t.Errorf("%v", err)
	}
	if err := s.Resource(pageResource).Namespace(v1alpha1.Namespace).Delete(t.Context(),
		pageName("flannel-to-calico-1", 1), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := tail.Next(t.Context()); !errors.Is(err, engine.ErrNeedsPerson) ||
		!strings.Contains(err.Error(), "page 1 of the journal") {
		t.Errorf("%v", err)
	}
}
