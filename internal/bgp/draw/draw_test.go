package draw

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/bgp"
	"github.com/theseus-cni/theseus/internal/selector"
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

// TestSVG holds that the picture is well-formed, names every node of a small cluster before and after, and
// stays small for a large one.
func TestSVG(t *testing.T) {
	for _, clients := range []int{0, 6, 5000} {
		var out bytes.Buffer
		row := Row{Family: "IPv4", Before: graph(t, clients, "has(rr)"), After: graph(t, clients, "has(gone)"), BeforeTitle: "today", AfterTitle: "then"}
		if err := SVG(&out, []Row{row}); err != nil {
			t.Fatal(err)
		}
		decoder := xml.NewDecoder(bytes.NewReader(out.Bytes()))
		lines, texts := 0, ""
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%d clients: %v", clients, err)
			}
			switch token := token.(type) {
			case xml.StartElement:
				if token.Name.Local == "line" {
					lines++
				}
			case xml.CharData:
				texts += string(token) + "\n"
			}
		}
		want := map[int]int{0: 3, 6: 21, 5000: 6}[clients] // those of before; after there are none
		if lines != want {
			t.Errorf("%d clients: %d lines, not %d", clients, lines, want)
		}
		if clients == 6 && (strings.Count(texts, "\nworker-8\n") != 2 || strings.Count(texts, "\n<master> & 0\n") != 2) {
			t.Errorf("names are missing in %s", texts)
		}
		if clients == 5000 && (!strings.Contains(texts, "\n5000 nodes\n") || out.Len() > 20_000) {
			t.Errorf("%d bytes: %.2000s", out.Len(), texts)
		}
	}
}
