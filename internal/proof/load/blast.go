package load

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// Every datagram begins with an identifier of the blast and a number. A question is that and room for a count, and so
// is its answer: who forges the sender of one gains nothing. An answer has the number of its question, since it may be
// overtaken.
const (
	idSize       = 16
	headSize     = idSize + 8
	questionSize = headSize + 8
	// burst is how many datagrams a blast that could not send catches up at once, or as many as are due in leastBurst:
	// less than the smallest queues hold.
	burst      = 50
	leastBurst = time.Millisecond
	// mostAfter bounds the wait for the last datagrams: while they arrive, it goes on.
	mostAfter = 3 * timeout
	// mostBlasts is how many blasts a receiver counts at once.
	mostBlasts = 16
)

// blasted is what became of a blast.
type blasted struct {
	sent, arrived int64
	took          time.Duration // of sending
}

// blast sends datagrams of bench.DatagramBytes for a while, at most megabits a second, and asks the receiver how many
// arrived. Unlike TCP, it does not slow down when the network is full.
func blast(ctx context.Context, target string, megabits int, lasts time.Duration) (b blasted, err error) {
	conn, err := net.Dial("udp", target)
	if err != nil {
		return b, err
	}
	defer conn.Close()
	data := make([]byte, bench.DatagramBytes)
	rand.Read(data[:idSize]) //nolint:errcheck // it never fails
	// A receiver that does not answer gets no load.
	question := make([]byte, questionSize)
	copy(question, data[:idSize])
	if _, err := arrived(ctx, conn, question); err != nil {
		return b, err
	}
	every := time.Duration(float64(8*bench.DatagramBytes) / float64(megabits) * float64(time.Microsecond))
	begin := time.Now()
	end := begin.Add(lasts)
	for at, now := begin, begin; now.Before(end); now = time.Now() {
		if wait := min(at.Sub(now), end.Sub(now)); wait > 0 {
			rest := unix.NsecToTimespec(int64(min(wait, 100*time.Millisecond)))
			unix.Nanosleep(&rest, nil) //nolint:errcheck // a signal only ends it early
			continue
		}
		if ctx.Err() != nil {
			return b, ctx.Err()
		}
		if behind := min(credit, max(leastBurst, burst*every)); now.Sub(at) > behind {
			at = now.Add(-behind)
		}
		binary.BigEndian.PutUint64(data[idSize:], uint64(b.sent))
		switch _, err := conn.Write(data); {
		case err == nil:
			b.sent++
		case errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ECONNREFUSED):
			// The queue of the interface is full; or this is the answer to an earlier one. This one was not sent.
		default:
			return b, err
		}
		at = at.Add(every)
	}
	b.took = time.Since(begin)
	for rose := time.Now(); ; { // until no more arrive
		n, err := arrived(ctx, conn, question)
		if n > b.arrived {
			b.arrived, rose = n, time.Now()
		}
		if err != nil || b.arrived >= b.sent || time.Since(rose) > timeout || time.Since(end) > mostAfter {
			return b, err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// arrived asks a receiver how many datagrams of a blast it has counted. Each question has the next number.
func arrived(ctx context.Context, conn net.Conn, question []byte) (n int64, err error) {
	buffer := make([]byte, questionSize+1)
	for range 5 {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		binary.BigEndian.PutUint64(question[idSize:], binary.BigEndian.Uint64(question[idSize:])+1)
		if _, err = conn.Write(question); err != nil {
			continue // of an earlier one
		}
		conn.SetReadDeadline(time.Now().Add(timeout)) //nolint:errcheck // the read would fail as well
		for {
			var size int
			if size, err = conn.Read(buffer); err != nil {
				break
			}
			if size == questionSize && bytes.Equal(buffer[:headSize], question[:headSize]) {
				return int64(binary.BigEndian.Uint64(buffer[headSize:])), nil
			}
		}
	}
	return 0, err
}

// tallies are how many datagrams arrived, by blast. The oldest blast makes room for a new one.
type tallies struct {
	mu    sync.Mutex
	order [][idSize]byte
	count map[[idSize]byte]uint64
}

// take counts a datagram, and returns the answer to a question; nil if it was none.
func (t *tallies) take(data []byte) (answer []byte) {
	if len(data) != questionSize && len(data) != bench.DatagramBytes {
		return nil
	}
	id := [idSize]byte(data[:idSize])
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.count[id]; !known {
		if len(t.order) == mostBlasts {
			delete(t.count, t.order[0])
			t.order = t.order[1:]
		}
		t.order = append(t.order, id)
	}
	if len(data) == bench.DatagramBytes {
		t.count[id]++
		return nil
	}
	t.count[id] += 0 // known from now on
	return binary.BigEndian.AppendUint64(bytes.Clone(data[:headSize]), t.count[id])
}

// receive counts datagrams and answers questions until the connection is closed.
func receive(conn net.PacketConn) error {
	t := &tallies{count: map[[idSize]byte]uint64{}}
	buffer := make([]byte, bench.DatagramBytes+1)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if answer := t.take(buffer[:n]); answer != nil {
			conn.WriteTo(answer, from) //nolint:errcheck // it is asked again
		}
	}
}
