package drive

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
)

// resolver asks a name server for addresses: one question in one datagram, and no second attempt.
type resolver struct {
	server string
	ports  *ports
}

// systemResolver uses the first name server of resolv.conf.
func systemResolver(path string) (resolver, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return resolver{}, fmt.Errorf("find the name server: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == "nameserver" {
			return resolver{server: net.JoinHostPort(fields[1], "53"), ports: &ports{}}, nil
		}
	}
	return resolver{}, fmt.Errorf("%s names no name server", path)
}

// lookup returns the first IPv4 address of a fully qualified name.
func (r resolver) lookup(ctx context.Context, name string) (netip.Addr, error) {
	id := uint16(rand.Uint32())
	conn, err := r.ports.dial(ctx, "udp4", r.server)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("look up %s: %w", name, err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	if _, err := conn.Write(question(id, name)); err != nil {
		return netip.Addr{}, fmt.Errorf("look up %s: %w", name, err)
	}
	buffer := make([]byte, 1232)
	n, err := conn.Read(buffer)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("look up %s: %w%s", name, err, translated(conn))
	}
	addr, err := firstAddress(buffer[:n], id)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("look up %s: %w", name, err)
	}
	return addr, nil
}

// question is a DNS message that asks for the IPv4 addresses of name (RFC 1035, section 4).
func question(id uint16, name string) []byte {
	m := binary.BigEndian.AppendUint16(nil, id)
	m = append(m, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0) // recursion desired; one question
	for _, label := range strings.Split(strings.Trim(name, "."), ".") {
		m = append(m, byte(len(label)))
		m = append(m, label...)
	}
	return append(m, 0, 0, typeA, 0, classIN)
}

const (
	typeA   = 1
	classIN = 1
)

var errShort = errors.New("the answer is cut short")

// firstAddress reads the first A record out of an answer.
func firstAddress(m []byte, id uint16) (netip.Addr, error) {
	const header = 12
	if len(m) < header {
		return netip.Addr{}, errShort
	}
	if binary.BigEndian.Uint16(m) != id {
		return netip.Addr{}, errors.New("the answer is to another question")
	}
	if code := m[3] & 0x0f; code != 0 {
		return netip.Addr{}, fmt.Errorf("the name server says %s", codeName(code))
	}
	questions, answers := binary.BigEndian.Uint16(m[4:]), binary.BigEndian.Uint16(m[6:])
	rest := m[header:]
	for range questions {
		if rest = skipName(rest); len(rest) < 4 {
			return netip.Addr{}, errShort
		}
		rest = rest[4:]
	}
	for range answers {
		rest = skipName(rest)
		if len(rest) < 10 {
			return netip.Addr{}, errShort
		}
		kind, length := binary.BigEndian.Uint16(rest), int(binary.BigEndian.Uint16(rest[8:]))
		rest = rest[10:]
		if len(rest) < length {
			return netip.Addr{}, errShort
		}
		if kind == typeA && length == 4 {
			return netip.AddrFrom4([4]byte(rest[:4])), nil
		}
		rest = rest[length:]
	}
	return netip.Addr{}, errors.New("no address in the answer")
}

// skipName returns what follows a name, whose end is an empty label or a pointer; nil if there is none.
func skipName(m []byte) []byte {
	for len(m) > 0 {
		switch length := int(m[0]); {
		case length == 0:
			return m[1:]
		case length >= 0xc0:
			return m[min(2, len(m)):]
		case 1+length > len(m):
			return nil
		default:
			m = m[1+length:]
		}
	}
	return nil
}

func codeName(code byte) string {
	switch code {
	case 2:
		return "SERVFAIL"
	case 3:
		return "NXDOMAIN"
	case 5:
		return "REFUSED"
	}
	return fmt.Sprintf("code %d", code)
}
