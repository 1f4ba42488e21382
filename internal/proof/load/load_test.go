package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// free finds ports that nothing uses, of an address of loopback that tests of other packages do not use.
func free(t *testing.T) Ports {
	t.Helper()
	one := func() int {
		for range 50 {
			listener, err := net.Listen("tcp", "127.0.7.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			port := listener.Addr().(*net.TCPAddr).Port
			if packet, err := net.ListenPacket("udp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
				packet.Close()
				return port
			}
		}
		t.Fatal("no free port")
		return 0
	}
	return Ports{one(), one(), one(), one()}
}

// responder serves on loopback until the test ends.
func responder(t *testing.T, kernel Kernel) bench.Host {
	t.Helper()
	ports := free(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, "127.0.7.1", ports, kernel) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the responder: %v", err)
		}
	})
	at := func(port int) string { return "127.0.7.1:" + strconv.Itoa(port) }
	host := bench.Host{Echo: at(ports.Echo), Accept: at(ports.Accept), Sink: at(ports.Sink), HTTP: at(ports.HTTP)}
	for range 200 {
		if why := Reaches(t.Context(), bench.Task{Kind: bench.Requests, Target: host.HTTP}); why == "" {
			if why = Reaches(t.Context(), bench.Task{Kind: bench.Datagrams, Target: host.Echo}); why == "" {
				return host
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the responder does not answer")
	return host
}

// counted is a kernel with a counter that rises, and with limits.
type counted struct {
	reads  atomic.Int64
	limits func() bench.Limits
}

func (c *counted) Counters() (map[string]int64, error) {
	return map[string]int64{"softnet.dropped": 5 * c.reads.Add(1), "udp.RcvbufErrors": 7}, nil
}

func (c *counted) Limits() (limits bench.Limits, err error) {
	if c.limits != nil {
		limits = c.limits()
	}
	return limits, nil
}

// again tries a few times what a busy machine may spoil; try says what was wrong, or nothing.
func again(t *testing.T, try func() string) {
	t.Helper()
	wrong := ""
	for range 5 {
		if wrong = try(); wrong == "" {
			return
		}
	}
	t.Error(wrong)
}

// TestMeasure: every kind of measurement has a result on loopback, of as many operations as were offered, and TCP keeps
// its bound.
func TestMeasure(t *testing.T) {
	host := responder(t, nil)
	for _, task := range []bench.Task{
		{Kind: bench.RoundTrip, Target: host.Echo, Rate: 200},
		{Kind: bench.Datagrams, Target: host.Echo, Rate: 500},
		{Kind: bench.Connections, Target: host.Accept, Rate: 100},
		{Kind: bench.Requests, Target: host.HTTP, Rate: 200},
	} {
		task.Duration = 500 * time.Millisecond
		again(t, func() string {
			s := Measure(t.Context(), task)
			if s.Value > float64(task.Rate) || s.Latency == nil || s.Latency.Offered != int64(task.Rate/2) {
				t.Errorf("%s: %+v %+v", task.Name(), s, s.Latency)
			}
			if s.Error != "" || s.Latency.Answered == 0 || s.Value == 0 {
				return fmt.Sprintf("%s: %+v %+v", task.Name(), s, s.Latency)
			}
			return ""
		})
	}
	for _, streams := range []int{1, 8} {
		again(t, func() string {
			s := Measure(t.Context(),
				bench.Task{Kind: bench.Stream, Target: host.Sink, Streams: streams, Rate: 40, Duration: time.Second})
			// What a stream may catch up, and its last write, come on top of the rate.
			if most := 40*(1+credit.Seconds()) + float64(streams)*chunk*8/1e6; s.Value > most {
				t.Errorf("%d streams: %+v, the bound is 40 Mbit/s, and %.1f with all that may come on top",
					streams, s, most)
			}
			if s.Error != "" || s.Value == 0 {
				return fmt.Sprintf("%d streams: %+v", streams, s)
			}
			return ""
		})
	}
	again(t, func() string {
		s := Measure(t.Context(),
			bench.Task{Kind: bench.Blast, Target: host.Sink, Rate: 20, Duration: time.Second})
		if most := 20 * (1 + credit.Seconds()); s.Value > most+0.1 || s.Arrived > s.Sent {
			t.Errorf("UDP: %+v, the bound is 20 Mbit/s", s)
		}
		if s.Error != "" || s.Value < 10 || s.Arrived != s.Sent {
			return fmt.Sprintf("UDP: %+v", s)
		}
		return ""
	})
	for _, task := range []bench.Task{
		{Kind: bench.Blast, Target: "127.0.0.1:1", Rate: 1, Duration: time.Second},
		{Kind: bench.Stream, Target: "127.0.0.1:1", Streams: 1, Rate: 1, Duration: time.Second},
		{Kind: bench.Connections, Target: "127.0.0.1:1", Rate: 10, Duration: time.Second / 5},
		{Kind: bench.Datagrams, Target: "127.0.0.1:1", Rate: 10, Duration: time.Second / 5},
	} {
		again(t, func() string {
			if s := Measure(t.Context(), task); !strings.Contains(s.Error, "refused") || s.Value != 0 {
				return fmt.Sprintf("%s to a port that is closed: %+v", task.Name(), s)
			}
			return ""
		})
	}
}

// TestStalled: a responder that stalls for 300 ms of a second delays the operations of that time, and they all count:
// each from its own time. A generator that waits for an answer before it asks again would have counted one slow answer.
func TestStalled(t *testing.T) {
	const rate, lasts, stall = 200, time.Second, 300 * time.Millisecond
	begin := time.Now()
	var stalls atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if since := time.Since(begin); since > 300*time.Millisecond && since < 300*time.Millisecond+stall {
			stalls.Store(true)
			time.Sleep(300*time.Millisecond + stall - since)
		}
		w.WriteHeader(http.StatusOK)
	}))
	defer server.Close()
	f := newFlow(rate, lasts)
	begin = f.begin
	do, end := request(strings.TrimPrefix(server.URL, "http://"))
	defer end()
	operate(t.Context(), f, do)
	slow := 0
	for i := range f.micros {
		if f.micros[i].Load() > 50_000 {
			slow++
		}
	}
	// 60 requests are due in the stall, and the first 50 of them wait for more than 50 ms: a quarter of all.
	if !stalls.Load() || slow < 40 {
		t.Errorf("%d of %d requests took more than 50 ms with a stall of %s", slow, len(f.micros), stall)
	}
	if l, _ := f.sum(len(f.micros)); l.P99 >= 0 && l.P99 < 200_000 {
		t.Errorf("p99 is %d us; a quarter of the requests waited, some for 300 ms", l.P99)
	}
}

// TestLateSender: what a sender could not send in time counts from when it was due.
func TestLateSender(t *testing.T) {
	f := newFlow(100, 500*time.Millisecond)
	stalled := false
	f.send(t.Context(), func(i int) {
		if i == 10 && !stalled {
			stalled = true
			time.Sleep(200 * time.Millisecond)
		}
		f.answered(i)
	})
	l, _ := f.sum(len(f.micros))
	if l.Answered != 50 || l.Max < 150_000 || l.SenderP99 < 150_000 {
		t.Errorf("%+v", l)
	}
}

// TestDelayed: a delay that a responder adds is in all quantiles, and what it does not answer is lost.
func TestDelayed(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.7.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { // ends with the socket
		for n := 0; ; n++ {
			data := make([]byte, 2*small)
			size, from, err := conn.ReadFrom(data)
			if err != nil {
				return
			}
			if n%4 == 3 {
				continue
			}
			time.AfterFunc(40*time.Millisecond, func() {
				conn.WriteTo(data[:size], from) //nolint:errcheck // the test has ended
			})
		}
	}()
	again(t, func() string {
		s := Measure(t.Context(), bench.Task{Kind: bench.Datagrams, Target: conn.LocalAddr().String(),
			Rate: 200, Duration: time.Second})
		if l := s.Latency; l.P50 < 40_000 || l.Offered != 200 || l.Lost() < 50 || l.Answered == 0 || s.Value > 150 {
			return fmt.Sprintf("with 40 ms, and every fourth lost: %+v, %+v", s, l)
		}
		return ""
	})
}

// conducted is what the client emits for a plan, with a worker on loopback.
func conducted(t *testing.T, ctx context.Context, plan bench.Plan) (lines []bench.Line) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.7.1:0")
	if err != nil {
		t.Fatal(err)
	}
	worker := listener.Addr().String()
	listener.Close()
	working, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Work(working, worker) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the worker: %v", err)
		}
	}()
	for range 200 {
		conn, err := net.Dial("tcp", worker)
		if err == nil {
			conn.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	Conduct(ctx, plan, worker, func(line bench.Line) {
		text, _ := json.Marshal(line)
		t.Logf("%s", text)
		lines = append(lines, line)
	})
	return lines
}

// TestConduct: a client carries out its run, every load has a round trip of probes, counters are compared, what does
// not answer is not measured but named, and so are limits that are not known.
func TestConduct(t *testing.T) {
	host := responder(t, &counted{})
	bounds := bench.Bounds{Runs: 3, LinkShare: 10, Duration: 300 * time.Millisecond, Rate: 100, Megabits: 10,
		MaxRoundTrip: 500 * time.Millisecond}
	tasks := bounds.Tasks([]bench.Paths{{Name: bench.SameNode, Host: host}}, host.HTTP)
	tasks = slices.DeleteFunc(tasks, func(t bench.Task) bool { return t.Kind == bench.Datagrams || t.Streams == 1 })
	plan := bounds.Plan(tasks, map[string]string{"node-1": host.HTTP})
	plan.Reach, plan.Run = 0, 2
	lines := conducted(t, t.Context(), plan)
	var samples []bench.Sample
	counters := map[string]map[string]int64{}
	done, notes := false, 0
	for _, line := range lines {
		switch {
		case line.Note != "":
			notes++
		case line.Sample != nil:
			samples = append(samples, *line.Sample)
		case line.Counters != nil:
			counters = line.Counters
		case line.Done:
			done = true
		}
	}
	if !done || len(samples) != len(tasks) || notes != 3 || // link, conntrack, kernel

		counters["node-1"]["softnet.dropped"] != int64(5*(2*len(tasks)+1)) ||
		len(counters["node-1"]) != 1 {
		t.Fatalf("done: %v, %d samples, counters %v", done, len(samples), counters)
	}
	for i, s := range samples {
		task := tasks[s.Task]
		if rise := s.Rises["node-1"]["softnet.dropped"]; rise != 5 {
			t.Errorf("during sample %d, a counter rose by %d", i, rise)
		}
		if s.Task != i || s.Run != 2 {
			t.Errorf("sample %d is task %d of run %d", i, s.Task, s.Run)
		}
		if task.Kind != bench.Questions && task.Kind != bench.RoundTrip &&
			(s.UnderLoad == nil || s.UnderLoad.Offered == 0) {
			t.Errorf("%s: %+v", task.Name(), s)
		}
	}
}

// TestProcessorTime: a node's processor time beyond its rest is divided by the packets there and back; nodes that
// share a machine have none, and a note says why.
func TestProcessorTime(t *testing.T) {
	began := time.Now()
	busy := func(micros func(time.Duration) int64, boot string) *busyKernel {
		return &busyKernel{func() int64 { return micros(time.Since(began)) }, boot}
	}
	half := busy(func(d time.Duration) int64 { return d.Microseconds() / 2 }, "boot-1")
	idle := busy(func(time.Duration) int64 { return 0 }, "boot-2")
	same := busy(func(time.Duration) int64 { return 0 }, "boot-1")
	first, second, third := responder(t, half), responder(t, idle), responder(t, same)
	task := bench.Task{Kind: bench.Datagrams, Path: bench.TwoNodes, Target: first.Echo, Probed: first.Echo, Rate: 100,
		Duration: time.Second}
	plan := bench.Plan{Run: 1, Runs: 1, LinkShare: 20, MaxRoundTrip: time.Second / 2, ProbeRate: 50,
		Tasks: []bench.Task{task}, Counters: map[string]string{"a": first.HTTP, "b": second.HTTP}}
	again(t, func() string {
		for _, line := range conducted(t, t.Context(), plan) {
			if line.Sample == nil {
				continue
			}
			// It is as busy as at rest: nothing is left for about 150 packets there and back, but what a late
			// reading adds.
			if got := line.Sample.Processor; len(got) == 2 && got["a"] < 200 && got["b"] == 0 {
				return ""
			}
			return fmt.Sprintf("%+v", line.Sample)
		}
		return "there is no sample"
	})
	// Packets that do not leave node a are no load of node b.
	plan.Tasks[0].Within = "a"
	for _, line := range conducted(t, t.Context(), plan) {
		if line.Sample != nil && (len(line.Sample.Processor) != 1 || len(line.Sample.Rises) != 2) {
			t.Errorf("within node a: %+v", line.Sample)
		}
	}
	plan.Tasks[0].Within, plan.Counters["b"] = "", third.HTTP
	note := false
	for _, line := range conducted(t, t.Context(), plan) {
		note = note || strings.Contains(line.Note, "nodes a and b run on one machine")
		if line.Sample != nil && line.Sample.Processor != nil {
			t.Errorf("%+v", line.Sample)
		}
	}
	if !note {
		t.Error("no note says that the nodes are one machine")
	}
	c := &conductor{plan: plan, rest: map[string]float64{"a": 1e5}}
	began = time.Now().Add(-time.Minute)
	s := bench.Sample{Latency: &bench.Latency{Answered: 400}, UnderLoad: &bench.Latency{Answered: 100}}
	c.count(t.Context(), task, &s, map[string]map[string]int64{"a": {bench.Busy: half.micros() - 1e6}}, time.Second)
	if got := s.Processor["a"]; got < 899 || got > 1500 { // 1 s less 0.1 s, over 1,000 packets
		t.Errorf("%.0f us for each packet", got)
	}
}

// busyKernel is a kernel whose processors have worked for so long.
type busyKernel struct {
	micros func() int64
	boot   string
}

func (k *busyKernel) Counters() (map[string]int64, error) {
	return map[string]int64{bench.Busy: k.micros()}, nil
}

func (k *busyKernel) Limits() (bench.Limits, error) { return bench.Limits{Boot: k.boot}, nil }

// TestDenied: with policies, nothing is measured until the target that they deny is denied; if it never is, the
// samples say so. Their numbers follow those of the plans before.
func TestDenied(t *testing.T) {
	host := responder(t, nil)
	bounds := bench.Bounds{Runs: 1, LinkShare: 10, Duration: 300 * time.Millisecond, Rate: 100, Megabits: 10,
		MaxRoundTrip: 500 * time.Millisecond}
	plan := bounds.Plan(bounds.PolicyTasks(bench.Paths{Name: bench.TwoNodes, Host: host}, 10)[:1], nil)
	plan.First, plan.Reach = 7, time.Second
	for denied, want := range map[string]string{host.HTTP: bench.NotEnforced, "127.0.0.1:1": ""} {
		plan.Denied = denied
		if want == "" {
			plan.Reach = 20 * time.Second
		}
		lines := conducted(t, t.Context(), plan)
		if s := lines[0].Sample; s == nil || s.Task != 7 || (want == "") != (s.Error == "") ||
			!strings.HasPrefix(s.Error, want) || (s.Latency == nil) != (want != "") {
			t.Errorf("%s: %+v", denied, lines)
		}
	}
}

// TestAdmitted: all ports answer while no policy is in force. The first one denies all of them, and the last one admits
// the client again: until then, nothing is measured.
func TestAdmitted(t *testing.T) {
	host := responder(t, nil)
	page := bytes.Repeat([]byte{'.'}, pageSize)
	open := func(address string) (string, func()) {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Error(err)
			return "", func() {}
		}
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write(page) //nolint:errcheck // the client has gone
		})}
		go server.Serve(listener) //nolint:errcheck // it ends when it is closed
		return listener.Addr().String(), func() { server.Close() }
	}
	denied, deny := open("127.0.7.1:0")
	admitted, isolate := open("127.0.7.1:0")
	plan := bench.Plan{Run: 1, Runs: 1, LinkShare: 20, MaxRoundTrip: time.Second / 2, ProbeRate: 50, Denied: denied,
		Reach: 20 * time.Second, Tasks: []bench.Task{{Kind: bench.Requests, Target: admitted, Probed: host.Echo,
			Rate: 50, Duration: time.Second / 2}}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		time.Sleep(time.Second)
		deny()
		isolate()
		time.Sleep(4 * time.Second)
		_, end := open(admitted)
		t.Cleanup(end)
	}()
	lines := conducted(t, t.Context(), plan)
	<-ended
	if s := lines[0].Sample; s == nil || s.Error != "" || s.Latency == nil || s.Latency.Lost() != 0 {
		t.Errorf("%+v", lines[0].Sample)
	}
}

// TestStops: the client stops the load when its probes are not answered any more, and says so; what was cut
// short is no result.
func TestStops(t *testing.T) {
	host := responder(t, nil)
	silent, err := net.ListenPacket("udp", "127.0.7.1:0") // takes probes, and answers none
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	plan := bench.Plan{Run: 1, Runs: 1, MaxRoundTrip: 50 * time.Millisecond, ProbeRate: 100,
		Tasks: []bench.Task{{Kind: bench.Stream, Path: bench.TwoNodes, Target: host.Sink, Streams: 1, Rate: 8,
			Probed: silent.LocalAddr().String(), Duration: 30 * time.Second}}}
	begin := time.Now()
	lines := conducted(t, t.Context(), plan)
	if len(lines) != 2 || !strings.Contains(lines[1].Stopped,
		"pod to pod, two nodes, TCP, 1 stream, run 1: more than half of a second's probes under load") ||
		lines[0].Counters == nil {
		t.Errorf("%+v", lines)
	}
	if took := time.Since(begin); took > 25*time.Second {
		t.Errorf("the load went on for %s", took)
	}
}

// TestKeepsGoing: with KeepGoing, a measurement that is stopped has no result, and the next one follows; a node's limit
// ends the run nevertheless.
func TestKeepsGoing(t *testing.T) {
	full := atomic.Bool{}
	host := responder(t, &counted{limits: func() bench.Limits {
		if full.Load() {
			return bench.Limits{Conntrack: 71, ConntrackMost: 100}
		}
		return bench.Limits{}
	}})
	silent, err := net.ListenPacket("udp", "127.0.7.1:0") // takes probes, and answers none
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	plan := bench.Plan{Run: 1, Runs: 1, MaxRoundTrip: 50 * time.Millisecond, ProbeRate: 100, KeepGoing: true,
		Megabits: 8, LinkShare: 100, Counters: map[string]string{"a": host.HTTP},
		Tasks: []bench.Task{{Kind: bench.Stream, Path: bench.TwoNodes, Target: host.Sink, Streams: 1, Rate: 8,
			Probed: silent.LocalAddr().String(), Duration: 30 * time.Second},
			{Kind: bench.RoundTrip, Path: bench.TwoNodes, Target: host.Echo, Rate: 100, Probed: host.Echo,
				Duration: time.Second}}}
	lines := conducted(t, t.Context(), plan)
	var samples []bench.Sample
	for _, line := range lines {
		if line.Sample != nil {
			samples = append(samples, *line.Sample)
		}
	}
	if len(samples) != 2 || samples[0].Task != 0 || samples[1].Task != 1 || !lines[len(lines)-1].Done ||
		!strings.HasPrefix(samples[0].Error, "stopped: more than half of a second's probes under load") ||
		samples[0].UnderLoad != nil || samples[1].Error != "" || samples[1].Latency == nil {
		t.Errorf("%+v", lines)
	}
	full.Store(true)
	if lines = conducted(t, t.Context(), plan); !strings.Contains(lines[len(lines)-1].Stopped, "has 71 of 100") {
		t.Errorf("%+v", lines)
	}
	full.Store(false)
	begun := atomic.Bool{}
	host = responder(t, &counted{limits: func() bench.Limits { // full as soon as there is load
		if begun.Swap(true) {
			return bench.Limits{Conntrack: 71, ConntrackMost: 100}
		}
		return bench.Limits{}
	}})
	plan.Counters, plan.Tasks[0].Probed, plan.MaxRoundTrip = map[string]string{"a": host.HTTP}, host.Echo, time.Second
	plan.Tasks[0].Target, plan.Tasks[1].Target = host.Sink, host.Echo
	if lines = conducted(t, t.Context(), plan); !strings.Contains(lines[len(lines)-1].Stopped,
		"run 1: node a: its conntrack table has 71 of 100") {
		t.Errorf("%+v", lines)
	}
}

// TestLimits: there is no load on a node whose limits the plan exceeds, nor any more when its table of connections
// fills meanwhile.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		first, then bench.Limits
		want        string
		lines       int
	}{
		{bench.Limits{Link: 100}, bench.Limits{},
			"the load was not started: node a: --throughput 11 is more than 10% of its link of 100 Mbit/s", 1},
		{bench.Limits{Conntrack: 80, ConntrackMost: 100}, bench.Limits{},
			"the load was not started: node a: its conntrack table has 80 of 100", 1},
		{bench.Limits{Link: 110, Conntrack: 1, ConntrackMost: 100}, bench.Limits{Conntrack: 71, ConntrackMost: 100},
			"run 1: node a: its conntrack table has 71 of 100", 2},
	} {
		reads := atomic.Int64{}
		host := responder(t, &counted{limits: func() bench.Limits {
			if reads.Add(1) == 1 {
				return c.first
			}
			return c.then
		}})
		plan := bench.Plan{Run: 1, Runs: 1, MaxRoundTrip: time.Second, ProbeRate: 100, Megabits: 11, LinkShare: 10,
			Counters: map[string]string{"a": host.HTTP},
			Tasks: []bench.Task{{Kind: bench.Stream, Target: host.Sink, Streams: 1, Rate: 1, Probed: host.Echo,
				Duration: 60 * time.Second}}}
		begin := time.Now()
		lines := conducted(t, t.Context(), plan)
		if last := lines[len(lines)-1].Stopped; !strings.Contains(last, c.want) {
			t.Errorf("%+v, want %s", lines, c.want)
		}
		if took := time.Since(begin); took > 40*time.Second {
			t.Errorf("the load went on for %s", took)
		}
	}
}

// TestOverworked: a node whose processors are busier than allowed stops the load, or has none begun. Nodes that share a
// machine are not compared.
func TestOverworked(t *testing.T) {
	for _, c := range []struct {
		rest, load float64 // shares of the one processor
		shared     bool
		want       string
	}{
		{1, 1, false, "the load was not started: node a: its processors (1) were"},
		{0.2, 1, false, "run 1: node a: its processors (1) were"},
		{1, 1, true, ""},
		{0.2, 0.2, false, ""},
	} {
		var mu sync.Mutex
		var busy float64
		reads, at := 0, time.Now()
		host := responder(t, &counted{limits: func() bench.Limits {
			mu.Lock()
			defer mu.Unlock()
			reads++
			share := c.rest
			if reads > 5 { // before any load, two looks at the limits and two of the time at rest; then it begins
				share = c.load
			}
			busy, at = busy+share*float64(time.Since(at).Microseconds()), time.Now()
			return bench.Limits{Boot: "one", Processors: 1, Busy: int64(busy)}
		}})
		plan := bench.Plan{Run: 1, Runs: 1, MaxRoundTrip: time.Second, ProbeRate: 100, LinkShare: 10, CPUShare: 80,
			Counters: map[string]string{"a": host.HTTP},
			Tasks: []bench.Task{{Kind: bench.Stream, Target: host.Sink, Streams: 1, Rate: 1, Probed: host.Echo,
				Duration: 3 * time.Second}}}
		if c.shared {
			plan.Counters["b"] = host.HTTP
		}
		lines := conducted(t, t.Context(), plan)
		last := lines[len(lines)-1]
		if !strings.Contains(last.Stopped, c.want) || (c.want == "") != last.Done {
			t.Errorf("%+v: %+v", c, lines)
		}
	}
}

// flowOf is a flow of 100 operations a second that began two seconds ago, after what of says of each was done.
func flowOf(of func(i int) (late, micros int64)) (*flow, time.Time) {
	f := newFlow(100, 10*time.Second)
	for i := range 200 {
		late, micros := of(i)
		f.late[i] = late
		f.micros[i].Store(micros)
	}
	f.sent.Store(200)
	return f, f.begin.Add(2 * time.Second)
}

// TestHarm: what stops the load, and what does not.
func TestHarm(t *testing.T) {
	const most, fast, slow = 50 * time.Millisecond, 200, 60_000
	for name, c := range map[string]struct {
		of   func(i int) (late, micros int64)
		want string
	}{
		"all is well":    {func(int) (int64, int64) { return 0, fast }, ""},
		"a few are slow": {func(i int) (int64, int64) { return 0, int64(fast + i%3/2*slow) }, ""},
		"most are slow": {func(i int) (int64, int64) { return 0, int64(fast + min(i%3, 1)*slow) },
			"more than half of a second's probes took longer than 50ms"},
		"two are lost": {func(i int) (int64, int64) { return 0, int64(fast - lostAt(i, 50)) }, ""},
		"a tenth is lost": {func(i int) (int64, int64) { return 0, int64(fast - lostAt(i, 10)) },
			"10 of a second's 100 probes were not answered"},
		"the sender is late": {func(int) (int64, int64) { return 26_000, fast },
			"the client's node is overloaded: over half of a second's probes were sent late by over 25ms"},
		"a third of the sender's are late": {func(i int) (int64, int64) {
			return int64(lostAt(i, 3)) * 200, int64(fast)
		}, ""},
	} {
		f, now := flowOf(c.of)
		if got := f.harm(now, most, "probes"); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
	// A sender that is not scheduled at all sends none, and its last ones were in time.
	f, now := flowOf(func(int) (int64, int64) { return 0, fast })
	if got := f.harm(now.Add(time.Second), most, "probes"); !strings.Contains(got, "overloaded") {
		t.Errorf("a sender that hangs: %q", got)
	}
}

// lostAt takes every nth latency of 200 below 0.
func lostAt(i, n int) int {
	if i%n == 0 {
		return 201
	}
	return 0
}

// TestOwnAnswers: requests and DNS questions stop when their own answers are missing: no probe sees the name server, or
// what is behind a Service.
func TestOwnAnswers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	defer server.Close()
	begin := time.Now()
	s := Measure(t.Context(), bench.Task{Kind: bench.Requests, Target: strings.TrimPrefix(server.URL, "http://"),
		Rate: 100, Duration: 30 * time.Second, Most: 100 * time.Millisecond})
	if took := time.Since(begin); took > 25*time.Second ||
		!strings.Contains(s.Stopped, "more than half of a second's requests took longer than 100ms") {
		t.Errorf("after %s: %+v", took, s)
	}
	bounds := bench.Defaults()
	for _, task := range bounds.Tasks([]bench.Paths{{Name: bench.SameNode}}, "") {
		if own := task.Kind == bench.Requests ||
			task.Kind == bench.Questions; own != (task.Most == bounds.MaxRoundTrip) {
			t.Errorf("%+v", task)
		}
	}
}

// TestQueued: operations that wait in the client are counted, and the client has enough places for its rate.
func TestQueued(t *testing.T) {
	f := newFlow(400, 500*time.Millisecond)
	operate(t.Context(), f, func(ctx context.Context, _ int) error {
		time.Sleep(400 * time.Millisecond)
		return nil
	})
	if l, _ := f.sum(len(f.micros)); l.Queued == 0 {
		t.Errorf("200 operations of 400 ms in %d places: %+v", f.workers(), l)
	}
	for rate, want := range map[int]int{40: 64, 2000: 500, 20000: 1000} {
		if got := newFlow(rate, time.Second).workers(); got != want {
			t.Errorf("%d places for %d/s", got, rate)
		}
	}
}

// TestOneLate: an answer that is late at the end does not make the rate of all others less.
func TestOneLate(t *testing.T) {
	f := newFlow(100, time.Second)
	for i := range 100 {
		f.micros[i].Store(100)
	}
	f.micros[99].Store(900_000)
	f.sent.Store(100)
	if _, rate := f.sum(100); rate < 99.9 || rate > 100.1 {
		t.Errorf("%.1f/s", rate)
	}
}

// TestEnds: an end from outside, as of the pod, ends the load.
func TestEnds(t *testing.T) {
	host := responder(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(300*time.Millisecond, cancel)
	plan := bench.Plan{Run: 1, Runs: 1, MaxRoundTrip: time.Second, ProbeRate: 100,
		Tasks: []bench.Task{{Kind: bench.Stream, Target: host.Sink, Streams: 8, Rate: 8, Probed: host.Echo,
			Duration: 60 * time.Second}}}
	begin := time.Now()
	for _, line := range conducted(t, ctx, plan) {
		if line.Done || line.Sample != nil {
			t.Errorf("%+v", line)
		}
	}
	if took := time.Since(begin); took > 25*time.Second {
		t.Errorf("the load went on for %s", took)
	}
}

// TestResolve: names of the cluster are asked for by the domain of its Services; a pod without one is refused.
func TestResolve(t *testing.T) {
	for text, want := range map[string]string{
		"nameserver 10.96.0.10\nsearch theseus-system.svc.example.org svc.example.org example.org\n": "",
		"nameserver 192.0.2.1\n" +
			"search example.org\n": "has no name server of the cluster",
		"search theseus-system.svc.example.org\n": "",
	} {
		file := t.TempDir() + "/resolv.conf"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, server, err := resolve(file)
		if err == nil && server != "10.96.0.10:53" {
			t.Errorf("%q: the name server is %s", text, server)
		}
		if strings.HasPrefix(text, "search theseus") {
			want = "has no name server of the cluster"
		}
		if got := ""; err != nil {
			got = err.Error()
			if want == "" || !strings.Contains(got, want) {
				t.Errorf("%q: %s", text, got)
			}
		} else if want != "" {
			t.Errorf("%q: no error", text)
		}
	}
}
