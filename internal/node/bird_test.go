package node

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// serveBIRD answers every command on the control socket of a root with a text, and hangs up.
func serveBIRD(t *testing.T, root, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(root, birdDir), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(root, birdDir, name))
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
			if command, _ := bufio.NewReader(conn).ReadString('\n'); command == "show protocols all\n" {
				conn.Write([]byte(text)) //nolint:errcheck // the reader complains
			}
			conn.Close()
		}
	}()
}

func TestBIRD(t *testing.T) {
	recorded, err := os.ReadFile("../network/bgp/testdata/bird-1.6.8.txt")
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "bird") // the name of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	n := &Node{Root: root}
	if got := n.bird(t.Context()); got != nil {
		t.Errorf("no BIRD was ever here, and it says %+v", got)
	}
	serveBIRD(t, root, "bird.ctl", string(recorded))
	want := &cluster.BIRD{Sessions: []cluster.BGPSession{{Peer: "198.18.0.12", State: "Established"},
		{Peer: "198.18.0.13", State: "Passive"}}}
	if diff := cmp.Diff(want, n.bird(t.Context())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	serveBIRD(t, root, "bird6.ctl", "0001 BIRD 1.6.8 ready.\n9001 Access denied\n")
	if got := n.bird(t.Context()); len(got.Sessions) != 2 ||
		!strings.Contains(got.Down, "bird6.ctl: BIRD reports: Access denied") {
		t.Errorf("got %+v", got)
	}
	if got := n.BGP(t.Context()); !cmp.Equal(got.Up, []string{"198.18.0.12"}) ||
		!strings.Contains(got.Down, "Access denied") {
		t.Errorf("to the gate it says %+v", got)
	}
	if err := os.WriteFile(filepath.Join(root, birdDir, "dead"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := askBIRD(t.Context(), filepath.Join(root, birdDir, "dead")); err == nil {
		t.Error("nobody listens, and it is no error")
	}
}
