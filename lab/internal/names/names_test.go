package names

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// resolver answers for every name with 127.0.0.1, the first few questions only after a while, and says how many came.
func resolver(t *testing.T, slow int64) (address string, asked *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	asked = new(atomic.Int64)
	go func() {
		for {
			question := make([]byte, 512)
			n, from, err := conn.ReadFrom(question)
			if err != nil {
				return // it is closed
			}
			go func() {
				if asked.Add(1) <= slow {
					time.Sleep(fresh + fresh/5)
				}
				_, _ = conn.WriteTo(answer(question[:n]), from) // the test may be over
			}()
		}
	}()
	return conn.LocalAddr().String(), asked
}

// answer is that to a question: an address to one for IPv4, and nothing to others.
func answer(question []byte) []byte {
	end := 12 // of the name, which follows the header
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	said := append([]byte{question[0], question[1], 0x84, 0, 0, 1, 0, 0, 0, 0, 0, 0}, question[12:end+5]...)
	if question[end+2] == 1 { // A
		said[7] = 1
		said = append(said, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 2, 0, 4, 127, 0, 0, 1)
	}
	return said
}

// TestOldAnswers: no request goes to an address that was looked up too long ago; it is looked up again.
func TestOldAnswers(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = out.Write([]byte("s1-blue"))
	}))
	defer server.Close()
	target := Target{Host: "s1.shop.example.org", Original: "127.0.0.1", Mirror: "127.0.0.2"}
	port := server.Listener.Addr().(*net.TCPAddr).Port
	slowly, asked := resolver(t, 2) // for IPv4 and IPv6
	if _, err := (&Clients{Resolver: slowly, Port: port}).ask(target); err != nil ||
		requests.Load() != 1 || asked.Load() != 4 {
		t.Errorf("%v; %d requests, %d questions", err, requests.Load(), asked.Load())
	}
	always, asked := resolver(t, 1000)
	if _, err := (&Clients{Resolver: always, Port: port}).ask(target); !errors.Is(err, errStale) ||
		requests.Load() != 1 || asked.Load() != 2*askAgain {
		t.Errorf("%v; %d requests, %d questions", err, requests.Load(), asked.Load())
	}
	if _, err := (&Clients{Resolver: always, Port: port}).ask(Target{Host: target.Host,
		Original: "127.0.0.3"}); err == nil || !strings.Contains(err.Error(), "[127.0.0.1]") {
		t.Errorf("another address: %v", err)
	}
}
