package probe

import (
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
)

// BenchmarkUDP is one probe there and back through everything that a path adds (number, stamp, tracker,
// histogram), next to the same socket and server with nothing added, in one run. The processor time is
// the server's too; on a busy machine it tells more than the time that passed.
func BenchmarkUDP(b *testing.B) {
	conn, err := listenUDP("127.0.0.1", 0)
	if err != nil {
		b.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { echoUDP(conn) })
	defer func() { conn.Close(); running.Wait() }()
	client, err := net.Dial("udp", conn.LocalAddr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	p := NewPayload(64, 1, time.Now())
	buffer := make([]byte, 65)

	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		data := p.Fill(0, time.Now())
		before := processorTime(b)
		defer func() { reportProcessor(b, before) }()
		for b.Loop() {
			if _, err := client.Write(data); err != nil {
				b.Fatal(err)
			}
			if _, err := client.Read(buffer); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("probe", func(b *testing.B) {
		b.ReportAllocs()
		l := &line{tracker: loss.New(loss.Config{Interval: time.Hour})}
		w := &udpWire{line: l, payload: p, conn: client.(*net.UDPConn)}
		before := processorTime(b)
		defer func() { reportProcessor(b, before) }()
		for b.Loop() {
			at := time.Now()
			w.send(l.sent(at, at), at)
			n, err := client.Read(buffer)
			if err != nil {
				b.Fatal(err)
			}
			seq, ok := p.Seq(buffer[:n])
			if !ok {
				b.Fatal("not an answer")
			}
			l.answered(seq)
		}
		if result := l.tracker.Result(); result.Sent != result.Answered || result.Sent == 0 {
			b.Fatalf("%+v", result)
		}
	})
}

// BenchmarkResults is what a report of a node's paths costs.
func BenchmarkResults(b *testing.B) {
	r := NewRunner(Options{})
	defer r.Close()
	var paths []v1alpha1.Path
	for i := range 54 {
		paths = append(paths, v1alpha1.Path{ID: string(rune('a' + i)), Protocol: v1alpha1.TCPNew,
			IntervalMillis: 3600000, Target: v1alpha1.Endpoint{Address: "127.0.0.1:1"}})
	}
	r.SetPaths(paths)
	b.ReportAllocs()
	for b.Loop() {
		r.Results()
	}
}

// BenchmarkNode is a probe pod with both networks up at the default intervals (4 paths at 10 ms, 12 at 50, 8
// at 100) against a server in the same process, for two seconds: the processor time of senders, receivers
// and server per probe, and in all.
func BenchmarkNode(b *testing.B) {
	conn, err := listenUDP("127.0.0.1", 0)
	if err != nil {
		b.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { echoUDP(conn) })
	defer func() { conn.Close(); running.Wait() }()
	for b.Loop() {
		r := NewRunner(Options{})
		var paths []v1alpha1.Path
		for i := range 24 {
			path := v1alpha1.Path{ID: string(rune('a' + i)), Protocol: v1alpha1.UDP, Size: 64,
				Target: v1alpha1.Endpoint{Address: conn.LocalAddr().String()}}
			path.IntervalMillis = []int{10, 50, 50, 50, 100, 100}[i/4]
			paths = append(paths, path)
		}
		before, from := processorTime(b), time.Now()
		r.SetPaths(paths)
		time.Sleep(2 * time.Second)
		used, took := processorTime(b)-before, time.Since(from)
		r.Close()
		sent := int64(0)
		for _, result := range r.Results() {
			sent += result.Sent
		}
		b.ReportMetric(float64(used.Microseconds())/float64(sent), "cpu-us/probe")
		b.ReportMetric(100*float64(used)/float64(took), "cpu-%")
		b.ReportMetric(float64(sent)/took.Seconds(), "probes/s")
	}
}

func reportProcessor(b *testing.B, before time.Duration) {
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
