package kube

import (
	"context"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

func TestEvidence(t *testing.T) {
	start := time.Unix(1_800_000_000, 5).UTC()
	later := start.Add(time.Minute)
	result := func(id string, since time.Time, sent int64) v1alpha1.PathResult {
		return v1alpha1.PathResult{ID: id, Since: since, Sent: sent, Answered: sent}
	}
	collect := func(t *testing.T, e *Evidence, results ...v1alpha1.PathResult) {
		t.Helper()
		w := newWorld(t, nil)
		w.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: v1alpha1.ProbePlanSpec{
			Paths: []v1alpha1.Path{{ID: "b"}, {ID: "a"}}}})
		w.put("ProbeReport", &v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1alpha1.ProbeReportStatus{Paths: results}})
		if err := e.Collect(context.Background(), w.Actor); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name    string
		reports [][]v1alpha1.PathResult
		want    []v1alpha1.PathResult
	}{
		{"a counter grows", [][]v1alpha1.PathResult{{result("a", start, 1)}, {result("a", start, 9)}}, []v1alpha1.PathResult{result("a", start, 9)}},
		{"a report comes late", [][]v1alpha1.PathResult{{result("a", start, 9)}, {result("a", start, 1)}}, []v1alpha1.PathResult{result("a", start, 9)}},
		{"a counter restarts", [][]v1alpha1.PathResult{{result("a", start, 9)}, {result("a", later, 2)}},
			[]v1alpha1.PathResult{result("a", start, 9), result("a", later, 2)}},
		{"in order", [][]v1alpha1.PathResult{{result("b", start, 1), result("a", later, 2)}, {result("a", start, 3)}},
			[]v1alpha1.PathResult{result("a", start, 3), result("a", later, 2), result("b", start, 1)}},
		{"a path ends", [][]v1alpha1.PathResult{{result("a", start, 3)}, nil}, []v1alpha1.PathResult{result("a", start, 3)}},
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
			if len(document.Paths) != 2 || document.Paths[0].ID != "a" {
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
