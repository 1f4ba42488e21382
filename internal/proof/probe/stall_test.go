package probe

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// stallTimeout is the timeout of the probes of a process that is stopped for three times as long.
const stallTimeout = 500 * time.Millisecond

// TestMain lets the test binary be the process that is stopped.
func TestMain(m *testing.M) {
	if os.Getenv("THESEUS_TEST_SENDER") != "" {
		sender()
		return
	}
	os.Exit(m.Run())
}

// sender measures the paths that it reads, until it reads a line more, and then writes what it saw.
func sender() {
	input := json.NewDecoder(os.Stdin)
	var paths []v1alpha1.Path
	if err := input.Decode(&paths); err != nil {
		panic(err)
	}
	r := NewRunner(Options{Timeout: stallTimeout})
	r.SetPaths(paths)
	var end bool
	input.Decode(&end) // or the end of the input
	r.SetPaths(nil)
	for _, path := range paths {
		for r.pending(path.ID) > 0 {
			time.Sleep(10 * time.Millisecond)
			r.Results()
		}
	}
	json.NewEncoder(os.Stdout).Encode(r.Results())
	r.Close()
}

// TestStoppedSender stops the sending process for much longer than its timeout. What was answered meanwhile is
// no loss, and is told apart; what was not answered is lost. The stop shows as a stall.
func TestStoppedSender(t *testing.T) {
	t.Parallel()
	udp, tcp := echoServer(t)
	silent, slow := newRelay(t, udp), newRelay(t, udp)
	slow.set(false, 150*time.Millisecond) // so that answers are under way when the process stops
	slowTCP := slowEcho(t, 150*time.Millisecond)
	// A second connection is tried each 20 ms: some are under way at any time.
	fresh := pathTo("tcp-new", v1alpha1.TCPNew, slowTCP)
	fresh.IntervalMillis = 20
	paths := []v1alpha1.Path{pathTo("udp", v1alpha1.UDP, udp), pathTo("tcp", v1alpha1.TCP, tcp),
		pathTo("slow", v1alpha1.UDP, slow.address()), fresh, pathTo("silent", v1alpha1.UDP, silent.address())}

	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), "THESEUS_TEST_SENDER=1")
	command.Stderr = os.Stderr
	var output bytes.Buffer
	command.Stdout = &output
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(input).Encode(paths); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it sends on all paths", func() bool { return len(slow.touched()) >= 50 && silent.clients() > 0 })
	silent.set(true, 0)
	eventually(t, "probes are dropped", func() bool { return len(silent.touched()) >= 10 })
	command.Process.Signal(syscall.SIGSTOP)
	time.Sleep(3 * stallTimeout)
	silent.set(false, 0)
	command.Process.Signal(syscall.SIGCONT)
	stopped := len(slow.touched())
	eventually(t, "it goes on", func() bool { return len(slow.touched()) >= stopped+50 })
	input.Close()
	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}

	var results []v1alpha1.PathResult
	if err := json.Unmarshal(output.Bytes(), &results); err != nil {
		t.Fatal(err)
	}
	for _, result := range results {
		lost := result.Sent - result.Answered
		switch result.ID {
		case "silent":
			if want := int64(len(silent.touched())); lost != want {
				t.Errorf("silent: %d lost, %d dropped", lost, want)
			}
		case "slow", "tcp-new":
			if lost != 0 || result.Excused == 0 {
				t.Errorf("%s: %d of %d lost, %d excused, gaps %+v",
					result.ID, lost, result.Sent, result.Excused, result.Gaps)
			}
		default:
			if lost != 0 {
				t.Errorf("%s: %d of %d lost, gaps %+v", result.ID, lost, result.Sent, result.Gaps)
			}
		}
		longest := 0.0
		for _, stall := range result.Stalls {
			longest = max(longest, stall.Millis)
		}
		if longest < float64((2 * stallTimeout).Milliseconds()) {
			t.Errorf("%s: the stop does not show among the stalls %+v", result.ID, result.Stalls)
		}
	}
	if len(results) != len(paths) {
		t.Errorf("%d results of %d paths", len(results), len(paths))
	}
}

// slowEcho answers on connections after a delay.
func slowEcho(t *testing.T, delay time.Duration) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buffer := make([]byte, 2048)
				n, err := conn.Read(buffer)
				if err != nil {
					return
				}
				time.Sleep(delay)
				conn.Write(buffer[:n])
				conn.Read(buffer) // until the other end has it
			}()
		}
	}()
	return listener.Addr().String()
}
