package run

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/step"
)

// listener is a view that keeps what it is told.
type listener struct {
	View
	strings.Builder
}

func (l *listener) Say(text string) { l.WriteString(text + "\n") }

// TestPace: evidence is looked at at once where it has news, and after twenty times as long as a look took where probes
// were only answered. What could not be kept is kept as soon as it can be.
func TestPace(t *testing.T) {
	second := func(s int) time.Time { return time.Unix(1_800_000_000+int64(s), 0) }
	answered := manyReports(1)
	changed := map[string]func(*kube.Evidence){
		"nothing": func(*kube.Evidence) {},
		"news":    func(e *kube.Evidence) { e.Merge(answered) },
	}
	evidence := kube.NewEvidence(answered)
	var p pace
	for _, at := range []struct {
		second int
		what   string
		due    bool
		kept   bool
	}{
		{0, "nothing", true, true}, {2, "nothing", false, true}, // a look takes a second
		{3, "news", true, true}, {5, "news", false, true}, {6, "nothing", true, false}, {7, "nothing", false, true},
		{9, "nothing", true, true}, {60, "nothing", false, true},
	} {
		changed[at.what](evidence)
		due := p.due(second(at.second), evidence)
		if due != at.due {
			t.Errorf("second %d, %s: due %v", at.second, at.what, due)
		}
		if due {
			p.did(second(at.second), second(at.second+1), at.kept)
		}
	}
	p = pace{grown: true}
	p.did(second(0), second(1), true)
	p.grown = true
	if p.due(second(20), evidence) || !p.due(second(21), evidence) {
		t.Error("what was only answered is not looked at after 20 s")
	}
	p = pace{}
	p.did(second(0), second(600), true)
	if p.grown = true; p.due(second(659), evidence) || !p.due(second(660), evidence) {
		t.Error("after a look of 10 min, what was only answered is not looked at after 1 min")
	}
	p.did(second(0), second(600), true)
	if p.news = true; p.due(second(609), evidence) || !p.due(second(610), evidence) {
		t.Error("after a look of 10 min, news is not looked at after 10 s")
	}
}

// shown is a view that blocks for a while at its first figures, as a terminal that is stopped does.
type shown struct {
	listener
	blocks time.Duration
	last   Seen
}

func (s *shown) Evidence(now Seen) {
	time.Sleep(s.blocks)
	s.blocks, s.last = 0, now
}

// TestCollect: a view that blocks does not delay the next look, and a run ends with the figures that it keeps.
func TestCollect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream(t, false)
		s.next()
		view := &shown{blocks: 10 * time.Minute}
		r := &Run{Dir: t.TempDir(), View: view}
		evidence := kube.NewEvidence(kube.Collected{})
		stop := r.collect(t.Context(), s.actor, evidence)
		time.Sleep(5 * time.Minute)
		s.next()
		time.Sleep(5*time.Minute + 4*time.Second)
		now, err := kept(r.Dir)
		if want := SeenIn(s.evidence.Document()); err != nil || SeenIn(now) != want {
			t.Errorf("after the block %+v is kept, not %+v (%v)", SeenIn(now), want, err)
		}
		s.next()
		if err := evidence.Collect(t.Context(), s.actor); err != nil { // and no time is left for a look
			t.Fatal(err)
		}
		stop()
		now, err = kept(r.Dir)
		if want := SeenIn(now); err != nil || view.last != want || want.Sent == 0 {
			t.Errorf("the view ends with %+v, and %+v is kept (%v)", view.last, want, err)
		}
	})
}

// TestCompares: gates compare nodes where they are asked to, in plans of any version.
func TestCompares(t *testing.T) {
	for _, test := range []struct {
		gate *step.Gate
		want bool
	}{{nil, false}, {&step.Gate{}, false}, {&step.Gate{Compare: true}, true},
		{&step.Gate{Changed: []string{"a"}}, true}} {
		if got := compares(step.Step{Gate: test.gate}); got != test.want {
			t.Errorf("%+v: %v", test.gate, got)
		}
	}
}
