package knock

import (
	"context"
	"net"
	"slices"
	"strconv"
	"testing"
)

// TestTry holds that open ports are told from those that nobody answers on.
func TestTry(t *testing.T) {
	port := func(network string) int { // free a moment ago
		if network == "udp4" {
			c, err := net.ListenPacket(network, "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			return c.LocalAddr().(*net.UDPAddr).Port
		}
		l, err := net.Listen(network, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		return l.Addr().(*net.TCPAddr).Port
	}
	tcp, udp, shut := port("tcp4"), port("udp4"), port("udp4")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Open(ctx, []int{tcp}, []int{udp}) }()
	at := func(protocol string, port int) Target { return Target{protocol, "127.0.0.1:" + strconv.Itoa(port)} }
	targets := []Target{at("TCP", tcp), at("UDP", udp), at("UDP", shut)}
	want := []bool{true, true, false}
	got := Try(t.Context(), targets)
	for n := 0; n < 100 && !slices.Equal(got, want); n++ { // until it listens
		got = Try(t.Context(), targets)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
