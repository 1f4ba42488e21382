package standin

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// askEvery is the time between two connections of one Ask, and askFor bounds one of them: the kernel sends a SYN
	// again after a second, so that one lost packet is no lost connection.
	askEvery, askFor = time.Second, 2 * time.Second
	// askedWord begins a line about a connection.
	askedWord = "asked"
	// mostAsks bounds the connections of one stand-in.
	mostAsks = 100
	// byUDP begins the address of an Ask that sends datagrams; askSize is how many bytes they have.
	byUDP   = "udp/"
	askSize = 32
	// fillHeader has fillSize bytes in each request by TCP, and the answer has as many: they fill packets of the size
	// that the MTU of both ends allows, and are lost where the path's is smaller and no router says so.
	fillHeader = "Theseus-Fill"
	fillSize   = 12_000
)

// Ask is a connection that a stand-in opens all the time, for one request, or a datagram that it sends and waits for.
type Ask struct {
	Number  int
	Address netip.AddrPort
	UDP     bool
}

// Asks parses a list of connections, each NUMBER=ADDRESS:PORT, or NUMBER=udp/ADDRESS:PORT; empty is none.
func Asks(list string) (all []Ask, err error) {
	for text := range strings.SplitSeq(list, ",") {
		if text == "" {
			continue
		}
		number, at, _ := strings.Cut(text, "=")
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q does not begin with a number", text)
		}
		at, udp := strings.CutPrefix(at, byUDP)
		to, err := netip.ParseAddrPort(at)
		if err != nil || to.Port() == 0 || to.Addr().Zone() != "" {
			return nil, fmt.Errorf("%q is not an address with a port", at)
		}
		all = append(all, Ask{int(n), to, udp})
	}
	if len(all) > mostAsks {
		return nil, fmt.Errorf("%d connections, and %d are allowed", len(all), mostAsks)
	}
	return all, nil
}

// Asking opens connections until the context ends, each once a second, and writes a line about each (Answer).
func Asking(ctx context.Context, asks []Ask, to io.Writer) {
	var writing sync.Mutex
	var all sync.WaitGroup
	for _, one := range asks {
		all.Go(func() {
			tick := time.NewTicker(askEvery)
			defer tick.Stop()
			for {
				through := one.through(ctx)
				if ctx.Err() != nil {
					return
				}
				writing.Lock()
				fmt.Fprintf(to, "%s %d %t\n", askedWord, one.Number, through)
				writing.Unlock()
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
	all.Wait()
}

// through reports whether the other end answers.
func (a Ask) through(ctx context.Context) bool {
	if a.UDP {
		return echoes(ctx, a.Address)
	}
	return connects(ctx, a.Address)
}

// echoes sends a datagram from a new port, again after a second, as the kernel does with a SYN, and waits until it
// comes back.
func echoes(ctx context.Context, to netip.AddrPort) bool {
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "udp", to.String())
	if err != nil {
		return false
	}
	defer connection.Close() //nolint:errcheck // the answer is known
	// which ends the wait
	defer context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Now()) })()
	sent, got := make([]byte, askSize), make([]byte, 2*askSize)
	_, _ = rand.Read(sent) // never fails
	for until := time.Now().Add(askFor); time.Now().Before(until) && ctx.Err() == nil; {
		if _, err := connection.Write(sent); err != nil {
			return false // refused
		}
		_ = connection.SetReadDeadline(time.Now().Add(askFor / 2))
		n, err := connection.Read(got)
		if err == nil && bytes.Equal(got[:n], sent) {
			return true
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
	}
	return false
}

// connects opens a connection, sends a request with full packets, and reads until the other end closes it.
func connects(ctx context.Context, to netip.AddrPort) bool {
	end := time.Now().Add(askFor)
	dialer := net.Dialer{Deadline: end}
	connection, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return false
	}
	defer connection.Close() //nolint:errcheck // the answer is known
	// which ends the exchange
	defer context.AfterFunc(ctx, func() { _ = connection.SetDeadline(time.Now()) })()
	_ = connection.SetDeadline(end)
	if _, err := fmt.Fprintf(connection, "GET / HTTP/1.0\r\n%s: %s\r\n\r\n", fillHeader, fill()); err != nil {
		return !errors.Is(err, os.ErrDeadlineExceeded) // closed: it is there
	}
	_, err = io.Copy(io.Discard, connection)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// fill is what fills packets.
func fill() string { return strings.Repeat("-", fillSize) }

// Answer reads a line of a stand-in's output about a connection; others are not about any.
func Answer(line string) (number int, through, ok bool) {
	fields := strings.Fields(line)
	if len(fields) != 3 || fields[0] != askedWord {
		return 0, false, false
	}
	n, err := strconv.ParseUint(fields[1], 10, 16)
	through, wrong := strconv.ParseBool(fields[2])
	return int(n), through, err == nil && wrong == nil
}
