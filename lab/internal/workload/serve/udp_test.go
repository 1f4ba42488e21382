package serve

import (
	"bytes"
	"net"
	"strings"
	"sync"
	"testing"
)

// TestFromVXLAN: a datagram from VXLAN's port is answered as any other, and told in the log.
func TestFromVXLAN(t *testing.T) {
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	e := &echo{conn, &log}
	var running sync.WaitGroup
	running.Go(func() { e.run() }) //nolint:errcheck // it ends with its connection
	for _, local := range []string{"127.0.0.1:0", "127.83.0.1:4789"} {
		from, err := net.ResolveUDPAddr("udp4", local)
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.DialUDP("udp4", from, conn.LocalAddr().(*net.UDPAddr))
		if err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 8)
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if n, err := client.Read(answer); err != nil || string(answer[:n]) != "x" {
			t.Errorf("%q: %v", answer[:n], err)
		}
		client.Close()
	}
	conn.Close()
	running.Wait()
	if said := log.String(); strings.Count(said, FromVXLAN) != 1 || !strings.Contains(said, "127.83.0.1:4789") {
		t.Errorf("the log says %q", said)
	}
}
