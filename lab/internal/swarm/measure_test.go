package swarm

import (
	"strings"
	"testing"
	"time"
)

func TestEstimate(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"3 nodes in 3 waves, 22 steps, about 3 min 20 s, by what such steps took": 200 * time.Second,
		"500 nodes in 9 waves, 2,022 steps, about 4 h, by what":                   4 * time.Hour,
		"500 nodes in 9 waves, 2,022 steps, about 4 h 10 min, by what":            4*time.Hour + 10*time.Minute,
		"22 steps, about 40 s, by":                                                40 * time.Second,
		"no runbook":                                                              0,
	} {
		if got := Estimate(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// TestSums: metrics are added up by verb and resource, and the names of verbs are the same as in the audit log.
func TestSums(t *testing.T) {
	got := sums(`# HELP apiserver_request_total Counter
apiserver_request_total{code="200",group="theseus.dev",resource="probereports",subresource="",verb="LIST"} 7
apiserver_request_total{code="429",group="theseus.dev",resource="probereports",subresource="",verb="LIST"} 1
apiserver_request_total{code="200",group="",resource="pods",subresource="status",verb="APPLY"} 2e+1
apiserver_request_total_other{resource="pods",verb="GET"} 5
`, "apiserver_request_total")
	if len(got) != 2 || got["LIST probereports"] != 8 || got[key("patch", "pods", "status")] != 20 {
		t.Errorf("%v", got)
	}
	since := Load{Requests: got}.Since(
		Load{Requests: map[string]float64{"LIST probereports": 8, "PATCH pods/status": 5}})
	if len(since.Requests) != 1 || since.Requests["PATCH pods/status"] != 15 {
		t.Errorf("%v", since.Requests)
	}
}

// TestPrint: writes are of all clients and of every verb that writes, and a gate's share of the reports includes what a
// watch brings.
func TestPrint(t *testing.T) {
	var out strings.Builder
	report := Report{Nodes: 10, Pods: 20, Estimate: 200 * time.Second, Apply: Run{Said: "  1.0 gate: pass\n" +
		"  2.0 gate: pass\n", Took: 100 * time.Second, CPU: 7 * time.Second, Disk: 3e6, Peak: 5 << 20},
		Load: Load{Requests: map[string]float64{"PATCH probereports": 400, "POST pods": 100, "GET pods": 900},
			Theseus: map[string]float64{"GET leases": 40}, Agents: map[string]float64{"GET leases": 110},
			Bytes: map[string]float64{"LIST probereports": 1e6}, Watched: sums(
				`apiserver_watch_events_sizes_sum{group="theseus.dev",resource="probereports",version="v1alpha1"} 3e+06`,
				"apiserver_watch_events_sizes_sum")}}
	if err := report.Print(&out); err != nil {
		t.Fatal(err)
	}
	said := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"10 20 3m20s 1m40s 0.50 0 5 7 3 ", "1400 40 4 11 5.0 1.0 4.0 2 200 ",
		"GET leases 0 40 4.0 11.0 0.0"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

// TestWorkloads: there are as many pods as are promised, by a cluster of any size.
func TestWorkloads(t *testing.T) {
	text, count := workloads(25, 20)
	if count != 25*20 || strings.Contains(text, "%!") || strings.Count(text, "kind: Deployment") != 50 ||
		strings.Count(text, "kind: Namespace") != 3 {
		t.Errorf("%d pods, of\n%s", count, text)
	}
}
