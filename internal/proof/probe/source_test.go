package probe

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// TestNewConnectionsComeFromNewPorts: no port serves twice, and one that another socket holds costs no probe.
func TestNewConnectionsComeFromNewPorts(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan int, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn.RemoteAddr().(*net.TCPAddr).Port
			conn.Close()
		}
	}()
	var from sourcePorts
	seen := map[int]bool{}
	var taken net.Listener
	for range 300 {
		conn, err := from.dial(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		port := <-accepted
		if seen[port] || port < firstPort || port > lastPort {
			t.Fatalf("port %d after %d others", port, len(seen))
		}
		seen[port] = true
		if taken == nil { // the next port, if it is free; otherwise it is held already
			taken, _ = net.ListenTCP("tcp", &net.TCPAddr{Port: port + 1})
		}
	}
	if taken != nil {
		taken.Close()
	}
}

// TestQuestionsComeFromNewPorts: the same of questions to name servers.
func TestQuestionsComeFromNewPorts(t *testing.T) {
	t.Parallel()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var from sourcePorts
	from.next.Store(allPorts / 2)
	ask := dnsExchange(v1alpha1.Path{Query: "there.example",
		Target: v1alpha1.Endpoint{Address: server.LocalAddr().String()}}, &from)
	buffer, last := make([]byte, 512), 0
	for i := range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ask(ctx, uint64(i), time.Time{}) }()
		_, asker, err := server.ReadFrom(buffer)
		cancel()
		if <-done == nil || err != nil {
			t.Fatalf("answered, or not asked (%v)", err)
		}
		port := asker.(*net.UDPAddr).Port
		if port <= last || last > 0 && port > last+portTries {
			t.Fatalf("port %d after %d", port, last)
		}
		last = port
	}
}

// TestPortsComeRound: after the last port comes the first.
func TestPortsComeRound(t *testing.T) {
	t.Parallel()
	_, tcp := echoServer(t)
	var from sourcePorts
	from.next.Store(allPorts - 20)
	for range 40 {
		conn, err := from.dial(t.Context(), "tcp", tcp)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.(bound).Conn.(*net.TCPConn).SetLinger(0) // else the next run of this test finds its ports taken
		conn.Close()
	}
	if from.next.Load() < allPorts+20 {
		t.Errorf("it stands at %d", from.next.Load())
	}
}
