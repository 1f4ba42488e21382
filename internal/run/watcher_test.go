package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// both is what two processes have measured together.
func both(a, b kube.Collected) Seen {
	all := kube.NewEvidence(a)
	all.Merge(b)
	return SeenIn(all.Document())
}

// TestWatcher: a watcher shows and keeps what the run on this machine has kept and what the reports say, at every look,
// and at the end what it has read after the last one.
func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir, view := newStream(t, false), t.TempDir(), &shown{}
		before := manyReports(1)
		if err := Keep(dir, before); err != nil {
			t.Fatal(err)
		}
		w := Watcher{Dir: dir, View: view}
		check := func(when string) {
			t.Helper()
			want := both(before, s.evidence.Document())
			if now, err := kept(dir); err != nil || view.last != want || SeenIn(now) != want {
				t.Errorf("%s: %+v is shown and %+v kept, not %+v (%v)", when, view.last, SeenIn(now), want, err)
			}
		}
		for range 3 {
			s.next()
			w.Look(t.Context(), s.actor)
			check("at a look")
			time.Sleep(time.Second)
		}
		w.pace.next, w.pace.nextNews = time.Now().Add(time.Minute), time.Now().Add(time.Minute)
		s.next()
		shown := view.last
		if w.Look(t.Context(), s.actor); view.last != shown {
			t.Errorf("%+v is shown although it is too early", view.last)
		}
		w.Close()
		check("at the end")
		w.Close()
		check("when it is closed again")
		if said := view.String(); said != "" {
			t.Errorf("said: %s", said)
		}
	})
}

// TestWatcherAndRun: a watcher replaces nothing that a run on the same machine keeps meanwhile.
func TestWatcherAndRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir, view := newStream(t, false), t.TempDir(), &shown{}
		w := Watcher{Dir: dir, View: view}
		s.next()
		w.Look(t.Context(), s.actor)
		ofRun := manyReports(1)
		ofRun.Baseline, ofRun.EventsDropped = []v1alpha1.ProbeReport{{}}, 7
		if err := Keep(dir, ofRun); err != nil {
			t.Fatal(err)
		}
		before, err := os.ReadFile(filepath.Join(dir, EvidenceFile))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s.next()
		w.Look(t.Context(), s.actor)
		w.Close()
		if after, err := os.ReadFile(filepath.Join(dir, EvidenceFile)); err != nil || string(after) != string(before) {
			t.Errorf("the watcher has replaced what the run has kept (%v)", err)
		}
		now, err := kept(dir)
		if want := both(ofRun, s.evidence.Document()); err != nil || SeenIn(now) != want ||
			len(now.Baseline) != 1 || now.EventsDropped != 7 {
			t.Errorf("kept is %+v, not %+v; %d, %d (%v)", SeenIn(now), want, len(now.Baseline), now.EventsDropped, err)
		}
		r := &Run{Dir: dir, View: view}
		if again := r.evidence().Document(); SeenIn(again) != SeenIn(now) {
			t.Errorf("the next run begins with %+v, not %+v", SeenIn(again), SeenIn(now))
		}
		if said := view.String(); said != "" {
			t.Errorf("said: %s", said)
		}
	})
}

// TestWatchers: one of two watchers keeps evidence. When it ends, the other one does, with all that was kept.
func TestWatchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newStream(t, false), t.TempDir()
		first, second := Watcher{Dir: dir, View: &shown{}}, Watcher{Dir: dir, View: &shown{}}
		second.Look(t.Context(), s.actor) // there is nothing yet
		second.Close()
		s.next()
		first.Look(t.Context(), s.actor)
		time.Sleep(time.Second)
		s.next()
		second.Look(t.Context(), s.actor)
		if now, err := kept(dir); err != nil || SeenIn(now) == SeenIn(s.evidence.Document()) {
			t.Errorf("the second watcher keeps %+v (%v)", SeenIn(now), err)
		}
		if err := write(filepath.Join(dir, WatchedFile), manyReports(1), 1<<30); err != nil { // by the first
			t.Fatal(err)
		}
		first.Close()
		time.Sleep(time.Second)
		s.next()
		second.Look(t.Context(), s.actor)
		second.Close()
		if now, err := kept(dir); err != nil || SeenIn(now) != both(manyReports(1), s.evidence.Document()) {
			t.Errorf("after the first has ended, %+v is kept (%v)", SeenIn(now), err)
		}
	})
}

// TestWatcherSays: evidence that cannot be kept or read is said once, and what is read is shown all the same.
func TestWatcherSays(t *testing.T) {
	for name, test := range map[string]struct {
		dir  func(dir string) (string, error)
		want string
	}{
		"no folder": {func(dir string) (string, error) { return filepath.Join(dir, "absent"), nil },
			"warning: the evidence for the report cannot be kept on this machine: "},
		"damaged": {func(dir string) (string, error) {
			return dir, os.WriteFile(filepath.Join(dir, EvidenceFile), nil, 0o600)
		}, "warning: earlier evidence on this machine cannot be read: "},
		"damaged by another": {func(dir string) (string, error) {
			return dir, os.WriteFile(filepath.Join(dir, WatchedFile), nil, 0o600)
		},
			"warning: earlier evidence cannot be read: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, view := newStream(t, false), &shown{}
				dir, err := test.dir(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				w := Watcher{Dir: dir, View: view}
				for range 3 {
					s.next()
					w.Look(t.Context(), s.actor)
					time.Sleep(time.Second)
				}
				w.Close()
				if said := view.String(); view.last != SeenIn(s.evidence.Document()) ||
					strings.Count(said, test.want) != 1 || strings.Count(said, "\n") != 1 {
					t.Errorf("%+v is shown, and said: %s", view.last, said)
				}
			})
		})
	}
}
