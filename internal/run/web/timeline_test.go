package web_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
)

// told are the lines of a timeline, newest first.
func told(feed *web.Feed) (all []string) {
	for _, m := range feed.State().Timeline.Moments {
		all = append(all, strings.TrimSpace(m.At.UTC().Format(time.TimeOnly)+" "+m.Kind+": "+m.Text+" "+m.During))
	}
	return all
}

// indexOf is the index of the first line that contains a text.
func indexOf(t *testing.T, lines []string, text string) int {
	t.Helper()
	i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, text) })
	if i < 0 {
		t.Fatalf("no line with %q:\n%s", text, strings.Join(lines, "\n"))
	}
	return i
}

// TestTimeline: steps, losses, events, marks, pauses and failures are in one list, newest first, each loss with the
// step in which it began.
func TestTimeline(t *testing.T) {
	r, lost := lossy(t)
	feed := web.NewFeed(r.Plan)
	if at := feed.State().Timeline; len(at.Moments) != 0 || !strings.Contains(at.Note, "only guards store them") {
		t.Errorf("before the run: %+v", at)
	}
	at := lost.Add(10 * time.Second)
	r.Events = []observe.Event{{At: lost.Add(-time.Second), Object: "node worker-002", What: "is not Ready: gone"}}
	shown := r.Show(feed, 0, at)
	seq := shown
	state, err := engine.Replay(r.Journal(at))
	if err != nil {
		t.Fatal(err)
	}
	more := func(one engine.Record) {
		seq++
		one.Seq, one.At = seq, at.Add(time.Duration(seq-shown)*time.Second)
		feed.Publish(web.About{Held: true}, at, func(b *web.Board) { b.Record(state, one) })
	}
	asked, _ := json.Marshal(map[string]string{"text": "node pool b"})
	more(engine.Record{Event: engine.Marked, Data: asked, By: "ann@laptop"})
	more(engine.Record{Event: engine.Paused})
	more(engine.Record{Event: engine.Resumed, By: "bob@bastion"})
	more(engine.Record{Event: engine.Acted, Action: "a", Result: engine.ResultFailed, Error: "no route"})
	lines := told(feed)
	order := []int{indexOf(t, lines, "failed: a: FAILED: no route"), indexOf(t, lines, "run: resumed by bob@bastion"),
		indexOf(t, lines, "run: paused"), indexOf(t, lines, "mark: node pool b (ann@laptop)"),
		indexOf(t, lines, "02:10:30 loss: 12 paths, 2,240 lost probes, longest 4 s from worker-002/"),
		indexOf(t, lines, "02:10:29 event: node worker-002 is not Ready: gone"),
		indexOf(t, lines, "run: started by ada@bastion-1")}
	if !slices.IsSorted(order) || order[0] != 0 || order[len(order)-1] != len(lines)-1 {
		t.Errorf("%v of %d:\n%s", order, len(lines), strings.Join(lines, "\n"))
	}
	if loss := lines[order[4]]; !strings.Contains(loss, "began during [") {
		t.Errorf("no step beside the loss: %s", loss)
	}
	indexOf(t, lines, "step: began: [1/")
	indexOf(t, lines, "step: done after ")
	if note := feed.State().Timeline.Note; !strings.Contains(note, "are known until 02:10:40 UTC") {
		t.Errorf("note %q", note)
	}
	feed.Publish(web.About{Unseen: errors.New("configmaps is forbidden").Error()}, at, nil)
	if note := feed.State().Timeline.Note; !strings.Contains(note, "it cannot be read now: configmaps is forbidden") {
		t.Errorf("note %q", note)
	}
}

// TestTimelineIsBounded: of a long run the newest 200 are shown, and the others are counted, also where much happens
// in the cluster.
func TestTimelineIsBounded(t *testing.T) {
	r := webtest.New(t, 60)
	for i := range 500 {
		r.Events = append(r.Events, observe.Event{At: r.Begin.Add(time.Duration(i) * time.Second / 2),
			Object: fmt.Sprintf("node n%d", i), What: "was cordoned"})
	}
	feed := web.NewFeed(r.Plan)
	steps := 0
	for _, one := range r.Records {
		if one.Event == engine.StepBegan || one.Event == engine.StepDone {
			steps++
		}
	}
	end := r.Records[len(r.Records)-1].At.Add(time.Second)
	r.Show(feed, 0, end)
	at := feed.State().Timeline
	if len(at.Moments) != 200 || at.More != steps+2+500-200 {
		t.Errorf("%d shown, %d more; the run has %d steps' moments", len(at.Moments), at.More, steps)
	}
	if !slices.IsSortedFunc(at.Moments, func(a, b web.Moment) int { return b.At.Compare(a.At) }) {
		t.Error("not newest first")
	}
	if at.Moments[0].Text != "finished: done" {
		t.Errorf("the newest is %+v", at.Moments[0])
	}
	var some kube.Collected
	feed.Publish(web.About{}, end, func(b *web.Board) { b.Measure(some, nil, end) })
	if note := feed.State().Timeline.Note; !strings.Contains(note, "only guards store them") {
		t.Errorf("note %q", note)
	}
}

// TestOnlyGuardsKeepEvents: a page of another plan says that it has no events, and does not read them.
func TestOnlyGuardsKeepEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := follow(t, webtest.New(t, 30), 20*time.Second)
		w.look(4)
		read := 0
		w.dynamic.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			read++
			return false, nil, nil
		})
		w.look(80)
		if note := w.Feed.State().Timeline.Note; read > 0 || !strings.HasSuffix(note, "only guards store them") {
			t.Errorf("read %d times: %q", read, note)
		}
	})
}

// TestEventsAreRead: what the run keeps of the cluster's events comes to the page while the run goes on. If it cannot
// be read, the page says so for as long as that is so.
func TestEventsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := webtest.New(t, 3)
		r.Plan.Guarded = &kind.Guard{}
		w := follow(t, r, 20*time.Second)
		w.look(4)
		note := func() string { return w.Feed.State().Timeline.Note }
		if !strings.Contains(note(), "the run has not stored any") {
			t.Errorf("before the first look: %q", note())
		}
		if err := run.Keep(w.Dir, kube.Collected{Looks: []kube.Looks{{From: w.at(), To: w.at().Add(time.Second)}},
			Events: []observe.Event{{At: w.at(), Object: "node worker-001", What: "was cordoned"}}}); err != nil {
			t.Fatal(err)
		}
		w.look(34)
		indexOf(t, told(w.Feed), "event: node worker-001 was cordoned")
		if !strings.Contains(note(), "are known until") || strings.Contains(note(), "cannot be read") {
			t.Errorf("after it: %q", note())
		}
		w.fail["configmaps"] = forbidden("configmaps")
		w.look(40)
		if !strings.Contains(note(), "it cannot be read now: ") {
			t.Errorf("not read: %q", note())
		}
		indexOf(t, told(w.Feed), "event: node worker-001 was cordoned")
	})
}

// TestDuring: a loss began in a step, in the rollback of one, or in neither. Which one it was is no part of the words.
func TestDuring(t *testing.T) {
	p := webtest.New(t, 5).Plan
	place := fmt.Sprintf("[2/%d] %s", len(p.Steps), p.Steps[1].Title)
	for want, one := range map[string]report.Moment{
		"during " + place:                 {Step: p.Steps[1].ID},
		"during the rollback of " + place: {Step: "back there", Undoing: p.Steps[1].ID},
		"rollback of " + p.Steps[1].ID:    {Step: "rollback of " + p.Steps[1].ID},
		"while paused":                    {Step: "while paused"},
	} {
		if got := web.During(p, one); got != want {
			t.Errorf("%+v: %q, not %q", one, got, want)
		}
	}
}
