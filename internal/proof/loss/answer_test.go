package loss

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// answering lets a node's latest report answer a question, which it saw so long before.
func (n *near) answering(node int, number int64, measured time.Duration) {
	report := &n.now[node]
	report.Annotations = map[string]string{v1alpha1.AnnotationAnswer: AnswersText(report.Status.Seq, []Answer{
		{Number: 3}, {Number: number, Seen: report.Status.At.Add(-measured), Measured: measured}})}
}

// TestQuestion: one report that answers the gate's question is enough, and no other report is: none that answers
// another question, or was counted too early, or before the question.
func TestQuestion(t *testing.T) {
	const number = 7
	for name, test := range map[string]struct {
		answer func(*near) // of node-1; the others answer
		pass   bool
		says   string
	}{
		"it answers":           {func(n *near) { n.answering(1, number, 2500*time.Millisecond) }, true, "none lost"},
		"it says nothing":      {func(*near) {}, false, "node-1 has published 1 of 2"},
		"of another gate":      {func(n *near) { n.answering(1, number+1, time.Minute) }, false, "1 of 2"},
		"a part of the number": {func(n *near) { n.answering(1, 70+number, time.Minute) }, false, "1 of 2"},
		"too early":            {func(n *near) { n.answering(1, number, 2499*time.Millisecond) }, false, "1 of 2"},
		"of a report before": {func(n *near) {
			n.answering(1, number, time.Minute)
			n.now[1].Status.Seq++ // by an agent of an older version
		}, false, "node-1 has measured for"},
		"no answer": {func(n *near) {
			n.now[1].Annotations = map[string]string{v1alpha1.AnnotationAnswer: `{"seq":12,"to":[{"number":7`}
		}, false, "1 of 2"},
		"too long": {func(n *near) {
			n.answering(1, number, time.Minute)
			n.now[1].Annotations[v1alpha1.AnnotationAnswer] += strings.Repeat(" ", maxAnswers)
		}, false, "1 of 2"},
		"its prober hangs": {func(n *near) {
			n.answering(1, number, 2500*time.Millisecond)
			hung := &n.now[1].Status.Paths[0]
			hung.Sent, hung.Answered, hung.Last = 101, 101, after(10100) // one more than at hand, before the gate
		}, false, "node-1>node-2 was last measured at"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNear(t, false, Limits{})
			n.watch.Question(number)
			n.asked(14)
			n.answering(0, number, 2500*time.Millisecond)
			n.answering(2, number, 3*time.Second)
			test.answer(n)
			n.must(n.look(14), test.pass, !test.pass, test.says)
		})
	}
}

// TestQuestionLater: a node that has answered stays heard, and one that has seen the question measures since then.
func TestQuestionLater(t *testing.T) {
	n := newNear(t, false, Limits{Bake: 5 * time.Second})
	n.watch.Question(7)
	n.watch.Question(8) // as the gate asks anew
	n.asked(12)
	n.answering(0, 7, 5*time.Second)
	n.answering(1, 8, time.Second)
	n.answering(2, 8, time.Second)
	n.must(n.look(12), false, true, "node-1 has published 1 of 2")
	n.asked(13) // the questions are gone: the agents restarted
	n.must(n.look(13), false, true, "node-1 has measured for 2s of 5s")
	n.asked(16)
	n.must(n.look(16), true, false, "none lost")
	n.now = slices.Clone(n.now)
	n.now[0].Status.Seq = 1 // its report was deleted
	n.must(n.look(16), false, true, "node-0 has published 0 of 2")
}

// TestQuestionLast: the last probe of a path must be of the end of the watch, as far as it is decided by then. That the
// path was measured until the question, or until long before the end of a bake, is not enough.
func TestQuestionLast(t *testing.T) {
	for _, test := range []struct {
		denied         bool
		interval, bake int
		least          int // the earliest last probe that will do
	}{
		{false, 100, 0, 10290}, {true, 100, 0, 10290}, {true, 1000, 0, 8490}, {false, 10_000, 0, -9510},
		{false, 100, 1000, 10290}, {false, 100, 60_000, 67790}, {true, 100, 60_000, 67790},
	} {
		path := v1alpha1.Path{ID: "a", Denied: test.denied, IntervalMillis: test.interval}
		limits := Limits{Timeout: 2 * time.Second, Bake: time.Duration(test.bake) * time.Millisecond}
		for _, last := range []int{test.least, test.least - 1} {
			result := v1alpha1.PathResult{Sent: 1000, Last: after(last)}
			if !test.denied {
				result.Answered = result.Sent
			}
			got := wanting(limits, path, v1alpha1.PathResult{}, result, after(10000), after(0), after(100_000))
			if (got != "") != (last < test.least) {
				t.Errorf("%+v, the last of it at %d ms: %q", test, last, got)
			}
		}
	}
}

// TestQuestionStays: what a node has answered is enough, whatever its later reports are like.
func TestQuestionStays(t *testing.T) {
	n := newNear(t, false, Limits{})
	n.watch.Question(7)
	n.asked(14)
	for node := range 3 {
		n.answering(node, 7, 2500*time.Millisecond)
	}
	n.must(n.look(14), true, false, "none lost")
	n.asked(18)
	last := &n.now[1].Status.Paths[0].Last
	*last = last.Add(-3500 * time.Millisecond) // its counts are late, and an answer takes long
	n.must(n.look(18), true, false, "none lost")
}

// TestQuestionOnFormerPlan: what a node measured by its former plan is no answer, and no beginning of one.
func TestQuestionOnFormerPlan(t *testing.T) {
	n := newNear(t, false, Limits{})
	n.watch.Question(7)
	n.asked(13)
	for node := range 3 {
		n.answering(node, 7, 3*time.Second)
	}
	n.now[1].Status.Generation = 2
	n.must(n.look(13), false, true, "node-1 reports on plan 2 instead of 3")
	n.asked(14)
	n.answering(1, 7, time.Second) // since it has the plan
	n.now[1].Status.Generation = 3
	n.must(n.look(14), false, true, "node-1 has measured for 1s of 2.5s")
	n.asked(15)
	n.must(n.look(15), false, true, "node-1 has measured for 2s of 2.5s")
	n.asked(16)
	n.answering(1, 7, 3*time.Second)
	n.must(n.look(16), true, false, "none lost")
}

// FuzzAnswers: whatever a node writes, it answers no question but those in it, and none of another report.
func FuzzAnswers(f *testing.F) {
	f.Add(AnswersText(5, []Answer{{Number: 7, Measured: time.Second}}))
	f.Add(AnswersText(6, []Answer{{Number: 7}}))
	f.Add(`{"seq":5,"to":[{"number":7,"measured":-1}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		report := &v1alpha1.ProbeReport{Status: v1alpha1.ProbeReportStatus{Seq: 5}, ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{v1alpha1.AnnotationAnswer: text}}}
		answer, ok := answerTo(report, 7)
		has := strings.Contains(text, "7") && strings.Contains(text, "5")
		if ok && (answer.Number != 7 || !has) || !ok && answer != (Answer{}) {
			t.Errorf("%q: %+v, %t", text, answer, ok)
		}
	})
}
