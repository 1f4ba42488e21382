package probe

import (
	"net"
	"testing"
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
		conn, err := from.dial(t.Context(), listener.Addr().String())
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

// TestPortsComeRound: after the last port comes the first.
func TestPortsComeRound(t *testing.T) {
	t.Parallel()
	_, tcp := echoServer(t)
	var from sourcePorts
	from.next.Store(allPorts - 20)
	for range 40 {
		conn, err := from.dial(t.Context(), tcp)
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
