package bench

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestQuantiles: exact ones, of known values in any order.
func TestQuantiles(t *testing.T) {
	var micros []int64
	for i := range int64(1000) {
		micros = append(micros, (i*7919)%1000+1) // 1 to 1000, shuffled
	}
	got := NewLatency(1010, micros, []int64{3, 1, 2})
	if want := (Latency{500, 990, 999, 1000, 1010, 1000, 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got.Lost() != 10 {
		t.Errorf("%d lost", got.Lost())
	}
	if none := NewLatency(7, nil, nil); none != (Latency{Offered: 7}) {
		t.Errorf("%+v", none)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{nil, Spread{}}, {[]float64{4}, Spread{4, 4, 4}}, {[]float64{9, 1, 4}, Spread{4, 1, 9}}, {[]float64{9, 1, 4, 6}, Spread{5, 1, 9}},
	} {
		if got := SpreadOf(c.values); got != c.want {
			t.Errorf("%v: %+v", c.values, got)
		}
	}
}

func TestValidate(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
	bad := Bounds{Runs: 0, Duration: time.Hour, Rate: 1e6, Megabits: -1, MaxRoundTrip: time.Hour}
	err := bad.Validate()
	for _, want := range []string{"--runs 0 is not between 1 and 20", "--duration 1h0m0s is not between 1s and 1m0s", "--rate 1000000 is not", "--throughput -1 is not", "--max-round-trip"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// TestCost: what is agreed to is what the tasks add up to.
func TestCost(t *testing.T) {
	b := Bounds{Runs: 2, Duration: 10 * time.Second, Rate: 1000, Megabits: 80, MaxRoundTrip: time.Second}
	plan := b.Plan(b.Tasks([]Paths{{Name: SameNode}}, "10.96.0.1:80"), nil)
	// Two measurements of TCP at 10 MB/s for 10 s, twice.
	want := Cost{Time: 2 * 7 * (10*time.Second + Settle), Bytes: 400e6, Connects: 5000, Questions: 2000,
		Operations: 2*(5000+10000+2500+10000+1000) + 2*6*5000} // and probes beside six of them
	if got := plan.Cost(); got != want {
		t.Errorf("%s", cmp.Diff(want, got))
	}
}

func TestRises(t *testing.T) {
	got := Rises(map[string]int64{"a": 1, "b": 5, "reset": 9}, map[string]int64{"a": 3, "b": 5, "new": 2, "reset": 1})
	if diff := cmp.Diff(map[string]int64{"a": 2, "new": 2}, got); diff != "" {
		t.Error(diff)
	}
}

// TestTable: a result with everything that may happen, as people see it.
func TestTable(t *testing.T) {
	b := Defaults()
	tasks := b.Tasks([]Paths{{Name: SameNode}}, "10.96.0.1:80")
	latency := func(p50, answered int64) *Latency {
		return &Latency{P50: p50, P99: p50 * 4, P999: p50 * 20, Max: p50 * 30, Offered: 2500, Answered: answered, SenderP99: 80}
	}
	r := Result{Client: "node-1", Other: "node-2", Bounds: b, Tasks: tasks}
	for run := 1; run <= b.Runs; run++ {
		n := float64(run)
		for i, task := range tasks {
			s := Sample{Task: i, Run: run, Value: float64(task.Rate) - n, Latency: latency(100+int64(run), 2500), Beside: latency(200*int64(run), 2499)}
			switch {
			case task.Kind == RoundTrip:
				s.Beside, s.Value = nil, 0
			case task.Kind == Stream:
				s.Latency, s.Retransmits = nil, int64(run*(task.Streams-1))
			case task.Kind == Datagrams:
				s.Value, s.Latency = 1500+n, latency(1500, 1900)
				s.Latency.SenderP99 = 1500
			case task.Kind == Questions:
				s = Sample{Task: i, Run: run, Error: "the pod's /etc/resolv.conf has no name server of the cluster"}
			}
			r.Samples = append(r.Samples, s)
		}
	}
	r.Rows, r.Counters = Rows(tasks, r.Samples), map[string]map[string]int64{"node-2": {"softnet.processed": 9, "udp.RcvbufErrors": 4}, "node-1": {"tcp.OutSegs": 3}}
	r.Notes = []string{"a note"}
	r.Says = r.Words()
	var got bytes.Buffer
	for _, line := range b.Plan(tasks, nil).Cost().Text(b) {
		got.WriteString(line + "\n")
	}
	got.WriteString("\n")
	if err := r.WriteTable(&got); err != nil {
		t.Fatal(err)
	}
	const file = "testdata/table.txt"
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Error(diff)
	}
}
