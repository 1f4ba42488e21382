package probe

import (
	"net"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/path"
)

// TestOutsideProtocols: of a server that only accepts, the handshake is the answer; of a name server, any answer to any
// question; and by UDP each probe comes from a socket of its own. A refusal is an answer only where the path says so.
func TestOutsideProtocols(t *testing.T) {
	t.Parallel()
	mute, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts: the kernel does
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mute.Close() })
	sources := make(chan string, 1024)
	echo, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { echo.Close(); <-done })
	go func() {
		defer close(done)
		buffer := make([]byte, 512)
		for {
			n, from, err := echo.ReadFrom(buffer)
			if err != nil {
				return
			}
			select {
			case sources <- from.String():
			default:
			}
			echo.WriteTo(buffer[:n], from) //nolint:errcheck // the test sees that no answer came
		}
	}()
	question := pathTo("dns", v1alpha1.DNS, dnsServer(t))
	question.Query = path.AnyName
	connect := pathTo("connect", v1alpha1.TCPConnect, mute.Addr().String())
	connect.IntervalMillis = 20 // what is not accepted waits in the kernel's queue
	closed := closedPort(t)
	r := newTestRunner(t, 10*time.Second, connect, question, pathTo("udp", v1alpha1.UDPNew, echo.LocalAddr().String()),
		pathTo("reach", v1alpha1.TCPReach, closed), pathTo("refused", v1alpha1.TCPConnect, closed))
	for _, id := range []string{"connect", "dns", "udp", "reach"} {
		answeredMore(t, r, id, 20)
		if result := resultOf(r, id); result.Open != nil || len(result.Gaps) > 0 {
			t.Errorf("%s: %+v", id, result)
		}
	}
	eventually(t, "refusals are lost", func() bool { return resultOf(r, "refused").Sent >= 20 })
	if result := resultOf(r, "refused"); result.Answered != 0 {
		t.Errorf("refused: %+v", result)
	}
	seen := map[string]bool{}
	for range 20 {
		from := <-sources
		if seen[from] {
			t.Errorf("two datagrams came from %s", from)
		}
		seen[from] = true
	}
}
