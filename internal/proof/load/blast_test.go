package load

import (
	"bytes"
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

// TestBlastLate: an answer to an earlier question is not taken for that to a later one, and datagrams that arrive late,
// but within a second of each other, are counted.
func TestBlastLate(t *testing.T) {
	late, err := net.ListenPacket("udp", "127.0.7.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	go func() { // sends each answer again before the next one, and holds back the last datagrams for a while
		counts, buffer := &tallies{count: map[[idSize]byte]uint64{}}, make([]byte, 2*bench.DatagramBytes)
		var last []byte
		var held [][]byte
		began := time.Now()
		for {
			n, from, err := late.ReadFrom(buffer)
			if err != nil {
				return
			}
			if n == bench.DatagramBytes && time.Since(began) > time.Second/4 {
				held = append(held, bytes.Clone(buffer[:n]))
				continue
			}
			if n == questionSize && time.Since(began) > 1100*time.Millisecond {
				for _, data := range held {
					counts.take(data)
				}
				held = nil
			}
			if answer := counts.take(buffer[:n]); answer != nil {
				if last != nil {
					late.WriteTo(last, from)
				}
				late.WriteTo(answer, from)
				last = answer
			}
		}
	}()
	s := Measure(t.Context(), bench.Task{Kind: bench.Blast, Target: late.LocalAddr().String(), Rate: 1,
		Duration: time.Second / 2})
	if s.Error != "" || s.Sent < 20 || s.Arrived != s.Sent {
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
		data[headSize-1] = 7 // the number of the question
		if got := counts.take(data[:questionSize]); len(got) != questionSize || !bytes.Equal(got[:headSize],
			data[:headSize]) || got[questionSize-1] != 2 {
			t.Errorf("blast %d: %v", i, got)
		}
	}
	if len(counts.count) != mostBlasts || len(counts.order) != mostBlasts {
		t.Errorf("%d blasts are known, in order %d", len(counts.count), len(counts.order))
	}
	for _, size := range []int{0, headSize, questionSize - 1, questionSize + 1, bench.DatagramBytes - 1} {
		if got := counts.take(data[:size]); got != nil {
			t.Errorf("%d bytes are answered", size)
		}
	}
}
