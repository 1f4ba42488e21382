package run

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
)

// everything is evidence with every field.
func everything() kube.Collected {
	all, at := manyReports(2), time.Date(2026, 11, 26, 9, 0, 0, 5000, time.UTC)
	gap := v1alpha1.Gap{From: at, Millis: 12.5, Probes: 3, Cause: "connection \"refused\" <ä>",
		Second: v1alpha1.Second{Answered: 1, SilentMillis: 2}}
	all.Paths[0].Denied, all.Paths[0].Query, all.Paths[0].Second = true, "a.b", "10.0.0.1:1"
	all.Results[0].Gaps, all.Results[0].Open, all.Results[0].Dropped, all.Results[0].Stalls = []v1alpha1.Gap{gap, gap},
		&gap, 2, []v1alpha1.Gap{gap}
	all.Foreign = map[string]string{"a": "<b>"}
	all.Baseline = []v1alpha1.ProbeReport{{Status: v1alpha1.ProbeReportStatus{Paths: all.Results[:2],
		Parts: []v1alpha1.Part{all.Parts[0].Part}}}}
	all.Baseline[0].Name = "node-1"
	all.Events, all.EventsDropped = []observe.Event{{}}, 7
	all.Looks, all.State = []kube.Looks{{From: at, To: at.Add(time.Minute)}}, &observe.State{At: at}
	return all
}

// TestDecode: evidence is read as json.Unmarshal reads it, in the order in which any version has written it.
func TestDecode(t *testing.T) {
	for _, document := range []kube.Collected{{}, {Paths: []v1alpha1.Path{}, Results: []v1alpha1.PathResult{}},
		everything()} {
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		sorted, err := json.MarshalIndent(fields, "", "  ") // "baseline" comes first, and there are spaces
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(text), string(sorted) + "\n"} {
			var want kube.Collected
			if err := json.Unmarshal([]byte(text), &want); err != nil {
				t.Fatal(err)
			}
			got, err := decode(strings.NewReader(text), int64(len(text)))
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if _, err := decode(strings.NewReader(text), int64(len(text))-1); err == nil ||
				!strings.Contains(err.Error(), "more than") {
				t.Errorf("one byte too many: %v", err)
			}
			for n := range min(len(text)-2, 2000) {
				if got, err := decode(strings.NewReader(text[:n]), 1<<20); err == nil || len(got.Paths) > 0 {
					t.Fatalf("the first %d bytes are read: %v", n, err)
				}
			}
		}
	}
	for _, text := range []string{"", "null", "[]", "{} {}", "{}x", `{"paths":{}}`, `{"paths":[1]}`,
		`{"paths":[],"paths":[]}`, `{"results":7}`, `{"state":[]}`} {
		if _, err := decode(strings.NewReader(text), 1<<20); err == nil {
			t.Errorf("%q is read", text)
		}
	}
	if _, err := decode(strings.NewReader(`{"a later field":{"b":[1]},"paths":[{"id":"a","later":1}]}`),
		1<<20); err != nil {
		t.Errorf("evidence of a later version: %v", err)
	}
}
