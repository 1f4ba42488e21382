package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	paths "github.com/theseus-cni/theseus/internal/proof/path"
)

// exchange is a complete probe on a socket of its own; it returns nil once it is answered, else the error.
type exchange func(ctx context.Context, seq uint64, at time.Time) error

// oneShot runs an exchange for each probe, each in its own goroutine, which its deadline ends.
type oneShot struct {
	runner   *Runner
	line     *line
	exchange exchange
}

func (w *oneShot) send(seq uint64, at time.Time) {
	w.runner.tasks.Go(func() {
		ctx, cancel := w.runner.within(at)
		defer cancel()
		err := w.exchange(ctx, seq, at)
		if failed := (*net.OpError)(nil); ctx.Err() != nil && errors.As(err, &failed) {
			failed.Err = os.ErrDeadlineExceeded
		}
		switch {
		case err == nil:
			w.line.answered(seq)
		case w.runner.ctx.Err() == nil: // otherwise the runner cut it off, and it stays undecided
			w.line.failed(seq, err)
		}
	})
}

// close leaves probes in flight to their deadlines.
func (w *oneShot) close() {}

// dial dials from an address; the end of the context interrupts reads and writes on the connection.
func dial(ctx context.Context, network, address string, from net.Addr) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: -1, LocalAddr: from}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	release := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return bound{conn, release}, nil
}

// bound is a connection that a context ends.
type bound struct {
	net.Conn
	release func() bool
}

func (b bound) Close() error {
	b.release()
	return b.Conn.Close()
}

// tcpExchange connects, sends a payload and reads it back. It resets the connection at the end, as tens of
// connections a second would otherwise stay in TIME_WAIT for a minute.
func tcpExchange(address string, p *Payload, from *sourcePorts) exchange {
	return func(ctx context.Context, seq uint64, at time.Time) error {
		conn, err := from.dial(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		own := Payload{data: slices.Clone(p.data), run: p.run, base: p.base}
		if _, err := conn.Write(own.Fill(seq, at)); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, own.data); err != nil {
			return err
		}
		if got, ok := own.Seq(own.data); !ok || got != seq {
			return errGarbled
		}
		return conn.(bound).Conn.(*net.TCPConn).SetLinger(0)
	}
}

// udpExchange sends a payload from a socket of its own and waits for its echo.
func udpExchange(address string, p *Payload, from *sourcePorts) exchange {
	return func(ctx context.Context, seq uint64, at time.Time) error {
		conn, err := from.dial(ctx, "udp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		if len(p.data) >= fullSize {
			neverFragment(conn.(bound).Conn.(*net.UDPConn))
		}
		own := Payload{data: slices.Clone(p.data), run: p.run, base: p.base}
		if _, err := conn.Write(own.Fill(seq, at)); err != nil {
			return err
		}
		buffer := make([]byte, len(own.data)+1)
		for {
			n, err := conn.Read(buffer)
			if err != nil {
				return err
			}
			if got, ok := own.Seq(buffer[:n]); ok && got == seq {
				return nil
			}
		}
	}
}

// connectExchange opens a connection and closes it without sending anything.
func connectExchange(path v1alpha1.Path, from *sourcePorts) exchange {
	return func(ctx context.Context, _ uint64, _ time.Time) error {
		conn, err := from.dial(ctx, "tcp", path.Target.Address)
		if err == nil {
			return conn.Close()
		}
		if path.Protocol == v1alpha1.TCPReach && errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		return err
	}
}

// dnsExchange looks up the path's query once. The answer must have an A record, unless any answer is accepted.
func dnsExchange(path v1alpha1.Path, from *sourcePorts) exchange {
	message := new(dns.Msg).SetQuestion(dns.Fqdn(path.Query), dns.TypeA)
	packed, packErr := message.Pack()
	return func(ctx context.Context, seq uint64, _ time.Time) error {
		if packErr != nil {
			return fmt.Errorf("query %q: %w", path.Query, packErr)
		}
		conn, err := from.dial(ctx, "udp", path.Target.Address)
		if err != nil {
			return err
		}
		defer conn.Close()
		query := slices.Clone(packed)
		binary.BigEndian.PutUint16(query, uint16(seq))
		if _, err := conn.Write(query); err != nil {
			return err
		}
		return readDNS(conn, uint16(seq), path.Query == paths.AnyName)
	}
}

// readDNS reads until the answer with the given id arrives, and demands records in it, unless any answer is accepted.
func readDNS(conn net.Conn, id uint16, anyAnswer bool) error {
	buffer := make([]byte, 1232)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return err
		}
		if n < 12 || binary.BigEndian.Uint16(buffer) != id || buffer[2]&0x80 == 0 {
			continue
		}
		if anyAnswer {
			return nil
		}
		if code := int(buffer[3] & 0x0f); code != dns.RcodeSuccess {
			return fmt.Errorf("the server answers %s", dns.RcodeToString[code])
		}
		if binary.BigEndian.Uint16(buffer[6:]) == 0 {
			return errors.New("the answer is empty")
		}
		return nil
	}
}
