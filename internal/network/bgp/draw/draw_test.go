package draw

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/selector"
	"github.com/theseus-cni/theseus/internal/network/bgp"
)

func graph(t *testing.T, clients int, picks string) *bgp.Graph {
	t.Helper()
	s, err := selector.Parse(picks)
	if err != nil {
		t.Fatal(err)
	}
	in := &bgp.Input{AS: bgp.DefaultAS, Peers: []bgp.Peer{{Name: "p", PeerSelector: s}}}
	for i := range clients + 3 {
		n := bgp.Node{Name: fmt.Sprintf("worker-%d", i), IPv4: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
		if i < 3 {
			n.Name, n.ClusterID, n.Labels = fmt.Sprintf("<master> & %d", i), "244.0.0.1", map[string]string{"rr": ""}
		}
		in.Nodes = append(in.Nodes, n)
	}
	return bgp.Build(in, false)
}

// TestSVG holds that the picture is well-formed, names every node of a small cluster before and after, shows the
// sessions that are gone as gone, and stays small for a large cluster.
func TestSVG(t *testing.T) {
	for _, clients := range []int{0, 6, 30, 5000} {
		row := Row{Family: "IPv4", Before: graph(t, clients, "has(rr)"), After: graph(t, clients, "has(gone)"),
			BeforeTitle: "today", AfterTitle: "then"}
		texts, paths, size := drawn(t, row)
		lines := map[int]int{0: 3, 6: 21, 30: 93, 5000: 6}[clients] // those of before; after there are none
		// the legend has one of each
		if paths[grey] != lines+1 || paths[red] != lines+1 || paths[blue] != 1 {
			t.Errorf("%d clients: %d lines stay and %d are gone, not %d each; %d are new",
				clients, paths[grey]-1, paths[red]-1, lines, paths[blue]-1)
		}
		if clients < 60 && (strings.Count(texts, "\nworker-3\n") != 2*min(clients, 1) ||
			strings.Count(texts, "\n<master> & 0\n") != 2) {
			t.Errorf("names are missing in %s", texts)
		}
		if clients == 5000 && (!strings.Contains(texts, "\n5000 nodes\n") || size > 20_000) {
			t.Errorf("%d bytes: %.2000s", size, texts)
		}
	}
}

// TestMesh holds that a mesh which gives way to a reflector is shown as gone, and its sessions with it as new.
func TestMesh(t *testing.T) {
	before := &bgp.Input{AS: bgp.DefaultAS, Mesh: true}
	for i := range 3 {
		before.Nodes = append(before.Nodes, bgp.Node{Name: fmt.Sprintf("n%d", i),
			IPv4: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Labels: map[string]string{}})
	}
	after := *before
	after.Mesh, after.Nodes = false, slices.Clone(before.Nodes)
	after.Nodes[1].ClusterID = "244.0.0.1"
	picks, err := selector.Parse("all()")
	if err != nil {
		t.Fatal(err)
	}
	after.Peers = []bgp.Peer{{Name: "p", Node: "n1", PeerSelector: picks},
		{Name: "q", NodeSelector: picks, IP: after.Nodes[1].IPv4}}
	row := Row{Family: "IPv4", Before: bgp.Build(before, false), After: bgp.Build(&after, false)}
	texts, paths, _ := drawn(t, row)
	if !strings.Contains(texts, "full mesh of 3 nodes") || paths["circle "+red] != 1 || paths[blue] != 3 {
		t.Errorf("%v in %s", paths, texts)
	}
}

// TestSpare: a node without routes by BGP is red where pods need them, and is not where Felix makes the routes of all
// pools.
func TestSpare(t *testing.T) {
	pool := func(encapsulation string, felix bool) bgp.Pool {
		return bgp.Pool{Name: encapsulation, Encapsulation: encapsulation, Felix: felix,
			CIDR: netip.MustParsePrefix("10.96.0.0/16")}
	}
	for _, test := range []struct {
		name  string
		pools []bgp.Pool
		red   bool
	}{
		{"no pool is known", nil, true},
		{"VXLAN alone", []bgp.Pool{pool("VXLAN", true)}, false},
		{"another without encapsulation", []bgp.Pool{pool("VXLAN", true), pool("none", false)}, true},
		{"one of the other family",
			[]bgp.Pool{{Encapsulation: "VXLAN", Felix: true, CIDR: netip.MustParsePrefix("fd00::/64")}}, true},
	} {
		in := &bgp.Input{AS: bgp.DefaultAS, Pools: test.pools}
		for i := range 3 {
			in.Nodes = append(in.Nodes,
				bgp.Node{Name: fmt.Sprintf("n%d", i), IPv4: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})})
		}
		var picture bytes.Buffer
		if err := SVG(&picture, []Row{{Family: "IPv4", Before: bgp.Build(in, false)}}); err != nil {
			t.Fatal(err)
		}
		red := strings.Count(picture.String(), `fill="`+red+`"`) - 1 // the legend has one
		if says := strings.Contains(picture.String(), "pods do not need them"); red > 0 != test.red ||
			says == test.red {
			t.Errorf("%s: %d are red, and it is said that pods do not need routes: %t", test.name, red, says)
		}
	}
}

// FuzzSVG holds that whatever can be read is drawn as a picture that is well-formed, in bounded size.
func FuzzSVG(f *testing.F) {
	const nodes = "apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: a, labels: {rr: ''}}\n" +
		"spec: {bgp: {ipv4Address: 10.0.0.1, routeReflectorClusterID: 1.1.1.1}}\n---\n" +
		"apiVersion: projectcalico.org/v3\nkind: Node\nmetadata: {name: \"<&\\\">\"}\n" +
		"spec: {bgp: {ipv4Address: 10.0.0.2}}\n---\n"
	const peers = "apiVersion: projectcalico.org/v3\nkind: BGPConfiguration\nmetadata: {name: default}\n" +
		"spec: {nodeToNodeMeshEnabled: false}\n---\n" +
		"apiVersion: projectcalico.org/v3\nkind: BGPPeer\nmetadata: {name: p}\nspec: {peerSelector: has(rr)}\n"
	f.Add(nodes, nodes+peers)
	f.Add(nodes+peers, "")
	f.Add("", nodes)
	f.Fuzz(func(t *testing.T, before, after string) {
		var graphs []*bgp.Graph
		for _, text := range []string{before, after} {
			builder := document.New("test")
			if builder.Add("in", strings.NewReader(text), true) != nil {
				return
			}
			snapshot, _ := builder.Snapshot()
			g := bgp.Build(bgp.FromSnapshot(snapshot), false)
			if g == nil {
				return
			}
			graphs = append(graphs, g)
		}
		row := Row{Family: "IPv4", Before: graphs[0], After: graphs[1], BeforeTitle: before, AfterTitle: after}
		if _, _, size := drawn(t, row); size > 4<<20+20*len(before)+20*len(after) {
			t.Errorf("%d bytes", size)
		}
	})
}

// drawn reads the picture of a row: its texts, its lines (and, as "circle", its circles) by the colour of their
// strokes.
func drawn(t *testing.T, row Row) (texts string, paths map[string]int, size int) {
	t.Helper()
	var out bytes.Buffer
	if err := SVG(&out, []Row{row}); err != nil {
		t.Fatal(err)
	}
	size, paths = out.Len(), map[string]int{}
	decoder := xml.NewDecoder(&out)
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts, paths, size
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			for _, a := range token.Attr {
				switch {
				case a.Name.Local == "stroke" && token.Name.Local == "path":
					paths[a.Value]++
				case a.Name.Local == "stroke" && token.Name.Local == "circle":
					paths["circle "+a.Value]++
				}
			}
		case xml.CharData:
			texts += string(token) + "\n"
		}
	}
}
