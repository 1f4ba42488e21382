package swarm

import (
	"bytes"
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

// TestRow: a row has as many columns as its head, requests by verb for each node, and no leases among its writes.
func TestRow(t *testing.T) {
	report := Report{Nodes: 10, Pods: 200, Times: 0.1, Estimate: 200 * time.Second,
		Apply: Run{Took: 100 * time.Second, Said: "  1.0 gate: pass\n"},
		Load: Load{Requests: map[string]float64{"PATCH probereports": 400, "GET pods": 900, "PUT leases": 700},
			Theseus: map[string]float64{"GET leases": 40, "GET pods": 10, "POST nodetasks": 5}},
		Usage: map[string]Usage{"nodes": {CPU: 20 * time.Second, Peak: 100 << 20}}}
	row := report.Row()
	head, rule, _ := strings.Cut(Head, "\n")
	if n := strings.Count(head, "|"); strings.Count(row, "|") != n || strings.Count(rule, "|") != n {
		t.Errorf("%d columns of\n%s%s", n, Head, row)
	}
	for _, want := range []string{"| 10 | 20 | 0.1 | 3m20s | 1m40s | 0.50 | 0 | 1 |", "| 5.5, GET 5.0, POST 0.5 |",
		"| 4.0 | 0.0200 | 10.0 |"} {
		if !strings.Contains(row, want) {
			t.Errorf("%q is not in\n%s", want, row)
		}
	}
}

// TestUsage: what a process took is read from its files in /proc, whatever its name.
func TestUsage(t *testing.T) {
	parent, cpu, ok := times("42 (a ) b) S 7 42 42 0 -1 4194560 9 0 0 0 150 50 0 0 20 0 1 0 100 0 0")
	if !ok || parent != 7 || cpu != 2*time.Second {
		t.Errorf("%d, %s, %t", parent, cpu, ok)
	}
	for _, bad := range []string{"", "42 (a", "42 (a) S", "42 (a) S x 42 42 0 -1 4194560 9 0 0 0 150 50 0"} {
		if _, _, ok := times(bad); ok {
			t.Errorf("%q is read", bad)
		}
	}
	if got := peak("Name:\ta\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"); got != 2<<20 {
		t.Errorf("%d", got)
	}
	c := Cluster{Options: Options{Kube: "/k/kube", Nodal: "/k/swarm"}}
	for argv, want := range map[string]string{"/k/kube kube-apiserver --x": "kube-apiserver", "/k/kube": "",
		"/k/swarm --nodes 3": "nodes", "/bin/other": ""} {
		if got := c.named(bytes.Split([]byte(argv), []byte(" "))); got != want {
			t.Errorf("%s is %q", argv, got)
		}
	}
}

// TestLeases: leases of many nodes are renewed seldom enough.
func TestLeases(t *testing.T) {
	for nodes, want := range map[int]time.Duration{20: 10 * time.Second, 100: 10 * time.Second,
		1000: 100 * time.Second, 5000: 500 * time.Second} {
		if got := leaseEvery(nodes); got != want {
			t.Errorf("%d nodes renew theirs every %s", nodes, got)
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
