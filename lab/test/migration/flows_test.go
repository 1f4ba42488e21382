package migration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A flow is numbered messages on one connection. Whoever answers repeats the number and says whom it sees asking, so a
// flow tells that it was lost, that it was broken, and that its source became another one.

// Sizes of messages: most are as those of a terminal, some as large as fits into a datagram, or into many segments.
const (
	smallMessage  = 64
	largeDatagram = 1400
	largeMessage  = 32 << 10
	largeEach     = 16 // every so many messages is a large one
)

// Times of flows.
const (
	flowPace    = 20 * time.Millisecond
	renewPace   = 100 * time.Millisecond
	answerLimit = 20 * time.Second // only ends what is broken
	denialLimit = 300 * time.Millisecond
)

// space is a network namespace of a lab, which lives until it is closed; a socket that is opened in it stays there.
type space struct{ *os.File }

// spaceOf opens the one with a number, which its machine tells.
func spaceOf(t *testing.T, inode string) space {
	t.Helper()
	all, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, path := range all {
		if to, err := os.Readlink(path); err != nil || to != "net:["+strings.TrimSpace(inode)+"]" {
			continue
		}
		if ns, err := os.Open(path); err == nil {
			t.Cleanup(func() { ns.Close() })
			return space{ns}
		}
	}
	t.Fatalf("no process is in the network namespace %q", inode)
	return space{}
}

// do calls in the namespace.
func (s space) do(call func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Setns(int(s.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = call()
		}
		done <- err
	}()
	return <-done
}

func (s space) dial(network, to string, limit time.Duration) (conn net.Conn, err error) {
	err = s.do(func() error {
		conn, err = net.DialTimeout(network, to, limit)
		return err
	})
	return conn, err
}

// answer answers flows on a port of a namespace, until the test ends.
func (s space) answer(t *testing.T, port string) {
	t.Helper()
	var listener net.Listener
	var packets net.PacketConn
	err := s.do(func() (err error) {
		if listener, err = net.Listen("tcp4", ":"+port); err == nil {
			packets, err = net.ListenPacket("udp4", ":"+port)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close(); packets.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for {
					message, err := read(conn)
					if err == nil {
						_, err = conn.Write(signed(message, conn.RemoteAddr()))
					}
					if err != nil {
						return
					}
				}
			}()
		}
	}()
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			if n >= smallMessage {
				_, _ = packets.WriteTo(signed(buffer[:n], from), from)
			}
		}
	}()
}

// message has a number, its own length, and room for whom the other end sees.
func message(number uint32, size int) []byte {
	return append(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, number), uint32(size)),
		make([]byte, size-8)...)
}

// signed says who asked.
func signed(message []byte, from net.Addr) []byte {
	as4 := netip.MustParseAddrPort(from.String()).Addr().Unmap().As4()
	copy(message[8:], as4[:])
	return message
}

// read reads a message of a stream.
func read(from io.Reader) ([]byte, error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[4:])
	if size < smallMessage || size > largeMessage {
		return nil, fmt.Errorf("a message of %d bytes", size)
	}
	all := append(head, make([]byte, size-8)...)
	_, err := io.ReadFull(from, all[8:])
	return all, err
}

// flow is one that is kept, or one that is begun again for each message.
type flow struct {
	name string
	stop chan struct{}
	done sync.WaitGroup

	mu      sync.Mutex
	sent    int
	back    map[uint32]bool
	sources map[string]int // whom the other end saw, and how often
	failed  []error
}

func newFlow(name string) *flow {
	return &flow{name: name, stop: make(chan struct{}), back: map[uint32]bool{}, sources: map[string]int{}}
}

// answered notes an answer.
func (f *flow) answered(message []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.back[binary.BigEndian.Uint32(message)] = true
	f.sources[netip.AddrFrom4([4]byte(message[8:12])).String()]++
}

func (f *flow) fails(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failed = append(f.failed, fmt.Errorf("at %s, message %d: %w", time.Now().Format(time.TimeOnly), f.sent, err))
}

// next is the next message.
func (f *flow) next(large int) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent++
	if f.sent%largeEach == 0 {
		return message(uint32(f.sent), large)
	}
	return message(uint32(f.sent), smallMessage)
}

// each calls at a pace until the flow is to end, or a call says so.
func (f *flow) each(pace time.Duration, call func() (goOn bool)) {
	f.done.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			select {
			case <-f.stop:
				return
			case <-tick.C:
				if !call() {
					return
				}
			}
		}
	})
}

// keep begins a flow on one connection, as soon as the other end answers: rules of a new Service take a moment.
func (s space) keep(t *testing.T, name, network, to string) *flow {
	t.Helper()
	f := newFlow(name + ", " + network)
	var conn net.Conn
	for deadline := time.Now().Add(time.Minute); ; {
		one, err := s.dial(network+"4", to, time.Second)
		if err == nil {
			if _, err = exchange(one, message(0, smallMessage), time.Second); err == nil {
				conn = one
				break
			}
			one.Close()
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s, %s: %s does not answer: %v", name, network, to, err)
		}
	}
	if network == "udp" {
		f.datagrams(conn)
		return f
	}
	f.each(flowPace, func() bool { return f.converse(conn) })
	return f
}

// converse sends the next message and waits for its answer.
func (f *flow) converse(conn net.Conn) (answered bool) {
	answer, err := exchange(conn, f.next(largeMessage), answerLimit)
	if err != nil {
		f.fails(err)
		return false
	}
	f.answered(answer)
	return true
}

func exchange(conn net.Conn, message []byte, limit time.Duration) ([]byte, error) {
	_ = conn.SetDeadline(time.Now().Add(limit))
	if _, err := conn.Write(message); err != nil {
		return nil, err
	}
	if conn.RemoteAddr().Network() == "udp" {
		answer := make([]byte, 1<<16)
		n, err := conn.Read(answer)
		return answer[:n], err
	}
	return read(conn)
}

// datagrams sends without waiting, so that one that is lost is one.
func (f *flow) datagrams(conn net.Conn) {
	_ = conn.SetDeadline(time.Time{})
	f.each(flowPace, func() bool {
		if _, err := conn.Write(f.next(largeDatagram)); err != nil {
			f.fails(err)
		}
		return true
	})
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, err := conn.Read(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil && n >= smallMessage {
				f.answered(buffer[:n])
			}
		}
	}()
}

// renew begins a new connection for each message.
func (s space) renew(name, to string) *flow {
	f := newFlow(name + ", each anew")
	f.each(renewPace, func() bool {
		conn, err := s.dial("tcp4", to, answerLimit)
		if err != nil {
			f.fails(err)
			return true
		}
		defer conn.Close()
		f.converse(conn)
		return true
	})
	return f
}

// denied tries, by new connections and by datagrams of one flow, what nobody may answer.
func (s space) denied(t *testing.T, name, to string) *flow {
	t.Helper()
	f := newFlow(name + ", denied")
	kept, err := s.dial("udp4", to, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	f.each(flowPace, func() bool {
		if _, err := exchange(kept, f.next(smallMessage), denialLimit); err == nil {
			f.fails(errors.New("a datagram was answered"))
		}
		if conn, err := s.dial("tcp4", to, denialLimit); err == nil {
			f.fails(errors.New("a connection was accepted"))
			conn.Close()
		}
		return true
	})
	return f
}

// end stops a flow. All of it must have been answered, and all by one who saw the given source; empty for any one.
func (f *flow) end(t *testing.T, source string) {
	t.Helper()
	f.finish()
	f.mu.Lock()
	defer f.mu.Unlock()
	var lost []int
	for number := 1; number <= f.sent; number++ {
		if !f.back[uint32(number)] {
			lost = append(lost, number)
		}
	}
	t.Logf("%s: %d messages, %d lost, from %v", f.name, f.sent, len(lost), f.sources)
	if len(lost) > 0 || len(f.failed) > 0 || len(f.back) < 100 {
		t.Errorf("%s: of %d messages these were lost: %v; %v", f.name, f.sent, lost[:min(len(lost), 20)],
			f.failed[:min(len(f.failed), 5)])
	}
	if len(f.sources) != 1 || source != "" && f.sources[source] == 0 {
		t.Errorf("%s: the other end saw %v, want %s alone", f.name, f.sources, source)
	}
}

// endDenied stops a flow that nobody may have answered.
func (f *flow) endDenied(t *testing.T) {
	t.Helper()
	f.finish()
	t.Logf("%s: tried %d times, answered %d times", f.name, f.sent, len(f.failed))
	if len(f.failed) > 0 || f.sent < 50 {
		t.Errorf("%s: of %d: %v", f.name, f.sent, f.failed[:min(len(f.failed), 5)])
	}
}

// finish ends sending, and waits a while for the answers to what was sent last.
func (f *flow) finish() {
	close(f.stop)
	f.done.Wait()
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(flowPace) {
		f.mu.Lock()
		all := len(f.back) >= f.sent
		f.mu.Unlock()
		if all {
			return
		}
	}
}
