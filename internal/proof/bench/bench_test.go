package bench

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestQuantiles: exact ones, of known values in any order, over all operations: those without an answer are the
// slowest.
func TestQuantiles(t *testing.T) {
	var micros []int64
	for i := range int64(1000) {
		micros = append(micros, (i*7919)%1000+1) // 1 to 1000, shuffled
	}
	for _, c := range []struct {
		offered  int64
		micros   []int64
		want     Latency
		answered string
	}{
		{1000, micros, Latency{P50: 500, P99: 990, P999: 999, Max: 1000, Offered: 1000, Answered: 1000, SenderP99: 3},
			"all"},
		{1010, micros, Latency{P50: 505, P99: 1000, P999: Over, Max: Over, Offered: 1010, Answered: 1000, SenderP99: 3},
			"one percent is lost"},
		{1053, micros, Latency{P50: 527, P99: Over, P999: Over, Max: Over, Offered: 1053, Answered: 1000, SenderP99: 3},
			"five percent are lost"},
		{5000, micros, Latency{P50: Over, P99: Over, P999: Over, Max: Over, Offered: 5000, Answered: 1000,
			SenderP99: 3}, "most are lost"},
		{4, []int64{4, 3, 2, 1}, Latency{P50: 2, P99: few, P999: few, Max: 4, Offered: 4, Answered: 4, SenderP99: 3},
			"four in all"},
		{200, micros[:200:200], Latency{P999: few, Offered: 200, Answered: 200, SenderP99: 3}, "200 in all"},
	} {
		got := NewLatency(c.offered, c.micros, []int64{3, 1, 2})
		if c.offered == 200 { // sorted by NewLatency
			c.want.P50, c.want.P99, c.want.Max = Micros(c.micros[99]), Micros(c.micros[197]), Micros(c.micros[199])
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.answered, got, c.want)
		}
		if got.Lost() != c.offered-int64(len(c.micros)) {
			t.Errorf("%s: %d lost", c.answered, got.Lost())
		}
	}
	if none := NewLatency(7, nil, nil); none != (Latency{P50: Over, P99: few, P999: few, Max: Over, Offered: 7}) {
		t.Errorf("%+v", none)
	}
}

// TestUnknownInJSON: what is not known is null, and a row made of it knows why: too few operations, or answers that
// came too late.
func TestUnknownInJSON(t *testing.T) {
	task := Task{Kind: Requests, Path: Service, Rate: 100, Duration: time.Second}
	row := func(offered int64, micros []int64) Row {
		l := NewLatency(offered, micros, nil)
		text, err := json.Marshal(Sample{Run: 1, Value: 1, Latency: &l})
		if err != nil {
			t.Fatal(err)
		}
		var s Sample
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		return Rows([]Task{task}, []Sample{s})[0]
	}
	lossy, small := row(100, make([]int64, 95)), row(50, make([]int64, 50))
	if lossy.P99.millis() != ">1000" || lossy.P50.millis() != "0.00" || small.P99.millis() != "-" ||
		lossy.P999.millis() != "-" {
		t.Errorf("%+v, %+v", lossy, small)
	}
	text, err := json.Marshal(lossy)
	if err != nil || !strings.Contains(string(text), `"p99Micros":{"median":null,"least":null,"most":null}`) ||
		!strings.Contains(string(text), `"lost":5`) {
		t.Errorf("%s, %v", text, err)
	}
	if !lossy.Short || small.Short {
		t.Errorf("short: %v with 5%% lost, %v with none", lossy.Short, small.Short)
	}
}

// TestFailedStreams: of a run in which a stream failed, what arrived is not known: it is no value, and the row says
// that a run is missing.
func TestFailedStreams(t *testing.T) {
	tasks := []Task{{Kind: Stream, Path: SameNode, Streams: 8, Rate: 100}}
	rows := Rows(tasks, []Sample{{Run: 1, Value: 99}, {Run: 2, Value: 12, Error: "write tcp: broken pipe"},
		{Run: 3, Value: 100}})
	if rows[0].Runs != 2 || rows[0].Value != (Spread{99.5, 99, 100}) || rows[0].Short {
		t.Errorf("%+v", rows[0])
	}
	b := Defaults()
	r := Result{Bounds: b, Tasks: tasks, Rows: rows, Stopped: "run 3: node b is not Ready"}
	r.Says = r.Words()
	var text bytes.Buffer
	if err := r.WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	// With one node, and with a name server, it says what may have crossed no network.
	r = Result{Bounds: b, Rows: []Row{{Path: Service}}, Samples: []Sample{{Server: "10.96.0.10:53"}}}
	words := strings.Join(r.Words(), "\n")
	for _, want := range []string{"went to 10.96.0.10:53", "The pod behind the Service is on the client's node"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is missing:\n%s", want, words)
		}
	}
	for _, want := range []string{"STOPPED: run 3: node b is not Ready\n", "(2 of 3 runs)", "stopped before its end"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing:\n%s", want, text.String())
		}
	}
}

// TestLeash: the load of one run ends soon, whatever happens to who began it, and all of it is bounded.
func TestLeash(t *testing.T) {
	most := Bounds{Runs: 4, Duration: mostDuration, Rate: mostRate, Megabits: mostMegabits, MaxRoundTrip: time.Second,
		LinkShare: 100, KeepGoing: true}
	for _, c := range []struct {
		bounds   Bounds
		enforced bool // with --policy-rules
		most     time.Duration
	}{
		{Defaults(), false, 4 * time.Minute}, {Defaults(), true, 8 * time.Minute},
		{most, false, 8 * time.Minute}, {most, true, 10 * time.Minute},
	} {
		if err := c.bounds.Validate(); err != nil {
			t.Fatal(err)
		}
		p := c.bounds.Plan(c.bounds.Tasks([]Paths{{Name: SameNode}, {Name: TwoNodes}, {Name: ToHost}}, ""), nil)
		if c.enforced {
			p.Reach = Enforced
		}
		if got := p.Leash(); got > c.most || got < p.Cost().Time/time.Duration(p.Runs)+p.Reach {
			t.Errorf("%+v: a run's client lives for %s", c.bounds, got)
		}
		ruled := c.bounds.Plan(c.bounds.PolicyTasks(Paths{Name: TwoNodes}, 10), nil)
		ruled.Reach, ruled.Denied = Enforced, "denied"
		if got := ruled.Leash(); c.enforced && got > c.most ||
			got < ruled.Cost().Time/time.Duration(p.Runs)+3*Enforced {
			t.Errorf("%+v: the client of a run with policies lives for %s", c.bounds, got)
		}
		if got := p.Cost().Time; got > 21*time.Minute {
			t.Errorf("%+v: the load lasts for %s", c.bounds, got)
		}
	}
	if got := Defaults().Plan(Defaults().Tasks([]Paths{{Name: SameNode}}, ""), nil).Entries(); got != 250*5+100*5 {
		t.Errorf("%d entries", got)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Spread
	}{
		{[]float64{4}, Spread{4, 4, 4}}, {[]float64{9, 1, 4}, Spread{4, 1, 9}},
		{[]float64{9, 1, 4, 6}, Spread{5, 1, 9}},
	} {
		if got := SpreadOf(c.values); got != c.want || !got.known() {
			t.Errorf("%v: %+v", c.values, got)
		}
	}
	if got := SpreadOf(nil); got.known() {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestValidate(t *testing.T) {
	if err := Defaults().Validate(); err != nil {
		t.Error(err)
	}
	bad := Bounds{Runs: 0, Duration: time.Hour, Rate: 1e6, Megabits: -1, MaxRoundTrip: time.Hour}
	err := bad.Validate()
	for _, want := range []string{"--runs 0 is not between 1 and 10", "--duration 1h0m0s is not between 1s and 15s",
		"--rate 1000000 is not", "--throughput -1 is not",
		"--max-round-trip", "--link-share 0 is not"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	for want, change := range map[string]func(*Bounds){
		"--policy-rules 10001 is not between 1 and 10000": func(b *Bounds) { b.PolicyRules = []int{10, 10001} },
		"--policy-rules 0 is not between 1 and 10000":     func(b *Bounds) { b.PolicyRules = []int{0} },
		"--policy-rules 10 is not more than the number before it, 10": func(b *Bounds) {
			b.PolicyRules = []int{10, 10}
		},
		"--policy-rules has 5 numbers, and at most 4 are allowed": func(b *Bounds) {
			b.PolicyRules = []int{1, 2, 3, 4, 5}
		},
		"--runs 10 of --duration 15s are 2m30s, and at most 1m0s are allowed": func(b *Bounds) {
			b.Runs, b.Duration = 10, 15*time.Second
		},
		"--max-cpu-share 101 is not between 1 and 100": func(b *Bounds) { b.CPUShare = 101 },
		"--max-cpu-share -1 is not between 1 and 100":  func(b *Bounds) { b.CPUShare = -1 },
		"--max-round-trip 600ms is not between 1ms and 500ms": func(b *Bounds) {
			b.Duration, b.MaxRoundTrip = time.Second, 600*time.Millisecond
		},
		"--max-round-trip 1.1s is not between 1ms and 1s": func(b *Bounds) {
			b.MaxRoundTrip = 1100 * time.Millisecond
		},
	} {
		b := Defaults()
		change(&b)
		if err := b.Validate(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestTooManyRules: rules that many nodes would read are refused, with what is allowed.
func TestTooManyRules(t *testing.T) {
	b := Bounds{Runs: 3, PolicyRules: []int{10, 1000, 10000}}
	if why := b.TooManyRules(105); why != "" {
		t.Error(why)
	}
	if why := b.TooManyRules(106); why != "--policy-rules in 3 runs: the agents of 106 nodes would read 66060 rules "+
		"each, and with so many nodes at most 66037 are allowed" {
		t.Error(why)
	}
	if got := strings.Join(b.policies(), " "); !strings.Contains(got, "6.6 MB for each node in all") {
		t.Error(got)
	}
	if b.Runs = 10; b.TooManyRules(32) == "" {
		t.Error("the runs are not counted")
	}
	if why := Defaults().TooManyRules(5000); why != "" {
		t.Error(why)
	}
}

// TestCost: what is agreed to is what the tasks add up to.
func TestCost(t *testing.T) {
	b := Bounds{Runs: 2, Duration: 10 * time.Second, Rate: 1000, Megabits: 80, MaxRoundTrip: time.Second}
	plan := b.Plan(b.Tasks([]Paths{{Name: SameNode}}, "10.96.0.1:80"), nil)
	// Two measurements of TCP and one of UDP at 10 MB/s for 10 s, twice.
	want := Cost{Time: 2 * 8 * (10*time.Second + Settle), Bytes: 600e6, Connects: 5000, Questions: 2000,
		// and probes during seven of them, which may go on for 11 s more
		Operations: 2*(5000+10000+2500+10000+1000) + 2*7*500*21}
	if got := plan.Cost(); got != want {
		t.Errorf("%s", cmp.Diff(want, got))
	}
}

// TestDrops: what was carried is no drop, by the kernel's counters and by those of the network's programs.
func TestDrops(t *testing.T) {
	r := &Result{Carried: []string{"net.Received"}}
	counters := map[string]int64{"tcp.OutSegs": 1, "net.Received": 2}
	if got := r.drops(counters); got != noDrops {
		t.Error(got)
	}
	counters["other.Received"] = 3
	if got := r.drops(counters); got != "other.Received +3" {
		t.Error(got)
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
	latency := func(p50 Micros, answered int64) *Latency {
		return &Latency{P50: p50, P99: p50 * 4, P999: p50 * 20, Max: p50 * 30, Offered: 2500,
			Answered: answered, SenderP99: 80}
	}
	r := Result{Client: "node-1", Other: "node-2", Bounds: b, Tasks: tasks}
	for run := 1; run <= b.Runs; run++ {
		n := float64(run)
		for i, task := range tasks {
			s := Sample{Task: i, Run: run, Value: float64(task.Rate) - n, Latency: latency(100+Micros(run), 2500),
				UnderLoad: latency(200*Micros(run), 2499)}
			switch {
			case task.Kind == RoundTrip:
				s.UnderLoad, s.Value = nil, 0
			case task.Kind == Stream:
				s.Latency, s.Retransmits = nil, int64(run*(task.Streams-1))
			case task.Kind == Blast:
				s.Latency, s.Sent, s.Arrived = nil, 10000, 9900
			case task.Kind == Datagrams:
				s.Value, s.Latency = 760+n, latency(1500, 1900)
				s.Processor = map[string]float64{"node-1": 30 + n}
				s.Rises = map[string]map[string]int64{"node-1": {Busy: 9}, "node-2": {"udp.RcvbufErrors": 2}}
				s.Latency.SenderP99, s.Latency.P99, s.Latency.P999 = 1500, Over, Over
			case task.Kind == Connections:
				l := NewLatency(120, slices.Repeat([]int64{int64(500 + run)}, 120), nil)
				l.Queued = 5
				s.Latency = &l
			case task.Kind == Questions:
				s = Sample{Task: i, Run: run, Error: "the pod's /etc/resolv.conf has no name server of the cluster"}
			}
			r.Samples = append(r.Samples, s)
		}
	}
	r.Rows, r.Counters = Rows(tasks, r.Samples), map[string]map[string]int64{"node-2": {"softnet.processed": 9,
		"udp.RcvbufErrors": 4}, "node-1": {"tcp.OutSegs": 3}}
	r.Notes = []string{"a note"}
	r.Says = r.Words()
	var got bytes.Buffer
	for _, line := range b.Plan(tasks, nil).Cost().Text(b, 2, 256) {
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
