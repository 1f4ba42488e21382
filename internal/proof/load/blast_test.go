package load

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// TestBlastLost: datagrams that do not arrive are counted as lost, and a receiver that answers no question gets no
// load.
func TestBlastLost(t *testing.T) {
	lossy, err := net.ListenPacket("udp", "127.0.7.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lossy.Close()
	go func() { // drops every second datagram
		counts := &tallies{count: map[[idSize]byte]uint64{}}
		buffer := make([]byte, 2*bench.DatagramBytes)
		for {
			n, from, err := lossy.ReadFrom(buffer)
			if err != nil {
				return
			}
			if n == bench.DatagramBytes && binary.BigEndian.Uint64(buffer[idSize:])%2 == 1 {
				continue
			}
			if answer := counts.take(buffer[:n]); answer != nil {
				lossy.WriteTo(answer, from)
			}
		}
	}()
	task := bench.Task{Kind: bench.Blast, Target: lossy.LocalAddr().String(), Rate: 5, Duration: time.Second / 2}
	again(t, func() string {
		if s := Measure(t.Context(), task); s.Error != "" || s.Sent < 50 || s.Arrived != (s.Sent+1)/2 {
			return strings.TrimSpace(s.Error + " half is lost, but not half is counted")
		}
		return ""
	})

	silent, err := net.ListenPacket("udp", "127.0.7.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	task.Target = silent.LocalAddr().String()
	if s := Measure(t.Context(), task); !strings.Contains(s.Error, "no answer within") || s.Sent != 0 {
		t.Errorf("%+v", s)
	}
}

// TestTallies: the receiver's memory is bounded, and what is neither a question nor a datagram of a blast has no
// answer.
func TestTallies(t *testing.T) {
	counts := &tallies{count: map[[idSize]byte]uint64{}}
	data := make([]byte, bench.DatagramBytes)
	for i := range 3 * mostBlasts {
		data[0] = byte(i)
		counts.take(data)
		counts.take(data)
		if got := counts.take(data[:headSize]); len(got) != headSize || got[0] != byte(i) || got[headSize-1] != 2 {
			t.Errorf("blast %d: %v", i, got)
		}
	}
	if len(counts.count) != mostBlasts || len(counts.order) != mostBlasts {
		t.Errorf("%d blasts are known, in order %d", len(counts.count), len(counts.order))
	}
	for _, size := range []int{0, headSize - 1, headSize + 1, bench.DatagramBytes - 1} {
		if got := counts.take(data[:size]); got != nil {
			t.Errorf("%d bytes are answered", size)
		}
	}
}
