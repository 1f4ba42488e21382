package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

func TestPace(t *testing.T) {
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	p := pace{every: publishInterval}
	must := func(second int, want time.Duration) {
		t.Helper()
		if got := p.interval(at(second)); got != want {
			t.Errorf("after %d s reports come every %s, not %s", second, got, want)
		}
	}
	asked := func(number, millis, lasts int64) *v1alpha1.Asked {
		return &v1alpha1.Asked{Number: number, ReportMillis: millis, ForMillis: lasts}
	}
	must(0, publishInterval)
	p.plan(20*time.Second, at(0)) // of a large cluster
	must(0, 2500*time.Millisecond)
	must(5, 20*time.Second)
	if again := p.again(at(5)).Add(p.every); !again.Equal(at(15)) {
		t.Errorf("a report that was not written is due again at %s", again)
	}
	p.plan(10*time.Second, at(0))
	must(5, 10*time.Second)
	if again := p.again(at(5)).Add(p.every); !again.Equal(at(10)) {
		t.Errorf("a report that was not written is due again at %s", again)
	}
	ask := func(plan string, asked *v1alpha1.Asked, now time.Time) bool {
		faster, after := p.ask(plan, asked, now)
		if after != 0 {
			t.Errorf("an answer after %s, though nothing is to be measured", after)
		}
		return faster
	}
	if ask("node", nil, at(10)) || !ask("node", asked(1, 1000, 20000), at(10)) {
		t.Error("the first ask does not count")
	}
	must(10, time.Second)
	must(29, time.Second)
	must(30, 10*time.Second)
	if ask("node", asked(1, 1000, 20000), at(31)) {
		t.Error("the same ask counts again")
	}
	if !ask("all", asked(2, 2000, 10000), at(40)) || ask("node", asked(1, 1000, 20000), at(41)) {
		t.Error("an ask of one plan makes that of another new")
	}
	must(41, 2*time.Second)
	p.plan(20*time.Second, at(42)) // the paths changed meanwhile
	must(49, 2*time.Second)
	must(50, 20*time.Second)
	if ask("node", asked(3, 60000, 60000), at(60)) {
		t.Error("an ask makes reports come less often")
	}
	must(60, 20*time.Second)
	ask("node", asked(4, 0, 1<<50), at(60))
	must(60, leastAsked)
	must(60+119, leastAsked)
	must(60+120, 20*time.Second)
}

// TestAnswer: a question is answered once, after the time that it asks for, unless a regular report comes no later.
// Every report says how long it has measured since each question.
func TestAnswer(t *testing.T) {
	now := time.Now()
	p := pace{every: 10 * time.Second}
	if got := p.answers(now); got != nil {
		t.Errorf("nothing was asked, and it answers %v", got)
	}
	question := &v1alpha1.Asked{Number: 5, ReportMillis: 2000, ForMillis: 10000, MeasureMillis: 2500}
	faster, after := p.ask("node", question, now)
	if faster || after <= 2500*time.Millisecond || after > 4500*time.Millisecond || p.interval(now) != p.every ||
		!p.answer.Equal(now.Add(2500*time.Millisecond)) {
		t.Errorf("faster %t, after %s, from %s", faster, after, p.answer.Sub(now))
	}
	if faster, after := p.ask("node", question, now.Add(time.Second)); faster || after != 0 {
		t.Errorf("the same question again: faster %t, after %s", faster, after)
	}
	question.Number, question.ReportMillis = 4, 10000
	if faster, after := p.ask("all", question, now.Add(time.Second)); faster || after != 0 ||
		!p.answer.Equal(now.Add(3500*time.Millisecond)) {
		t.Errorf("the regular report answers: faster %t, after %s, from %s", faster, after, p.answer.Sub(now))
	}
	got := p.answers(now.Add(3 * time.Second))
	if len(got) != 2 || got[0].Number != 4 || got[0].Measured != 2*time.Second || got[1].Number != 5 ||
		got[1].Measured != 3*time.Second || !got[1].Seen.Equal(now) {
		t.Errorf("it answers %+v", got)
	}
}

// TestAnswerWaits: a report that must answer waits a little for counts that are new enough, and then for none.
func TestAnswerWaits(t *testing.T) {
	begun := time.Now()
	at := func(millis int) time.Time { return begun.Add(time.Duration(millis) * time.Millisecond) }
	p := pace{every: 10 * time.Second}
	if p.waits(at(0), at(0)) {
		t.Error("it waits though nothing is asked")
	}
	p.ask("node", &v1alpha1.Asked{Number: 5, ReportMillis: 1000, MeasureMillis: 2500}, begun)
	for _, test := range []struct {
		counted, read int
		waits         bool
	}{{2000, 2499, false}, {2000, 2500, true}, {2499, 2900, true}, {2500, 2900, false}, {0, 3499, true},
		{0, 3500, false}} {
		if got := p.waits(at(test.counted), at(test.read)); got != test.waits {
			t.Errorf("counts of %d ms, read at %d ms: it waits %t", test.counted, test.read, got)
		}
	}
	for read, owes := range map[int]bool{2499: false, 2500: true, 122_499: true, 122_500: false} {
		if p.owes(at(read)) != owes {
			t.Errorf("read at %d ms, it owes an answer: %t", read, !owes)
		}
	}
	p.told = at(2500)
	if p.owes(at(2600)) {
		t.Error("it owes an answer though it has answered")
	}
	if p.waits(at(2000), at(2600)) {
		t.Error("it waits though it has answered")
	}
}

// TestAnswerByPlan: what was measured before the node had the plan of its report is no answer to a question before it.
func TestAnswerByPlan(t *testing.T) {
	begun := time.Now()
	at := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	p := pace{every: 10 * time.Second}
	p.ask("all", &v1alpha1.Asked{Number: 5, ReportMillis: 1000, MeasureMillis: 2500}, at(0))
	p.paths(at(1))
	if got := p.answers(at(3)); len(got) != 1 || got[0].Measured != 2*time.Second || !got[0].Seen.Equal(at(1)) {
		t.Errorf("it answers %+v", got)
	}
	if got := p.answer.Sub(begun); got != 3500*time.Millisecond {
		t.Errorf("the answer is due after %s", got)
	}
	p.paths(at(5))
	if got := p.answers(at(3)); got[0].Measured != 0 {
		t.Errorf("counts of before the plan: %+v", got)
	}
	if got := p.answer.Sub(begun); got != 3500*time.Millisecond {
		t.Errorf("an answer that was due is due anew after %s", got)
	}
}

// TestFullDue: a report in full is due once in its time, and at another moment on each node.
func TestFullDue(t *testing.T) {
	const every, nodes = 5 * time.Minute, 300
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	minutes := map[time.Duration]int{}
	for i := range nodes {
		p := publisher{agent: &Agent{Name: fmt.Sprintf("node-%d", i)}, fullEvery: every, fullAt: begun}
		var first time.Duration
		for at := time.Second; at <= 4*every; at += time.Second {
			if !p.fullDue(begun.Add(at)) {
				continue
			}
			if first == 0 {
				first = at
				minutes[at/time.Minute]++
			} else if begun.Add(at).Sub(p.fullAt) != every {
				t.Fatalf("%s is due %s after the one before", p.agent.Name, begun.Add(at).Sub(p.fullAt))
			}
			p.fullAt = begun.Add(at)
		}
		if first == 0 || first > every {
			t.Fatalf("%s is first due after %s", p.agent.Name, first)
		}
	}
	for minute := range time.Duration(5) {
		if minutes[minute] < nodes/10 {
			t.Errorf("%d of %d are due in minute %d: %v", minutes[minute], nodes, minute, minutes)
		}
	}
}

func TestSpread(t *testing.T) {
	early, late := 0, 0
	for range 1000 {
		switch got := spread(time.Second); {
		case got <= 0 || got > time.Second:
			t.Fatalf("%s is no part of a second", got)
		case got < time.Second/2:
			early++
		default:
			late++
		}
	}
	if early < 300 || late < 300 {
		t.Errorf("%d early and %d late: all report at once", early, late)
	}
	if spread(0) <= 0 {
		t.Error("a ticker does not take no time")
	}
}
