package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
)

func TestEvidence(t *testing.T) {
	start := time.Unix(1_800_000_000, 5).UTC()
	later := start.Add(time.Minute)
	result := func(id string, since time.Time, sent int64) v1alpha1.PathResult {
		return v1alpha1.PathResult{ID: "n/old>" + id, Since: since, Sent: sent, Answered: sent}
	}
	collect := func(t *testing.T, e *Evidence, results ...v1alpha1.PathResult) {
		t.Helper()
		w := newWorld(t, nil)
		w.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1alpha1.ProbePlanSpec{
			Paths: []v1alpha1.Path{{ID: "n/old>b"}, {ID: "n/old>a"}}}})
		w.put("ProbeReport", &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Status: v1alpha1.ProbeReportStatus{Paths: results}})
		if err := e.Collect(context.Background(), w.Actor); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name    string
		reports [][]v1alpha1.PathResult
		want    []v1alpha1.PathResult
	}{
		{"a counter grows", [][]v1alpha1.PathResult{{result("a", start, 1)}, {result("a", start, 9)}},
			[]v1alpha1.PathResult{result("a", start, 9)}},
		{"a report comes late", [][]v1alpha1.PathResult{{result("a", start, 9)}, {result("a", start, 1)}},
			[]v1alpha1.PathResult{result("a", start, 9)}},
		{"a counter restarts", [][]v1alpha1.PathResult{{result("a", start, 9)}, {result("a", later, 2)}},
			[]v1alpha1.PathResult{result("a", start, 9), result("a", later, 2)}},
		{"in order", [][]v1alpha1.PathResult{{result("b", start, 1), result("a", later, 2)}, {result("a", start, 3)}},
			[]v1alpha1.PathResult{result("a", start, 3), result("a", later, 2), result("b", start, 1)}},
		{"a path ends", [][]v1alpha1.PathResult{{result("a", start, 3)}, nil},
			[]v1alpha1.PathResult{result("a", start, 3)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := NewEvidence(Collected{})
			for _, results := range test.reports {
				collect(t, e, results...)
				// Every process goes on from what the one before kept on disk.
				var kept Collected
				if err := json.Unmarshal(jsonOf(e.Document()), &kept); err != nil {
					t.Fatal(err)
				}
				e = NewEvidence(kept)
			}
			document := e.Document()
			if !reflect.DeepEqual(document.Results, test.want) {
				t.Errorf("%+v", document.Results)
			}
			if len(document.Paths) != 2 || document.Paths[0].ID != "n/old>a" {
				t.Errorf("paths %+v", document.Paths)
			}
		})
	}
}

func TestEvidenceOfNothing(t *testing.T) {
	e := NewEvidence(Collected{})
	if err := e.Collect(context.Background(), newWorld(t, nil).Actor); err != nil {
		t.Error(err)
	}
	if document := e.Document(); len(document.Paths)+len(document.Results) != 0 {
		t.Errorf("%+v", document)
	}
}

// TestEvidenceOfStrangers: a node says what it measured itself, of paths that it was asked for. A line of its report
// about another node's path, or about a path that no plan has, is ignored, and is told once.
func TestEvidenceOfStrangers(t *testing.T) {
	w := newWorld(t, nil)
	var said []string
	w.Note = func(line string) { said = append(said, line) }
	for _, node := range []string{"n", "m"} {
		w.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.ProbePlanSpec{
			Paths: []v1alpha1.Path{{ID: node + "/old>x/old:udp"}}}})
	}
	for _, node := range []string{"n", "m"} {
		report := &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: node}}
		for _, id := range []string{"n/old>x/old:udp", "m/old>x/old:udp", node + "/old>nobody/asked", "no id"} {
			report.Status.Paths = append(report.Status.Paths, v1alpha1.PathResult{ID: id, Sent: 9, Answered: 9})
		}
		w.put("ProbeReport", report)
	}
	e := NewEvidence(Collected{})
	for range 2 {
		if err := e.Collect(context.Background(), w.Actor); err != nil {
			t.Fatal(err)
		}
	}
	var counted []string
	for _, result := range e.Document().Results {
		counted = append(counted, result.ID)
	}
	if want := []string{"m/old>x/old:udp", "n/old>x/old:udp"}; !reflect.DeepEqual(counted, want) {
		t.Errorf("counted %q", counted)
	}
	if len(said) != 2 || !strings.Contains(said[0], "the report of m ") ||
		!strings.Contains(said[1], "the report of n ") {
		t.Errorf("said %q", said)
	}
	// What was kept on disk says so too, for the report.
	if kept := NewEvidence(e.Document()).Document().Foreign; len(kept) != 2 || kept["n"] == "" || kept["m"] == "" {
		t.Errorf("kept %v", kept)
	}
	// The gate reads through the same door: what another node says of n's path does not count for n.
	reports, err := w.probeReports(context.Background())
	if err != nil || len(reports) != 2 {
		t.Fatalf("%d reports, %v", len(reports), err)
	}
	for _, report := range reports {
		for _, result := range report.Status.Paths {
			if !strings.HasPrefix(result.ID, report.Name+"/") {
				t.Errorf("%s speaks of %s", report.Name, result.ID)
			}
		}
	}
}

// TestEvidencePacked: packed results are evidence as others are, also of strangers. A report whose packed results
// cannot be read is none, which is told once, and a gate waits for the node.
func TestEvidencePacked(t *testing.T) {
	w := newWorld(t, nil)
	var said []string
	w.Note = func(line string) { said = append(said, line) }
	for _, node := range []string{"n", "m", "o"} {
		w.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.ProbePlanSpec{
			Generation: 2, Paths: []v1alpha1.Path{{ID: node + "/old>x/old:udp",
				Source: v1alpha1.Endpoint{Node: node}}}}})
		report := &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: v1alpha1.ProbeReportStatus{
			Generation: 2, Seq: 7, Paths: []v1alpha1.PathResult{{ID: "n/old>x/old:udp", Sent: 9, Answered: 9},
				{ID: "m/old>x/old:udp", Sent: 8, Answered: 8}}}}
		if loss.Pack(&report.Status); node == "o" {
			report.Status.Packed = "AQ=="
		}
		w.put("ProbeReport", report)
	}
	e := NewEvidence(Collected{})
	for range 2 {
		if err := e.Collect(context.Background(), w.Actor); err != nil {
			t.Fatal(err)
		}
	}
	var counted []string
	for _, result := range e.Document().Results {
		counted = append(counted, fmt.Sprint(result.ID, " ", result.Sent))
	}
	if want := []string{"m/old>x/old:udp 8", "n/old>x/old:udp 9"}; !reflect.DeepEqual(counted, want) {
		t.Errorf("counted %q", counted)
	}
	if len(said) != 3 || !strings.Contains(said[0], "the report of m holds a result of a path that starts elsewhere") ||
		!strings.Contains(said[2], "the report of o is ignored: read its packed results: unexpected EOF") {
		t.Errorf("said %q", said)
	}
	glance, err := (&Gate{Actor: w.Actor, Since: []v1alpha1.ProbeReport{}}).Look(context.Background(), 0)
	if err != nil || glance.Pass || !strings.Contains(glance.Reason, "o reports on plan 0 instead of 2") {
		t.Errorf("%+v, %v", glance, err)
	}
}

// TestEvidenceChanged: news is all that is more than probes with the expected result, and a report of a version that
// was read is not read again.
func TestEvidenceChanged(t *testing.T) {
	start := time.Unix(1_800_000_000, 0).UTC()
	w := newWorld(t, nil)
	w.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "1"},
		Spec: v1alpha1.ProbePlanSpec{
			Paths: []v1alpha1.Path{{ID: "n/old>a"}, {ID: "n/old>b", Denied: true}}}})
	e := NewEvidence(Collected{})
	e.Changed()
	version := 1
	report := v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1alpha1.ProbeReportStatus{
		Paths: []v1alpha1.PathResult{{ID: "n/old>a", Since: start}, {ID: "n/old>b", Since: start}},
		Parts: []v1alpha1.Part{{Name: "old", Since: start}}}}
	shut, open := &report.Status.Paths[1], &report.Status.Paths[0]
	for _, test := range []struct {
		name        string
		change      func()
		grown, news bool
	}{
		{"first report", func() {}, true, true},
		{"answered", func() { open.Sent, open.Answered, shut.Sent = 9, 9, 9 }, true, false},
		{"lost", func() { open.Sent = 10 }, true, true},
		{"answered after a loss", func() { open.Sent, open.Answered = 20, 19 }, true, false},
		{"leaked", func() { shut.Sent, shut.Answered = 10, 1 }, true, true},
		{"blocked after a leak", func() { shut.Sent = 20 }, true, false},
		{"a gap begins", func() { open.Open = &v1alpha1.Gap{From: start, Probes: 1} }, true, true},
		{"a gap ends", func() { open.Open, open.Gaps = nil, []v1alpha1.Gap{*open.Open} }, true, true},
		{"a stall", func() { open.Stalls = []v1alpha1.Gap{{From: start}} }, true, true},
		{"as many stalls as fit, and other ones",
			func() { open.Stalls = []v1alpha1.Gap{{From: start.Add(time.Second)}} }, true, true},
		{"a prober restarts", func() { report.Status.Parts[0].Since = start.Add(time.Second) }, true, true},
		{"a prober was gone", func() { report.Status.Parts[0].Gone = []v1alpha1.Absence{{From: start}} }, true, true},
		{"a count begins", func() { open.Since = start.Add(time.Second) }, true, true},
		{"the same version", func() { version-- }, false, false},
		{"answered again", func() { open.Sent, open.Answered = 100, 99 }, true, false},
	} {
		test.change()
		version++
		report.ResourceVersion = fmt.Sprint(version)
		w.put("ProbeReport", &report)
		if err := e.Collect(t.Context(), w.Actor); err != nil {
			t.Fatal(err)
		}
		if grown, news := e.Changed(); grown != test.grown || news != test.news {
			t.Errorf("%s: grown %v, news %v", test.name, grown, news)
		}
	}
}
