package probe

import (
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// newTestRunner has a timeout that a busy machine does not exceed by itself.
func newTestRunner(t *testing.T, timeout time.Duration, paths ...v1alpha1.Path) *Runner {
	t.Helper()
	r := NewRunner(Options{Timeout: timeout})
	t.Cleanup(r.Close)
	r.SetPaths(paths)
	return r
}

func answeredMore(t *testing.T, r *Runner, id string, more int64) {
	t.Helper()
	before := resultOf(r, id).Answered
	eventually(t, id+" goes on answering", func() bool { return resultOf(r, id).Answered >= before+more })
}

// TestWarmUp: a path through a Service counts when it has answered for two seconds, any other after its tenth good
// answer.
func TestWarmUp(t *testing.T) {
	r := &Runner{options: Options{WarmUp: WarmUp}}
	for _, test := range []struct {
		class    string
		interval int
		denied   bool
		want     int
	}{
		{path.ClassHostService, 100, false, 20}, {path.ClassPodService, 50, false, 40},
		{path.ClassNodePort, 1000, false, 10}, {path.ClassOutside, 500, false, 3}, {path.ClassOutside, 200, false, 5},
		{path.ClassOutside, 50, false, 10}, {path.ClassPodPod, 10, false, 10}, {path.ClassDNS, 100, false, 10},
		{path.ClassDenied, 100, true, 0},
	} {
		if got := r.warmUp(v1alpha1.Path{Class: test.class, IntervalMillis: test.interval,
			Denied: test.denied}); got != test.want {
			t.Errorf("%s every %d ms: %d, want %d", test.class, test.interval, got, test.want)
		}
	}
	if got := new(Runner).warmUp(v1alpha1.Path{Class: path.ClassHostService, IntervalMillis: 100}); got != 0 {
		t.Errorf("without: %d", got)
	}
}

// TestOutageIsOneGap drops what is sent for a while. The gap must hold exactly the probes that were dropped:
// it begins with the send time of the first of them, and ends after that of the last.
func TestOutageIsOneGap(t *testing.T) {
	t.Parallel()
	udp, _ := echoServer(t)
	between := newRelay(t, udp)
	r := newTestRunner(t, 2*time.Second, pathTo("a", v1alpha1.UDP, between.address()))
	answeredMore(t, r, "a", 20)
	between.set(true, 0)
	eventually(t, "40 dropped", func() bool { return len(between.touched()) >= 40 })
	between.set(false, 0)
	eventually(t, "the gap is closed", func() bool { return len(resultOf(r, "a").Gaps) > 0 })

	dropped, result := between.touched(), resultOf(r, "a")
	if len(result.Gaps) != 1 || result.Open != nil || result.Gaps[0].Probes != int64(len(dropped)) {
		t.Fatalf("%d probes dropped, gaps %+v, open %v", len(dropped), result.Gaps, result.Open)
	}
	gap := result.Gaps[0]
	first, last := r.base.Add(dropped[0]), r.base.Add(dropped[len(dropped)-1])
	if !gap.From.Equal(first) {
		t.Errorf("the gap begins at %v, the first probe dropped was sent at %v", gap.From, first)
	}
	if length := time.Duration(gap.Millis * float64(time.Millisecond)); gap.From.Add(length).Before(last) {
		t.Errorf("the gap ends at %v, the last probe dropped was sent at %v", gap.From.Add(length), last)
	}
	if result.Sent-result.Answered != int64(len(dropped)) {
		t.Errorf("%d lost, %d dropped", result.Sent-result.Answered, len(dropped))
	}
}

// TestLateAnswers: within the timeout an answer counts from when its probe was sent; past it, the probe is lost.
func TestLateAnswers(t *testing.T) {
	t.Parallel()
	udp, _ := echoServer(t)
	for _, test := range []struct {
		name           string
		timeout, delay time.Duration
		lost           bool
	}{
		{"within the timeout", 5 * time.Second, 150 * time.Millisecond, false},
		{"past the timeout", 100 * time.Millisecond, 300 * time.Millisecond, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			between := newRelay(t, udp)
			r := newTestRunner(t, test.timeout, pathTo("a", v1alpha1.UDP, between.address()))
			between.set(false, test.delay)
			eventually(t, "20 delayed and decided", func() bool {
				return len(between.touched()) >= 20 && resultOf(r, "a").Sent >= 20
			})
			result := resultOf(r, "a")
			if test.lost && result.Answered > 0 {
				t.Errorf("%d of %d counted as answered", result.Answered, result.Sent)
			}
			if !test.lost && (result.Answered != result.Sent || result.RTTMicros[0] < test.delay.Microseconds()) {
				t.Errorf("%d of %d answered, median %d us", result.Answered, result.Sent, result.RTTMicros[0])
			}
		})
	}
}

// TestKeptTCPBreaks: the connection is used again and again; when it breaks at least one probe is lost,
// and a new connection takes over.
func TestKeptTCPBreaks(t *testing.T) {
	t.Parallel()
	_, tcp := echoServer(t)
	between := newTCPRelay(t, tcp)
	r := newTestRunner(t, 2*time.Second, pathTo("a", v1alpha1.TCP, between.Addr().String()))
	answeredMore(t, r, "a", 50)
	if result := resultOf(r, "a"); between.connections() != 1 || result.Sent != result.Answered {
		t.Fatalf("%d connections, %d of %d answered", between.connections(), result.Answered, result.Sent)
	}
	between.cut()
	eventually(t, "a new connection", func() bool { return between.connections() == 2 })
	answeredMore(t, r, "a", 50)
	eventually(t, "the break is a gap", func() bool { return len(resultOf(r, "a").Gaps) > 0 })
	if result := resultOf(r, "a"); result.Sent == result.Answered {
		t.Errorf("the break cost nothing: %+v", result)
	}
}

// TestKeptTCPStartsUnserved: without a server every probe is lost, until there is one.
func TestKeptTCPStartsUnserved(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	r := newTestRunner(t, 2*time.Second, pathTo("a", v1alpha1.TCP, address))
	eventually(t, "probes are lost", func() bool {
		result := resultOf(r, "a")
		return result.Open != nil && result.Open.Probes >= 5
	})
	if listener, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); echoTCP(t.Context(), listener) }()
	t.Cleanup(func() { r.Close(); listener.Close(); <-served })
	answeredMore(t, r, "a", 20)
	if result := resultOf(r, "a"); len(result.Gaps) != 1 || result.Open != nil {
		t.Errorf("gaps %v, open %v", result.Gaps, result.Open)
	}
}

func TestEveryProtocolAnswers(t *testing.T) {
	t.Parallel()
	udp, tcp := echoServer(t)
	server := dnsServer(t)
	good, bad := pathTo("dns", v1alpha1.DNS, server), pathTo("dns-bad", v1alpha1.DNS, server)
	good.Query, bad.Query = "there.example", "absent.example"
	large := pathTo("large", v1alpha1.UDP, udp)
	large.Size, large.IntervalMillis = 8000, 20
	r := newTestRunner(t, 2*time.Second, pathTo("udp", v1alpha1.UDP, udp), pathTo("tcp", v1alpha1.TCP, tcp),
		pathTo("tcp-new", v1alpha1.TCPNew, tcp), large, good, bad)
	for _, id := range []string{"udp", "tcp", "tcp-new", "large", "dns"} {
		answeredMore(t, r, id, 20)
		if result := resultOf(r, id); result.Sent != result.Answered || result.RTTMicros[2] == 0 ||
			result.Since.IsZero() {
			t.Errorf("%s: %+v", id, result)
		}
	}
	eventually(t, "failed lookups are lost", func() bool { return resultOf(r, "dns-bad").Sent >= 20 })
	if result := resultOf(r, "dns-bad"); result.Answered != 0 || result.Open == nil {
		t.Errorf("dns-bad: %+v", result)
	}
}

// dnsServer knows there.example and nothing else.
func dnsServer(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{PacketConn: conn, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		reply := new(dns.Msg)
		reply.SetRcode(query, dns.RcodeNameError)
		if query.Question[0].Name == "there.example." {
			reply.SetReply(query)
			reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: "there.example.", Rrtype: dns.TypeA,
				Class: dns.ClassINET}, A: net.IPv4(198, 18, 0, 1)}}
		}
		w.WriteMsg(reply)
	})}
	done := make(chan struct{})
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	go func() { defer close(done); server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { server.Shutdown(); <-done })
	return conn.LocalAddr().String()
}

// TestDeniedPaths: an answer is a leak, and refusal or silence is right.
func TestDeniedPaths(t *testing.T) {
	t.Parallel()
	udp, tcp := echoServer(t)
	silent := newRelay(t, udp)
	silent.set(true, 0)
	denied := func(id string, protocol v1alpha1.Protocol, address string) v1alpha1.Path {
		path := pathTo(id, protocol, address)
		path.Denied = true
		return path
	}
	r := newTestRunner(t, time.Second, denied("leak-udp", v1alpha1.UDP, udp), denied("leak-tcp", v1alpha1.TCPNew, tcp),
		denied("refused-udp", v1alpha1.UDP, closedPort(t)), denied("refused-tcp", v1alpha1.TCPNew, closedPort(t)),
		denied("silent", v1alpha1.UDP, silent.address()))
	for _, id := range []string{"leak-udp", "leak-tcp"} {
		eventually(t, id+" leaks", func() bool {
			result := resultOf(r, id)
			return result.Open != nil && result.Open.Probes >= 10
		})
	}
	for _, id := range []string{"refused-udp", "refused-tcp", "silent"} {
		eventually(t, id+" is decided", func() bool { return resultOf(r, id).Sent >= 10 })
		if result := resultOf(r, id); result.Answered != 0 || result.Open != nil || len(result.Gaps) > 0 {
			t.Errorf("%s: %+v", id, result)
		}
	}
}

// TestSetPaths: unchanged paths keep socket and counters, removed ones keep their result and send no
// more, and one that comes back counts on.
func TestSetPaths(t *testing.T) {
	t.Parallel()
	udp, _ := echoServer(t)
	between := newRelay(t, udp)
	kept, other := pathTo("kept", v1alpha1.UDP, between.address()), pathTo("other", v1alpha1.UDP, udp)
	r := newTestRunner(t, 2*time.Second, kept)
	answeredMore(t, r, "kept", 20)
	since := resultOf(r, "kept").Since

	r.SetPaths([]v1alpha1.Path{other, kept})
	answeredMore(t, r, "kept", 20)
	answeredMore(t, r, "other", 20)
	if result := resultOf(r, "kept"); between.clients() != 1 || !result.Since.Equal(since) ||
		result.Sent != result.Answered {
		t.Errorf("%d sockets, %+v", between.clients(), result)
	}

	r.SetPaths([]v1alpha1.Path{kept})
	eventually(t, "what was under way is decided", func() bool { return r.pending("other") == 0 })
	final := resultOf(r, "other")
	answeredMore(t, r, "kept", 50)
	if result := resultOf(r, "other"); result.Sent != final.Sent || result.Answered != result.Sent {
		t.Errorf("removed with %+v, then %+v", final, result)
	}

	other.Target.Address = between.address()
	r.SetPaths([]v1alpha1.Path{kept, other})
	answeredMore(t, r, "other", 20)
	if result := resultOf(r, "other"); !result.Since.Equal(final.Since) || result.Sent < final.Sent+20 {
		t.Errorf("came back as %+v after %+v", result, final)
	}
	if between.clients() != 2 {
		t.Errorf("%d sockets", between.clients())
	}
}

// TestClosedRunnerKeepsResults: what was under way when it was closed stays undecided.
func TestClosedRunnerKeepsResults(t *testing.T) {
	t.Parallel()
	udp, _ := echoServer(t)
	r := newTestRunner(t, 50*time.Millisecond, pathTo("a", v1alpha1.UDP, udp))
	answeredMore(t, r, "a", 5)
	r.Close()
	before := resultOf(r, "a")
	time.Sleep(60 * time.Millisecond) // past the timeout of anything under way
	if after := resultOf(r, "a"); after.Sent != before.Sent {
		t.Errorf("closed with %+v, then %+v", before, after)
	}
	r.SetPaths([]v1alpha1.Path{pathTo("b", v1alpha1.UDP, udp)})
	r.Close()
}
