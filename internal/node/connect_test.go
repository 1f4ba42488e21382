package node

import (
	"encoding/json"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// listening is a server in a pod that counts connections and bytes.
type listening struct{ conns, bytes, open, most atomic.Int64 }

func (l *listening) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		l.conns.Add(1)
		l.most.Store(max(l.most.Load(), l.open.Add(1)))
		n, _ := conn.Read(make([]byte, 1)) // until the other end closes
		l.bytes.Add(int64(n))
		l.open.Add(-1)
		conn.Close()
	}
}

func (p *testPod) named() step.Pod {
	return step.Pod{Namespace: "test", Name: p.name, UID: "uid-" + p.name, Address: p.address}
}

// connects asks for connections, and returns their outcomes.
func connects(t *testing.T, n *Node, pairs ...step.Pair) []step.Outcome {
	t.Helper()
	got := do(t, n, step.VerbConnect, step.ConnectArgs{Pairs: pairs})
	var result step.ConnectResult
	must(t, json.Unmarshal(got.Result, &result))
	var all []step.Outcome
	for _, try := range result.Tries {
		all = append(all, try.Outcome)
	}
	return all
}

// TestConnect: connections leave from within a pod, arrive or not as the kernel's rules have it, carry no data, and are
// closed; a pod that is gone, or has another UID or address, is not entered.
func TestConnect(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	server := &listening{}
	b.in(func() error {
		listener, err := net.Listen("tcp", b.address+":8080")
		if err == nil {
			go server.serve(listener)
			t.Cleanup(func() { listener.Close() })
		}
		return err
	})
	to := func(port int) step.Pair { return step.Pair{Node: w.Name, From: a.named(), To: b.named(), Port: port} }
	want := func(name string, pair step.Pair, want step.Outcome) {
		t.Helper()
		if got := connects(t, w.Node, pair); !slices.Equal(got, []step.Outcome{want}) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	want("a port that listens", to(8080), step.TryOpened)
	want("a port that does not", to(81), step.TryRefused)
	b.rules("table inet denies {\nchain enters {\ntype filter hook input priority 0;\ntcp dport 8080 ip saddr " +
		a.address + " drop\ntcp dport 8081 reject\n}\n}\n")
	begun := time.Now()
	want("dropped", to(8080), step.TrySilent)
	if took := time.Since(begun); took < connectFor || took > connectFor+2*time.Second {
		t.Errorf("it took %s", took)
	}
	want("rejected", to(8081), step.TryRejected)
	b.rules("flush ruleset")
	if got := connects(t, w.Node, slices.Repeat([]step.Pair{to(8080)}, 5)...); !slices.Equal(got,
		slices.Repeat([]step.Outcome{step.TryOpened}, 5)) {
		t.Errorf("five: %s", got)
	}
	for end := time.Now().Add(5 * time.Second); (server.conns.Load() < 6 || server.open.Load() > 0) &&
		time.Now().Before(end); { // the kernel opens a connection before the program accepts it
		time.Sleep(10 * time.Millisecond)
	}
	if server.conns.Load() != 6 || server.bytes.Load() != 0 || server.open.Load() != 0 || server.most.Load() != 1 {
		t.Errorf("%d connections, %d bytes, %d still open, %d at once", server.conns.Load(), server.bytes.Load(),
			server.open.Load(), server.most.Load())
	}
	far := to(8080)
	far.To.Address = "203.0.113.1"
	a.ip("route", "del", "default")
	want("no route", far, step.TryRejected)
	other := to(8080)
	other.From.UID = "uid-of-another"
	want("another UID", other, step.TryGone)
	other = to(8080)
	other.From.Address = b.address
	want("another address", other, step.TryGone)
	a.del(bridgeList)
	want("gone", to(8080), step.TryGone)
	if server.conns.Load() != 6 {
		t.Errorf("%d connections in the end", server.conns.Load())
	}
}

// rules loads rules of nftables in the pod's namespace.
func (p *testPod) rules(text string) {
	p.t.Helper()
	sh(p.t, text, "nsenter", "--net="+filepath.Join(p.w.Root, p.path), "nft", "-f", "-")
}

// TestConnectRefuses: an agent connects from pods of its own node alone, to addresses that a pod may have, and no more
// often than a plan may ask.
func TestConnectRefuses(t *testing.T) {
	n := newNode(t)
	pod := func(name, address string) step.Pod {
		return step.Pod{Namespace: "x", Name: name, UID: name, Address: address}
	}
	good := step.Pair{Node: n.Name, From: pod("a", "10.0.0.1"), To: pod("b", "10.0.0.2"), Port: 80}
	for name, test := range map[string]struct {
		change func(*step.Pair)
		says   string
	}{
		"another node": {func(p *step.Pair) { p.Node = "node-2" }, "x/a is a pod of the node node-2"},
		"the node's own services": {func(p *step.Pair) { p.To.Address = "127.0.0.1" },
			`"127.0.0.1" is not an address of a pod`},
		"metadata of a cloud": {func(p *step.Pair) { p.To.Address = "169.254.169.254" }, "is not an address of a pod"},
		"a mapped address":    {func(p *step.Pair) { p.To.Address = "::ffff:127.0.0.1" }, "is not an address of a pod"},
		"a name":              {func(p *step.Pair) { p.To.Address = "example.org" }, "is not an address of a pod"},
		"no UID":              {func(p *step.Pair) { p.From.UID = "" }, "has no namespace, name or UID"},
		"no port":             {func(p *step.Pair) { p.Port = 0 }, "0 is no port"},
	} {
		pair := good
		test.change(&pair)
		_, err := n.Do(t.Context(), step.VerbConnect, args(t, step.ConnectArgs{Pairs: []step.Pair{good, pair}}))
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := step.ConnectArgs{Pairs: slices.Repeat([]step.Pair{good}, step.MostPairs+1)}
	if _, err := n.Do(t.Context(), step.VerbConnect, args(t, many)); err == nil ||
		!strings.Contains(err.Error(), "51 connections are more than 50") {
		t.Errorf("many: %v", err)
	}
	if got := connects(t, n, good); !slices.Equal(got, []step.Outcome{step.TryGone}) {
		t.Errorf("a pod that is not here: %s", got)
	}
}
