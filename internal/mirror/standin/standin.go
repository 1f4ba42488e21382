// Package standin is the program that runs in the containers of a rehearsal's copy, in place of users' own: it opens the ports that
// they open, and answers.
package standin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Ports parses a list of port numbers, such as 80,443; empty is none.
func Ports(list string) ([]int, error) {
	var ports []int
	for text := range strings.SplitSeq(list, ",") {
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("%q is not a port", text)
		}
		ports = append(ports, int(n))
	}
	return ports, nil
}

// Open are the sockets of a stand-in.
type Open struct {
	tcp []net.Listener
	udp []net.PacketConn
}

// Listen opens TCP and UDP ports on all addresses. Ports of 0 are chosen by the kernel.
func Listen(tcp, udp []int) (*Open, error) {
	o := &Open{}
	for _, port := range tcp {
		listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			o.Close()
			return nil, err
		}
		o.tcp = append(o.tcp, listener)
	}
	for _, port := range udp {
		packets, err := net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		if err != nil {
			o.Close()
			return nil, err
		}
		o.udp = append(o.udp, packets)
	}
	return o, nil
}

// Close closes all sockets.
func (o *Open) Close() {
	for _, listener := range o.tcp {
		listener.Close() //nolint:errcheck // the process ends
	}
	for _, packets := range o.udp {
		packets.Close() //nolint:errcheck // the process ends
	}
}

// drain is how long requests that are under way may take after the stand-in was told to stop.
const drain = 5 * time.Second

// Serve answers until the context ends: every HTTP request with 200, every datagram with itself. It holds open connections.
func (o *Open) Serve(ctx context.Context) error {
	server := &http.Server{ReadHeaderTimeout: time.Hour, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "a stand-in of theseus rehearse")
	})}
	failed := make(chan error, len(o.tcp)+len(o.udp))
	for _, listener := range o.tcp {
		go func() { failed <- server.Serve(listener) }() // ends when the server is shut down
	}
	for _, packets := range o.udp {
		go func() { failed <- echo(packets) }() // ends when the socket is closed
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if late := server.Shutdown(stopping); errors.Is(late, context.DeadlineExceeded) {
		server.Close() //nolint:errcheck // the process ends
	}
	o.Close()
	return err
}

// echo sends every datagram back.
func echo(packets net.PacketConn) error {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return err
		}
		if _, err := packets.WriteTo(buffer[:n], from); errors.Is(err, net.ErrClosed) {
			return err
		}
	}
}
