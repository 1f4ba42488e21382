package bgp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// established is the state of an established session.
const established = "Established"

// ParseBIRD reads BIRD 1.6's answer to "show protocols all", as it comes over its control socket: lines that
// begin with a code and a dash or a blank, or with a blank when the code is the one before; the code 0000
// ends it, and one of 8000 and more is an error.
func ParseBIRD(answer string) ([]cluster.BGPSession, error) {
	var sessions []cluster.BGPSession
	var at *cluster.BGPSession // nil outside of a BGP protocol
	for line := range strings.Lines(answer) {
		line = strings.TrimRight(line, "\r\n")
		code, text := "", line
		if len(line) >= 5 && line[0] >= '0' && line[0] <= '9' {
			code, text = line[:4], line[5:]
		}
		switch {
		case code == "0000":
			return sessions, nil
		case code != "" && code[0] >= '8':
			return nil, fmt.Errorf("BIRD reports: %s", text)
		case code == "1002":
			at = nil
			if fields := strings.Fields(text); len(fields) > 1 && fields[1] == "BGP" {
				sessions = append(sessions, cluster.BGPSession{State: "Down"})
				at = &sessions[len(sessions)-1]
			}
		case at != nil:
			key, value, _ := strings.Cut(text, ":")
			switch value = strings.TrimSpace(value); strings.TrimSpace(key) {
			case "BGP state":
				at.State = value
			case "Neighbor address":
				at.Peer = value
			}
		}
	}
	return nil, errors.New("BIRD's answer is truncated")
}

// Up returns the addresses of a daemon's neighbours with established sessions, sorted as text.
func Up(bird *cluster.BIRD) []string {
	up := []string{}
	for _, session := range bird.Sessions {
		if session.State == established {
			up = append(up, session.Peer)
		}
	}
	slices.Sort(up)
	return up
}

// Whole reports whether a daemon answered, has sessions, and all of them are established.
func Whole(bird *cluster.BIRD) bool {
	return bird != nil && bird.Down == "" && len(bird.Sessions) > 0 && len(Up(bird)) == len(bird.Sessions)
}

// Reported is the last report of a node's agent.
func Reported(said *v1alpha1.BGP) Seen {
	if said == nil {
		return Seen{Down: "BIRD never ran here", Routes: -1}
	}
	seen := Seen{Down: said.Down, Peers: map[netip.Addr]string{}, Routes: said.Routes}
	for _, peer := range said.Up {
		seen.add(peer, established)
	}
	return seen
}

// Seen is the observed state of a node's BGP.
type Seen struct {
	// Down says why its BIRD did not answer; empty if it did.
	Down string
	// Peers has the state of each session, by the neighbour's address, for both families.
	Peers map[netip.Addr]string
	// Routes is the number of the kernel's routes that BIRD programmed; -1 if unknown.
	Routes int
}

// Watch returns the observed BGP state of the nodes in a snapshot: from the agent's facts, or else from Calico's
// CalicoNodeStatus, if it is up to date.
func Watch(s *cluster.Snapshot) map[string]Seen {
	seen := map[string]Seen{}
	for _, object := range s.Calico("CalicoNodeStatus") {
		if node, one, ok := fromStatus(object, s.TakenAt.Time); ok {
			seen[node] = one
		}
	}
	for _, f := range s.Facts {
		if f.BIRD == nil {
			continue
		}
		one := Seen{Down: f.BIRD.Down, Peers: map[netip.Addr]string{}, Routes: f.Routes["bird"]}
		for _, session := range f.BIRD.Sessions {
			one.add(session.Peer, session.State)
		}
		seen[f.Node] = one
	}
	return seen
}

func (s *Seen) add(peer, state string) {
	if address, err := netip.ParseAddr(peer); err == nil && s.Peers[address] != established {
		s.Peers[address] = state
	}
}

// fromStatus reads a CalicoNodeStatus; false if it has no BGP state, or is out of date.
func fromStatus(object unstructured.Unstructured, now time.Time) (string, Seen, bool) {
	node, _, _ := unstructured.NestedString(object.Object, "spec", "node")
	classes, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "classes")
	if node == "" || !slices.Contains(classes, "BGP") || outdated(object, now) {
		return "", Seen{}, false
	}
	one := Seen{Peers: map[netip.Addr]string{}, Routes: -1}
	for _, field := range []string{"peersV4", "peersV6"} {
		peers, _, _ := unstructured.NestedSlice(object.Object, "status", "bgp", field)
		for _, peer := range peers {
			if fields, ok := peer.(map[string]any); ok {
				one.add(scalar(fields, "peerIP"), scalar(fields, "state"))
			}
		}
	}
	if state, _, _ := unstructured.NestedString(object.Object, "status", "agent", "birdV4",
		"state"); state == "NotReady" {
		one.Down = "calico-node says that it is not ready"
	}
	if slices.Contains(classes, "Routes") {
		one.Routes = fibRoutes(object)
	}
	return node, one, true
}

// outdated reports whether a status was last written much longer ago than its period. If the current time is unknown,
// it returns false.
func outdated(object unstructured.Unstructured, now time.Time) bool {
	text, _, _ := unstructured.NestedString(object.Object, "status", "lastUpdated")
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return true
	}
	const slack = 15 * time.Second
	period, _, _ := unstructured.NestedInt64(object.Object, "spec", "updatePeriodSeconds")
	return !now.IsZero() && now.Sub(at) > 2*time.Duration(period)*time.Second+slack
}

// fibRoutes counts the routes that BIRD learned from a peer and programmed into the kernel.
func fibRoutes(object unstructured.Unstructured) int {
	count := 0
	for _, field := range []string{"routesV4", "routesV6"} {
		routes, _, _ := unstructured.NestedSlice(object.Object, "status", "routes", field)
		for _, route := range routes {
			fields, ok := route.(map[string]any)
			if !ok || scalar(fields, "type") != "FIB" {
				continue
			}
			if source := scalar(fields, "learnedFrom", "sourceType"); source == "NodeMesh" || source == "BGPPeer" {
				count++
			}
		}
	}
	return count
}

// Lack is what a node's observed BGP state lacks compared to the graph.
type Lack struct {
	Node string
	Seen Seen
	// Up counts the established sessions of the family; Missing names the neighbours without one.
	Up      int
	Missing []string
	// Owed is the minimum number of routes that the kernel should have from BIRD, if it has fewer.
	Owed int
}

// Compare compares every speaker of the graph with its observed state; it skips nodes without one.
func (g *Graph) Compare(in *Input, seen map[string]Seen) []Lack {
	owed := g.owed(in)
	var lacks []Lack
	for _, i := range g.Speakers() {
		one, ok := seen[g.Nodes[i].Name]
		if !ok {
			continue
		}
		lack := Lack{Node: g.Nodes[i].Name, Seen: one, Up: g.Up(one)}
		for _, j := range g.Missing(i, one) {
			lack.Missing = append(lack.Missing, g.Nodes[j].Name)
		}
		if one.Routes >= 0 && one.Routes < owed[i] {
			lack.Owed = owed[i]
		}
		if lack.Up == 0 || len(lack.Missing) > 0 || lack.Owed > 0 || one.Down != "" {
			lacks = append(lacks, lack)
		}
	}
	return lacks
}

// owed counts, for each node, the blocks of other nodes whose routes it learns.
func (g *Graph) owed(in *Input) []int {
	owed := make([]int, len(g.Nodes))
	if len(in.Blocks) == 0 {
		return owed
	}
	index := map[string]int{}
	for i := range g.Nodes {
		index[g.Nodes[i].Name] = i
	}
	routes := g.Routes()
	own, of := make([]int, len(g.Nodes)), make([]int, len(routes.size)) // blocks by node, and by class
	for _, b := range in.Blocks {
		if i, known := index[b.Node]; known && routes.class[i] >= 0 && b.CIDR.Addr().Is6() == g.Six {
			own[i]++
			of[routes.class[i]]++
		}
	}
	for _, i := range g.Speakers() {
		class := routes.class[i]
		for o, blocks := range of {
			switch {
			case o != int(class) && routes.reach[o][class]:
				owed[i] += blocks
			case o == int(class) && routes.twins[o]:
				owed[i] += blocks - own[i]
			}
		}
	}
	return owed
}

// Missing returns the neighbours of a node, by index, whose sessions should be established but are not.
func (g *Graph) Missing(i int, seen Seen) []int {
	expected := g.Peers(i)
	for j := range g.Nodes {
		if j != i && g.InMesh(i) && g.InMesh(j) {
			expected = append(expected, j)
		}
	}
	slices.Sort(expected)
	return slices.DeleteFunc(slices.Compact(expected), func(j int) bool {
		return seen.Peers[g.address(j)] == established
	})
}

// Up counts the established sessions of the graph's family, with any neighbour.
func (g *Graph) Up(seen Seen) int {
	up := 0
	for address, state := range seen.Peers {
		if state == established && address.Is6() == g.Six {
			up++
		}
	}
	return up
}
