package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/proof/probe"
)

// versions makes the API give each version of a report a number, and refuse a patch of another one.
func (in *api) versions() {
	number := 0
	in.PrependReactor("*", "probereports", func(action clienttesting.Action) (bool, runtime.Object, error) {
		number++
		switch action := action.(type) {
		case clienttesting.CreateActionImpl:
			action.Object.(*unstructured.Unstructured).SetResourceVersion(strconv.Itoa(number))
		case clienttesting.PatchActionImpl:
			old, err := in.Tracker().Get(gvr("ProbeReport"), v1alpha1.Namespace, action.Name)
			if err != nil {
				return true, nil, err
			}
			report := old.DeepCopyObject().(*unstructured.Unstructured)
			version := report.GetResourceVersion()
			text, err := json.Marshal(report)
			if err == nil {
				text, err = jsonpatch.MergePatch(text, action.Patch)
			}
			if err == nil {
				err = json.Unmarshal(text, &report.Object)
			}
			if err == nil && report.GetResourceVersion() != version {
				err = apierrors.NewConflict(gvr("ProbeReport").GroupResource(), action.Name, nil)
			}
			if err == nil {
				report.SetResourceVersion(strconv.Itoa(number))
				err = in.Tracker().Update(gvr("ProbeReport"), report, v1alpha1.Namespace)
			}
			return true, report, err
		}
		return false, nil, nil
	})
}

// shortReport is the report in the cluster as readers have it, the number of the one in full, and whether there is a
// short one.
func shortReport(t *testing.T, a *Agent) (status v1alpha1.ProbeReportStatus, full int64, short bool) {
	t.Helper()
	var report v1alpha1.ProbeReport
	if !get(t, a, "ProbeReport", "node-1", &report) {
		t.Fatal("no report")
	}
	full, text := report.Status.Seq, report.Annotations[v1alpha1.AnnotationShort]
	if err := loss.Restore(&report.Status, text); err != nil {
		t.Fatal(err)
	}
	return report.Status, full, text != ""
}

// TestShortReports: while all is well, reports are short, until one in full is due. News are in full at once. A
// successor goes on from the last one of either form.
func TestShortReports(t *testing.T) {
	a, client := newAgent(t)
	client.versions()
	p := &publisher{agent: a, fullEvery: time.Hour}
	begun := time.Now().Add(-time.Minute)
	status := func(sent, lost int64) v1alpha1.ProbeReportStatus {
		at := begun.Add(time.Duration(sent) * time.Second)
		result := v1alpha1.PathResult{ID: "node-1/old>a", Sent: sent, Answered: sent - lost, Since: begun, Last: at}
		for range lost {
			result.Gaps = append(result.Gaps, v1alpha1.Gap{From: begun, Millis: 5, Probes: 1})
		}
		return v1alpha1.ProbeReportStatus{Generation: 1, Paths: []v1alpha1.PathResult{result},
			Parts: []v1alpha1.Part{{Name: "host", Pod: "a", Since: begun, At: at}}}
	}
	full := int64(0)
	for n, test := range []struct {
		name       string
		sent, lost int64
		before     func()
		short      bool
	}{
		{"the first", 10, 0, func() {}, false},
		{"well", 11, 0, func() {}, true},
		{"well again", 12, 0, func() {}, true},
		{"a loss", 13, 1, func() {}, false},
		{"well after a loss", 14, 1, func() {}, true},
		{"one in full is due", 15, 1, func() { p.fullAt = time.Now().Add(-time.Hour) }, false},
		{"well since", 16, 1, func() {}, true},
		{"the plan wants all in full", 17, 1, func() { p.fullEvery = 0 }, false},
		{"and not any more", 18, 1, func() { p.fullEvery = time.Hour }, true},
		{"somebody wrote the report", 19, 1, func() {
			patch := []byte(`{"status":{"seq":3}}`)
			if _, err := a.resource("ProbeReport").Patch(t.Context(), "node-1", "application/merge-patch+json", patch,
				metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"somebody deleted the report", 20, 1, func() {
			if err := a.resource("ProbeReport").Delete(t.Context(), "node-1", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"well in the new one", 21, 1, func() {}, true},
		{"somebody wrote the same number", 22, 1, func() {
			patch := []byte(`{"status":{"generation":1}}`)
			if _, err := a.resource("ProbeReport").Patch(t.Context(), "node-1", "application/merge-patch+json", patch,
				metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"well after that", 23, 1, func() {}, true},
		{"a new agent", 24, 1, func() { p = &publisher{agent: a, fullEvery: time.Hour} }, false},
	} {
		test.before()
		if err := p.try(t.Context(), status(test.sent, test.lost)); err != nil {
			t.Fatal(err)
		}
		if !test.short {
			full = int64(n + 1)
		}
		read, seq, short := shortReport(t, a)
		if short != test.short || seq != full || read.Seq != int64(n+1) || read.Paths[0].Sent != test.sent ||
			read.Paths[0].Answered != test.sent-test.lost || time.Since(read.At) > time.Minute ||
			!read.Parts[0].At.Equal(begun.Add(time.Duration(test.sent)*time.Second)) {
			t.Errorf("%s: short %v, number %d, in full %d: %+v", test.name, short, read.Seq, seq, read)
		}
		p.last = status(test.sent, test.lost)
		if news := p.news(status(test.sent+1, test.lost)); news {
			t.Errorf("%s: one more answer is news", test.name)
		}
		if !p.news(status(test.sent+1, test.lost+1)) {
			t.Errorf("%s: a loss is no news", test.name)
		}
	}
}

// TestShortSuccessor: a successor knows when a prober was last there from a short report. If that cannot be read, it
// does not know, and excuses nothing.
func TestShortSuccessor(t *testing.T) {
	begun := time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	for _, bad := range []bool{false, true} {
		a, _ := newAgent(t)
		p := &publisher{agent: a, fullEvery: time.Hour}
		for sent := range int64(3) {
			at := begun.Add(time.Duration(sent) * time.Second)
			if err := p.try(t.Context(), v1alpha1.ProbeReportStatus{Generation: 1, Paths: []v1alpha1.PathResult{{
				ID: "node-1/host>a", Sent: sent + 1, Answered: sent + 1, Since: begun, Last: at}},
				Parts: []v1alpha1.Part{{Name: "host", Pod: "a", Since: begun, At: at}}}); err != nil {
				t.Fatal(err)
			}
		}
		if bad {
			text := "AQ=="
			patch, _ := json.Marshal(map[string]metadata{"metadata": (&publisher{}).metadata(&text, "")})
			if _, err := a.resource("ProbeReport").Patch(t.Context(), "node-1", "application/merge-patch+json", patch,
				metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		next := &publisher{agent: a}
		if err := next.findSeq(t.Context()); err != nil {
			t.Fatal(err)
		}
		want, seq := begun.Add(2*time.Second), int64(3)
		if bad {
			seq = 1
		}
		if bad && len(next.parts) > 0 || next.seq != seq || !bad && !next.parts[0].At.Equal(want) {
			t.Errorf("bad %v: number %d: %+v", bad, next.seq, next.parts)
		}
	}
}

// TestShortAfterOlder: an agent that comes after one of an older version does not believe what that said of probers.
func TestShortAfterOlder(t *testing.T) {
	begun := time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	a, client := newAgent(t)
	client.versions()
	p := &publisher{agent: a, fullEvery: time.Hour}
	status := func(sent int64) v1alpha1.ProbeReportStatus {
		at := begun.Add(time.Duration(sent) * time.Second)
		return v1alpha1.ProbeReportStatus{Generation: 1, Paths: []v1alpha1.PathResult{{ID: "node-1/host>a", Sent: sent,
			Answered: sent, Since: begun, Last: at}}, Parts: []v1alpha1.Part{{Name: "host", Since: begun, At: at}}}
	}
	for sent := range int64(3) {
		if err := p.try(t.Context(), status(sent+1)); err != nil {
			t.Fatal(err)
		}
	}
	older := status(5)
	older.Seq = 2
	older.Parts[0].Since = begun.Add(5 * time.Second)
	older.Parts[0].Gone = []v1alpha1.Absence{{From: begun.Add(time.Second), To: begun.Add(5 * time.Second)}}
	patch, _ := json.Marshal(map[string]any{"status": older})
	if _, err := a.resource("ProbeReport").Patch(t.Context(), "node-1", "application/merge-patch+json", patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	p = &publisher{agent: a, fullEvery: time.Hour}
	for sent := range int64(2) {
		if err := p.try(t.Context(), status(sent+6)); err != nil {
			t.Fatal(err)
		}
		read, full, short := shortReport(t, a)
		if full != 3 || read.Seq != sent+3 || short != (sent > 0) || len(read.Parts) != 1 ||
			len(read.Parts[0].Gone) > 0 {
			t.Errorf("number %d, in full %d, short %v: %+v", read.Seq, full, short, read)
		}
	}
}

// TestShortRefused: after a short report that could not be written, the next is in full, whatever the API server said.
func TestShortRefused(t *testing.T) {
	a, client := newAgent(t)
	client.versions()
	p := &publisher{agent: a, fullEvery: time.Hour}
	begun, failing := time.Now(), false
	client.PrependReactor("patch", "probereports", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, errors.New("no room")
	})
	for n, test := range []struct{ failing, short bool }{{false, false}, {false, true}, {true, true}, {false, false},
		{false, true}} {
		failing = test.failing
		sent := int64(n + 1)
		err := p.try(t.Context(), v1alpha1.ProbeReportStatus{Generation: 1, Paths: []v1alpha1.PathResult{{
			ID: "node-1/host>a", Sent: sent, Answered: sent, Since: begun,
			Last: begun.Add(time.Duration(sent) * time.Second)}}})
		if (err != nil) != failing {
			t.Fatal(err)
		}
		if read, _, short := shortReport(t, a); short != test.short || !failing && read.Paths[0].Sent != sent {
			t.Errorf("report %d: short %v: %+v", n, short, read)
		}
	}
}

// TestFirstAnswers: the first report of a node may answer a question, and none that was not written does.
func TestFirstAnswers(t *testing.T) {
	a, client := newAgent(t)
	p := &publisher{agent: a, trouble: trouble{log: a.Log, what: "cannot publish"},
		answers: []loss.Answer{{Number: 7, Measured: time.Second}}}
	status := v1alpha1.ProbeReportStatus{Generation: 1, Paths: []v1alpha1.PathResult{{ID: "node-1/host>a", Sent: 1}}}
	failing := true
	client.PrependReactor("create", "probereports", func(clienttesting.Action) (bool, runtime.Object, error) {
		return failing, nil, errors.New("no room")
	})
	if p.publish(t.Context(), status) {
		t.Error("it says that it wrote what was refused")
	}
	failing = false
	if !p.publish(t.Context(), status) || p.publish(t.Context(), status) {
		t.Error("it does not say that it wrote, or that it wrote the same again")
	}
	var report v1alpha1.ProbeReport
	want := loss.AnswersText(1, p.answers)
	if !get(t, a, "ProbeReport", "node-1", &report) || report.Annotations[v1alpha1.AnnotationAnswer] != want ||
		len(report.Annotations) != 1 || report.Labels[v1alpha1.LabelManaged] == "" {
		t.Errorf("the report has %v and %v", report.Annotations, report.Labels)
	}
}

// TestBegun: the first probes of a path, and its first answers, are news. More of them are none.
func TestBegun(t *testing.T) {
	paths := func(counts ...int64) (all []v1alpha1.PathResult) {
		for i := 0; i < len(counts); i += 2 {
			if counts[i] >= 0 {
				all = append(all, v1alpha1.PathResult{ID: fmt.Sprint(i), Sent: counts[i], Answered: counts[i+1]})
			}
		}
		return all
	}
	for i, test := range []struct {
		before, now []v1alpha1.PathResult
		begun       bool
	}{
		{nil, nil, false},
		{nil, paths(0, 0), false},
		{nil, paths(1, 0), true},
		{paths(1, 0), paths(2, 0), false},
		{paths(1, 0), paths(2, 1), true},
		{paths(1, 1), paths(2, 1), false},
		{paths(1, 1, 5, 5), paths(-1, 0, 6, 6), false},
		{paths(-1, 0, 5, 5), paths(0, 0, 6, 6), false},
		{paths(-1, 0, 5, 5), paths(1, 1, 6, 6), true},
		{paths(5, 5), paths(6, 6, 1, 1), true},
	} {
		if got := begun(test.before, test.now); got != test.begun {
			t.Errorf("%d: %t", i, got)
		}
	}
}

// TestNewsAtOnce: a loss is reported at once, although the plan wants a report only every few minutes, in full or not.
func TestNewsAtOnce(t *testing.T) {
	for _, fullMillis := range []int64{86_400_000, 0} {
		t.Run(fmt.Sprint(fullMillis), func(t *testing.T) {
			t.Parallel()
			newsAtOnce(t, fullMillis)
		})
	}
}

func newsAtOnce(t *testing.T, fullMillis int64) {
	a, client := newAgent(t)
	if err := probe.MakeFolders(dir(a), networks()); err != nil {
		t.Fatal(err)
	}
	start(t, a)
	one := from("node-1/old>node-2/old/udp", "node-1", "old")
	plan := probePlan(t, 3, one)
	for field, millis := range map[string]int64{"reportMillis": 200_000, "fullMillis": fullMillis} {
		if err := unstructured.SetNestedField(plan.Object, millis, "spec", field); err != nil {
			t.Fatal(err)
		}
	}
	client.wait(t, "probeplans")
	if _, err := a.resource("ProbePlan").Create(t.Context(), plan, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	write := func(result v1alpha1.PathResult) {
		t.Helper()
		result.ID, result.Since, result.Last = one.ID, begun, begun.Add(time.Duration(result.Sent)*time.Second)
		if err := probe.WriteResults(probe.ResultsPath(dir(a), "old"), probe.ResultsFile{Generation: 3, Since: begun,
			Paths: []v1alpha1.PathResult{result}}); err != nil {
			t.Fatal(err)
		}
	}
	write(v1alpha1.PathResult{Sent: 5, Answered: 5})
	var report v1alpha1.ProbeReport
	has := func(sent int64) func() bool {
		return func() bool {
			return get(t, a, "ProbeReport", "node-1", &report) && len(report.Status.Paths) == 1 &&
				report.Status.Generation == 3 && report.Status.Paths[0].Sent == sent
		}
	}
	eventually(t, "the first results are reported", has(5))
	write(v1alpha1.PathResult{Sent: 6, Answered: 6})
	if fullMillis > 0 {
		eventually(t, "a short report", func() bool {
			return has(5)() && report.Annotations[v1alpha1.AnnotationShort] != ""
		})
	}
	// The first results were news. From here on, a regular report comes every 200 s, far
	// less often than any cluster asks for.
	time.Sleep(time.Until(begun.Add(path.News(200*time.Second) + time.Second)))
	lost := time.Now()
	write(v1alpha1.PathResult{Sent: 8, Answered: 7, Gaps: []v1alpha1.Gap{{From: begun, Millis: 5, Probes: 1}}})
	eventually(t, "the loss is reported", has(8))
	if took := time.Since(lost); took > 5*time.Second { // a busy machine; it is one second
		t.Errorf("it took %s", took)
	}
}

// TestQuestionAnswered: an agent that is asked a question reports once more, after it has measured for so long,
// although the plan wants a report only every minute, and again if the API server refuses that.
func TestQuestionAnswered(t *testing.T) {
	a, client := newAgent(t)
	if err := probe.MakeFolders(dir(a), networks()); err != nil {
		t.Fatal(err)
	}
	var refused atomic.Int32
	client.PrependReactor("patch", "probereports", func(clienttesting.Action) (bool, runtime.Object, error) {
		return refused.Add(-1) >= 0, nil, errors.New("connection refused")
	})
	start(t, a)
	one := from("node-1/old>node-2/old/udp", "node-1", "old")
	plan := probePlan(t, 3, one)
	set := func(value any, fields ...string) {
		if err := unstructured.SetNestedField(plan.Object, value, append([]string{"spec"}, fields...)...); err != nil {
			t.Fatal(err)
		}
	}
	set(int64(60_000), "reportMillis")
	client.wait(t, "probeplans")
	plans := a.resource("ProbePlan")
	if _, err := plans.Create(t.Context(), plan, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	begun, sent := time.Now(), int64(0)
	var report v1alpha1.ProbeReport
	var wrote time.Time
	reported := func() bool { // a prober goes on counting
		if time.Since(wrote) < 400*time.Millisecond {
			return get(t, a, "ProbeReport", "node-1", &report) && report.Status.Generation == 3
		}
		sent++
		wrote = time.Now()
		if err := probe.WriteResults(probe.ResultsPath(dir(a), "old"), probe.ResultsFile{Generation: 3, Since: begun,
			At: wrote, Paths: []v1alpha1.PathResult{{ID: one.ID, Sent: sent, Answered: sent, Since: begun,
				Last: wrote}}}); err != nil {
			t.Fatal(err)
		}
		return get(t, a, "ProbeReport", "node-1", &report) && report.Status.Generation == 3
	}
	eventually(t, "the first results are reported", reported)
	time.Sleep(time.Until(begun.Add(beginning + 3*time.Second))) // from here on every minute
	reported()
	before, asked := report.Status.Seq, time.Now()
	others := probePlan(t, 0) // a question that is for others, which is not answered
	others.SetName(v1alpha1.PlanOfAll)
	if err := unstructured.SetNestedMap(others.Object, map[string]any{"number": int64(6), "reportMillis": int64(500),
		"measureMillis": int64(500), "of": loss.Whom(map[string]bool{"node-2": true})}, "spec", "asked"); err != nil {
		t.Fatal(err)
	}
	if _, err := plans.Create(t.Context(), others, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused.Store(1) // the first answer
	set(map[string]any{"number": int64(7), "reportMillis": int64(500), "forMillis": int64(60_000),
		"measureMillis": int64(1500)}, "asked")
	if _, err := plans.Update(t.Context(), plan, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	var answers struct {
		Seq int64         `json:"seq"`
		To  []loss.Answer `json:"to"`
	}
	eventually(t, "the question is answered", func() bool {
		text := report.Annotations[v1alpha1.AnnotationAnswer]
		return reported() && text != "" && json.Unmarshal([]byte(text), &answers) == nil && len(answers.To) == 1 &&
			answers.To[0].Measured >= 1500*time.Millisecond
	})
	if took := time.Since(asked); took > 20*time.Second || answers.To[0].Number != 7 ||
		answers.Seq != report.Status.Seq || answers.To[0].Seen.Before(asked) || answers.To[0].Measured > took {
		t.Errorf("after %s: %+v in report %d", took, answers, report.Status.Seq)
	}
	if n := report.Status.Seq - before; n != 1 {
		t.Errorf("it wrote %d reports", n)
	}
	read, _, _ := shortReport(t, a)
	until := answers.To[0].Seen.Add(answers.To[0].Measured)
	// the prober's file has the time of its counts
	if late := until.Sub(read.Paths[0].Last); late > 50*time.Millisecond {
		t.Errorf("it says that it measured for %s longer than its prober counted", late)
	}
}
