package load

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

const (
	// chunk is the most bytes of one write, and a write is at least a chunkShare of a second's bytes.
	chunk      = 64 << 10
	chunkShare = 100
	// credit is how far a stream that could not send catches up: a bound on the rate must hold over short times too.
	credit = 10 * time.Millisecond
	// drained is how long the receiver may take for what is on its way when the time is over.
	drained = bench.Drained
)

// flood sends on several streams for a while, together at most megabits a second, and returns how many bytes arrived,
// in how long, and how many segments were sent again. It counts what the receiver has read.
func flood(ctx context.Context, target string, streams, megabits int, lasts time.Duration) (bytes int64,
	took time.Duration, again int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := time.Now()
	type end struct {
		bytes, again int64
		err          error
	}
	ends := make(chan end, streams)
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			var e end
			e.bytes, e.again, e.err = stream(ctx, target, float64(megabits)*1e6/8/float64(streams), begin.Add(lasts))
			ends <- e
		})
	}
	all.Wait()
	took = time.Since(begin)
	close(ends)
	for e := range ends {
		bytes, again = bytes+e.bytes, again+e.again
		if e.err != nil {
			err = e.err
		}
	}
	return bytes, took, again, err
}

// stream sends at most rate bytes a second until a time, and returns how many the receiver has read.
func stream(ctx context.Context, target string, rate float64, until time.Time) (bytes, again int64, err error) {
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "tcp", target)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	conn.SetDeadline(until.Add(drained)) //nolint:errcheck // the writes would fail as well
	data := make([]byte, min(chunk, max(1448, int(rate/chunkShare))))
	at := time.Now() // when the next write is due
	for now := at; now.Before(until); now = time.Now() {
		if wait := min(at.Sub(now), until.Sub(now)); wait > 0 {
			time.Sleep(wait)
			continue
		}
		if now.Sub(at) > credit {
			at = now.Add(-credit)
		}
		n, err := conn.Write(data)
		if err != nil {
			return 0, 0, err
		}
		at = at.Add(time.Duration(float64(n) / rate * float64(time.Second)))
	}
	if raw, err := conn.(*net.TCPConn).SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { //nolint:errcheck // the number is left out then
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO); err == nil {
				again = int64(info.Total_retrans)
			}
		})
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, again, err
	}
	var count [8]byte
	if _, err := io.ReadFull(conn, count[:]); err != nil {
		return 0, again, fmt.Errorf("the receiver did not report how much it read: %w", err)
	}
	return int64(binary.BigEndian.Uint64(count[:])), again, nil
}

// sink reads a stream to its end, and answers how many bytes it had.
func sink(conn net.Conn) {
	defer conn.Close()
	buffer := make([]byte, 2*chunk)
	total := uint64(0)
	for {
		conn.SetReadDeadline(time.Now().Add(drained)) //nolint:errcheck // the read would fail as well
		n, err := conn.Read(buffer)
		total += uint64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return
		}
	}
	conn.Write(binary.BigEndian.AppendUint64(nil, total)) //nolint:errcheck // the sender has gone
}
