package draw

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster/selector"
	"github.com/theseus-cni/theseus/internal/network/bgp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// network is a cluster whose three reflectors serve the other nodes, or whose nodes are a full mesh, and what its nodes
// say when all sessions are up.
type network struct {
	in   *bgp.Input
	seen map[string]bgp.Seen
}

func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
}

func made(t testing.TB, nodes int, mesh bool) *network {
	t.Helper()
	n := &network{in: &bgp.Input{AS: bgp.DefaultAS, Mesh: mesh}, seen: map[string]bgp.Seen{}}
	for i := range nodes {
		node := bgp.Node{Name: fmt.Sprintf("worker-%d", i), IPv4: address(i + 1), Labels: map[string]string{}}
		if !mesh && i < 3 {
			node.Name, node.ClusterID, node.Labels = fmt.Sprintf("rr-%d", i), "244.0.0.1", map[string]string{"rr": ""}
		}
		n.in.Nodes = append(n.in.Nodes, node)
	}
	if !mesh {
		picks, err := selector.Parse("has(rr)")
		if err != nil {
			t.Fatal(err)
		}
		n.in.Peers = []bgp.Peer{{Name: "p", PeerSelector: picks}}
	}
	return n
}

// router adds a router outside of the cluster, with which a node peers.
func (n *network) router(node, ip string) {
	n.in.Peers = append(n.in.Peers,
		bgp.Peer{Name: "to-" + ip, Node: node, IP: netip.MustParseAddr(ip), AS: 64999})
}

// report lets all nodes say that all of their sessions are up.
func (n *network) report() *bgp.Graph {
	g := bgp.Build(n.in, false)
	for _, i := range g.Speakers() {
		one := bgp.Seen{Peers: map[netip.Addr]string{}}
		for _, j := range g.Missing(i, one) {
			one.Peers[g.Nodes[j].IPv4] = "Established"
		}
		for _, router := range g.Outside(i) {
			one.Peers[router.IP] = "Established"
		}
		n.seen[g.Nodes[i].Name] = one
	}
	return g
}

// lose ends a session, as its first end reports it.
func (n *network) lose(node string, peer netip.Addr) { delete(n.seen[node].Peers, peer) }

// TestLive compares pictures with those that were looked at. testdata has them as the page gets them, and as SVG.
func TestLive(t *testing.T) {
	for name, test := range map[string]struct {
		nodes  int
		mesh   bool
		change func(*network)
	}{
		"mesh-3":         {3, true, nil},
		"mesh-3-down":    {3, true, func(n *network) { n.lose("worker-0", address(2)) }},
		"mesh-3-silent":  {3, true, func(n *network) { clear(n.seen) }},
		"reflectors-12":  {12, false, nil},
		"reflectors-one": {12, false, func(n *network) { n.lose("worker-7", address(2)) }},
		"reflectors-mute": {12, false, func(n *network) {
			n.seen["worker-5"] = bgp.Seen{Down: "dial unix /run/calico/bird.ctl: connection refused"}
			delete(n.seen, "worker-9")
			delete(n.seen, "rr-2")
		}},
		"reflectors-5000": {5000, false, func(n *network) {
			for i := 100; i < 140; i++ {
				n.lose(fmt.Sprintf("worker-%d", i), address(1))
			}
		}},
		"mesh-300": {300, true, func(n *network) { n.lose("worker-4", address(9)) }},
	} {
		n := made(t, test.nodes, test.mesh)
		if strings.HasSuffix(name, "one") {
			n.router("rr-0", "192.0.2.1")
			n.router("rr-1", "192.0.2.2")
		}
		g := n.report()
		if test.change != nil {
			test.change(n)
		}
		p := NewLive("IPv4", g).Picture(n.seen)
		data, err := json.MarshalIndent(p, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 20_000 {
			t.Errorf("%s: %d bytes", name, len(data))
		}
		var b strings.Builder
		fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d">`+"\n", width, p.Height)
		p.panel(&b, 0, 0)
		b.WriteString("</svg>\n")
		for suffix, got := range map[string]string{".json": string(data) + "\n", ".svg": b.String()} {
			file := filepath.Join("testdata", name+suffix)
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(file); err != nil || string(want) != got {
				t.Errorf("%s is not what is drawn (%v); -update rewrites it:\n%.3000s", file, err, got)
			}
		}
	}
}

// TestLiveIsNeverWell: what no node reports is not drawn as a session that is up, and a session that is down is red,
// has a text mark, and is named.
func TestLiveIsNeverWell(t *testing.T) {
	n := made(t, 6, false)
	n.router("rr-0", "192.0.2.1")
	g := n.report()
	live := NewLive("IPv4", g)
	p := live.Picture(nil)
	if p.Class != idle || !strings.HasPrefix(p.Verdict, "No session is known") {
		t.Errorf("without reports: %s, %q", p.Class, p.Verdict)
	}
	for _, m := range p.Marks {
		if m.Class != idle || m.Sign != "?" || m.Up != 0 {
			t.Errorf("without reports: %+v", m)
		}
	}
	for _, line := range p.Lines {
		if line.Class != unknown {
			t.Errorf("without reports: %+v", line)
		}
	}
	n.lose("rr-0", netip.MustParseAddr("192.0.2.1"))
	n.lose("worker-4", address(2))
	p = live.Picture(n.seen)
	want := []string{"rr-0 and 192.0.2.1: the session is down", "rr-1 and worker-4: the session is down"}
	if !slices.Equal(p.Troubles, want) || p.Class != none {
		t.Errorf("%s, %q; want %q", p.Class, p.Troubles, want)
	}
	red := 0
	for _, line := range p.Lines {
		if line.Class == down && line.Label.Text == "× down" {
			red++
		}
	}
	if red != 2 {
		t.Errorf("%d lines are red, and have a text mark", red)
	}
	for _, m := range p.Marks {
		bad := slices.Contains([]string{"rr-0", "rr-1", "worker-4", "192.0.2.1, AS 64999"}, m.Name)
		if bad != (m.Sign == "!" || m.Sign == "×") {
			t.Errorf("%+v", m)
		}
	}
}

// TestLiveIsBounded: the largest picture, with the longest names, has a bounded size, and says what it leaves out.
func TestLiveIsBounded(t *testing.T) {
	picks, err := selector.Parse("all()")
	if err != nil {
		t.Fatal(err)
	}
	n := &network{in: &bgp.Input{AS: bgp.DefaultAS, Peers: []bgp.Peer{{Name: "p", PeerSelector: picks}}},
		seen: map[string]bgp.Seen{}}
	for i := range 60 {
		n.in.Nodes = append(n.in.Nodes, bgp.Node{Name: fmt.Sprintf("%03d%s", i, strings.Repeat("x", 250)),
			IPv4: address(i + 1), Labels: map[string]string{}})
	}
	for i := range 40 {
		n.router(n.in.Nodes[i].Name, fmt.Sprintf("192.0.2.%d", i))
	}
	g := n.report()
	for name := range n.seen {
		n.seen[name] = bgp.Seen{Down: strings.Repeat("y", 1<<20)}
	}
	p := NewLive("IPv4", g).Picture(n.seen)
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 400<<10 || !strings.Contains(p.Summary, "lines are not drawn") || p.Untold == 0 ||
		len(p.Troubles) != maxTroubles {
		t.Errorf("%d bytes, %q, %d troubles and %d untold", len(data), p.Summary, len(p.Troubles), p.Untold)
	}
}
