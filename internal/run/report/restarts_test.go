package report

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestPartRestarts: the report says which of Theseus' own parts restarted, where and when. What Theseus made again is
// none.
func TestPartRestarts(t *testing.T) {
	begin := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	part := func(name, pod string, seconds int) v1alpha1.Part {
		return v1alpha1.Part{Name: name, Pod: pod, Since: begin.Add(time.Duration(seconds) * time.Second)}
	}
	report := func(node string, parts ...v1alpha1.Part) v1alpha1.ProbeReport {
		return v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: node},
			Status: v1alpha1.ProbeReportStatus{Parts: parts}}
	}
	in := Input{At: begin.Add(time.Hour), Reports: []v1alpha1.ProbeReport{
		report("b", part("agent", "y", 90), part("agent", "x", 0), part("host", "h", 0),
			part("new", "n", 5), part("new", "m", 50)),
		report("a", part("agent", "v", 0), part("host", "g", 0), part("host", "g", 30),
			part("old", "o", 0), part("old", "o", 20)),
		report("a", part("agent", "v", 0)), // again
	}}
	m := Build(in)
	got := m.Verdict.Notes
	want := []string{
		"The probe pod of a on the old network restarted at 12:00:20 UTC. " + whatCounts,
		"The prober of the host of a restarted at 12:00:30 UTC. " + whatCounts,
		"Theseus' agent on b restarted at 12:01:30 UTC. The agent sends and answers no probes, so no " +
			"probe is missing or excused.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
