package drive

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
)

// ports assigns every socket the next source port of a long sequence, one for datagrams and one for connections. A
// random port would sometimes be one that was used before. Then the node's connection tracking sends its packets to the
// earlier destination: a datagram to a server that has ended, if it ended in between; a connection to a missing server,
// for two minutes after an unanswered attempt (as of clients that start before their Service). Such losses are
// kube-proxy's, and occur at every start; here they would hide the network's losses.
type ports struct{ datagrams, connections atomic.Uint32 }

const (
	firstPort = 10000
	lastPort  = 32767 // where the ports begin that the kernel hands out
)

// dial opens a socket that is connected to the address; the network is udp4 or tcp4. Ports that are in use are passed
// over.
func (p *ports) dial(ctx context.Context, network, address string) (net.Conn, error) {
	used := &p.connections
	if network == "udp4" {
		used = &p.datagrams
	}
	for {
		port := firstPort + int(used.Add(1)%(lastPort-firstPort+1))
		d := net.Dialer{LocalAddr: &net.TCPAddr{Port: port}}
		if network == "udp4" {
			d.LocalAddr = &net.UDPAddr{Port: port}
		}
		conn, err := d.DialContext(ctx, network, address)
		if errors.Is(err, syscall.EADDRINUSE) && ctx.Err() == nil {
			continue
		}
		return conn, err
	}
}

// translated says what the node made of a socket of datagrams, for which its connection tracking has an entry: a client
// on a host's own network is masqueraded, and a port that Calico exempts from tracking gets no answer.
func translated(conn net.Conn) string {
	local, _ := conn.LocalAddr().(*net.UDPAddr)
	table, err := os.ReadFile("/proc/net/nf_conntrack")
	if local == nil || err != nil {
		return ""
	}
	if answers := answersTo(string(table), local); answers != "" {
		return "; answers were awaited as " + answers
	}
	return ""
}

// answersTo finds whom answers to a socket's datagrams are sent to and from, in the kernel's list of connections.
func answersTo(table string, local *net.UDPAddr) string {
	sent := fmt.Sprintf(" src=%s dst=", local.IP)
	port := fmt.Sprintf(" sport=%d ", local.Port)
	for line := range strings.Lines(table) {
		if !strings.Contains(line, " udp ") || !strings.Contains(line, sent) || !strings.Contains(line, port) {
			continue
		}
		if back := strings.LastIndex(line, " src="); back > strings.Index(line, sent) &&
			back > strings.Index(line, port) {
			answers, _, _ := strings.Cut(line[back+1:], " mark=")
			return strings.TrimSpace(answers)
		}
	}
	return ""
}
