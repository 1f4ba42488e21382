package path

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// whole is a topology of n nodes with everything on.
func whole(n int) Topology {
	topology := Topology{
		Old: map[string]string{}, New: map[string]string{},
		Services:  map[string]string{Old: "198.18.96.1", New: "198.18.96.2"},
		NodePorts: map[string]int{Old: 30001, New: 30002},
		DNS:       "198.18.96.10:53", Query: "kubernetes.default.svc.cluster.local", FullSize: 1422,
		Denied:       map[string]bool{Old: true, New: true},
		NodesOutside: map[string]bool{Old: true, New: true},
		Outside: []Responder{{Name: "api-server", Protocol: v1alpha1.TCPReach, Host: "api-server",
			Address: "198.18.0.10:6443"}},
		Ports: Ports{UDP: 7001, TCP: 7002, Denied: 7009, HostOffset: 100},
	}
	for i := range n {
		topology.add(fmt.Sprintf("node-%d", i))
	}
	return topology
}

func (t *Topology) add(name string) {
	i := len(t.Nodes)
	t.Nodes = append(t.Nodes, Node{name, fmt.Sprintf("198.18.%d.%d", i/250, i%250+1)})
	t.Old[name] = fmt.Sprintf("198.19.%d.%d", i/250, i%250+1)
	t.New[name] = fmt.Sprintf("198.19.%d.%d", 128+i/250, i%250+1)
}

// TestArithmetic holds the numbers of the package's text.
func TestArithmetic(t *testing.T) {
	one := func(n int) Topology {
		topology := whole(n)
		topology.New, topology.Services, topology.NodePorts = nil, map[string]string{Old: "198.18.96.1"},
			map[string]int{Old: 30001}
		return topology
	}
	for _, test := range []struct {
		name     string
		topology Topology
		paths    int
		rate     int // probes a second
		less     int // edges that two rings share by chance
	}{
		{"1 node", whole(1), 23, 326, 0},
		{"3 nodes", whole(3), 177, 3342, 0},
		{"212 nodes", whole(212), 63 * 212, 1194 * 212, 4},
		{"5,000 nodes", whole(5000), 315000, 1194 * 5000, 4},
		{"3 nodes on one network", one(3), 21 * 3, 347 * 3, 0},
		{"212 nodes on one network", one(212), 22 * 212, 367 * 212, 4},
		{"a guard of 3 nodes", guarded(3), 26 * 3, 397 * 3, 0},
	} {
		paths := Build(test.topology)
		rate := RateOf(paths).All
		if len(paths) > test.paths || len(paths) < test.paths-4*test.less || int(rate+0.5) > test.rate ||
			int(rate+0.5) < test.rate-80*test.less {
			t.Errorf("%s: %d paths, %.0f probes a second; the text says %d and %d",
				test.name, len(paths), rate, test.paths, test.rate)
		}
		t.Logf("%s: %d paths, %.0f probes a second", test.name, len(paths), rate)
	}
}

func draw(t *rapid.T) Topology {
	topology := whole(0)
	names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{1,4}-[0-9]{1,3}`), 2, 60,
		rapid.ID[string]).Draw(t, "names")
	for _, name := range names {
		topology.add(name)
	}
	return topology
}

// TestEveryNodeBothWays: every node sends to and is reached from another node, for each pair of networks
// and protocol, and ids are unique.
func TestEveryNodeBothWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topology := draw(t)
		paths := Build(topology)
		out, in, ids := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, path := range paths {
			if ids[path.ID] {
				t.Fatalf("two paths are called %s", path.ID)
			}
			ids[path.ID] = true
			if path.Source.Node == path.Target.Node && (path.Class == ClassPodPod || path.Class == ClassDenied) {
				t.Fatalf("%s stays on its node", path.ID)
			}
			kind := path.Class + " " + path.Source.Network + " " + path.Target.Network + " " + string(path.Protocol)
			out[kind+" "+path.Source.Node] = true
			in[kind+" "+path.Target.Node] = true
		}
		for _, node := range topology.Nodes {
			for _, kind := range kinds() {
				if !out[kind+" "+node.Name] || !in[kind+" "+node.Name] {
					t.Fatalf("%s: %s: a source %v, a target %v", node.Name, kind,
						out[kind+" "+node.Name], in[kind+" "+node.Name])
				}
			}
			for _, kind := range []string{"pod-service old old udp", "pod-service new old tcp-new",
				"host-service host new tcp-new", "host-service host old tcp", "dns old  dns", "dns new  dns"} {
				if !out[kind+" "+node.Name] {
					t.Fatalf("%s: no source of %s", node.Name, kind)
				}
			}
		}
	})
}

// TestLeaving: nothing is measured through a Service or a node port that may lead to a pod that is about to go.
func TestLeaving(t *testing.T) {
	topology := whole(3)
	topology.Leaving = map[string]bool{New: true}
	through := map[string]int{}
	for _, path := range Build(topology) {
		if path.Class == ClassHostService || path.Class == ClassPodService || path.Class == ClassNodePort {
			through[path.Target.Network]++
		}
	}
	if through[Old] == 0 || through[New] != 0 {
		t.Errorf("paths through Services: %v", through)
	}
}

// kinds are the kinds of paths between nodes that every node must send on and be reached by.
func kinds() (all []string) {
	for _, source := range []string{Old, New} {
		for _, target := range []string{Old, New} {
			pair := " " + source + " " + target
			all = append(all, ClassPodPod+pair+" udp", ClassPodPod+pair+" tcp", ClassFullSize+pair+" udp",
				ClassDenied+pair+" udp", ClassDenied+pair+" tcp-new")
			if source != target {
				all = append(all, ClassSameNode+pair+" udp")
			}
		}
		for _, protocol := range []v1alpha1.Protocol{v1alpha1.TCP, v1alpha1.TCPNew, v1alpha1.UDPNew} {
			all = append(all, ClassOutside+" "+source+" host "+string(protocol))
		}
		all = append(all, ClassHostPod+" host "+source+" udp", ClassPodHost+" "+source+" host udp",
			ClassNodePort+" host "+source+" tcp-new")
	}
	return all
}

// TestLinear: the paths of a node do not grow with the nodes.
func TestLinear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topology := draw(t)
		from := map[string]int{}
		for _, path := range Build(topology) {
			if from[path.Source.Node]++; from[path.Source.Node] > 63 {
				t.Fatalf("more than 63 paths from %s", path.Source.Node)
			}
		}
	})
}

// TestConnected: along the measured edges each node reaches all, in few steps, and so does each in reverse.
func TestConnected(t *testing.T) {
	for _, n := range []int{2, 3, 4, 10, 212, 5000} {
		next, before := map[string][]string{}, map[string][]string{}
		for _, e := range rings(whole(n).Nodes) {
			next[e.from.Name] = append(next[e.from.Name], e.to.Name)
			before[e.to.Name] = append(before[e.to.Name], e.from.Name)
		}
		for _, graph := range []map[string][]string{next, before} {
			reached, steps := walk(graph, "node-0")
			if reached != n || steps > 24 {
				t.Errorf("%d nodes: %d reached in %d steps", n, reached, steps)
			}
		}
	}
}

func walk(graph map[string][]string, from string) (reached, steps int) {
	seen := map[string]bool{from: true}
	for front := []string{from}; len(front) > 0; steps++ {
		var further []string
		for _, node := range front {
			for _, next := range graph[node] {
				if !seen[next] {
					seen[next] = true
					further = append(further, next)
				}
			}
		}
		front = further
	}
	return len(seen), steps - 1
}

// TestExpands cuts the largest topology in two at random, in runs of names, and counts the edges across.
func TestExpands(t *testing.T) {
	nodes := whole(1000).Nodes
	edges := rings(nodes)
	rapid.Check(t, func(t *rapid.T) {
		size, from := rapid.IntRange(1, 500).Draw(t, "size"), rapid.IntRange(0, 499).Draw(t, "from")
		inside := map[string]bool{}
		for _, node := range nodes[from : from+size] {
			inside[node.Name] = true
		}
		out, in := 0, 0
		for _, e := range edges {
			if inside[e.from.Name] && !inside[e.to.Name] {
				out++
			}
			if !inside[e.from.Name] && inside[e.to.Name] {
				in++
			}
		}
		if out < max(1, size/4) || in < max(1, size/4) {
			t.Fatalf("%d nodes from %d on: %d edges out and %d in", size, from, out, in)
		}
	})
}

// TestStable: the order of the nodes does not matter, and a node more leaves nearly all ids as they were.
func TestStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topology := draw(t)
		first := Build(topology)
		topology.Nodes = rapid.Permutation(topology.Nodes).Draw(t, "order")
		if diff := cmp.Diff(first, Build(topology)); diff != "" {
			t.Fatalf("another order, other paths:\n%s", diff)
		}
		topology.add("joins-1000")
		now := ids(Build(topology))
		gone := 0
		for id := range ids(first) {
			if !now[id] {
				gone++
			}
		}
		if gone > Degree*28 {
			t.Fatalf("%d of %d paths are gone since a node joined", gone, len(first))
		}
	})
}

func ids(paths []v1alpha1.Path) map[string]bool {
	all := map[string]bool{}
	for _, path := range paths {
		all[path.ID] = true
	}
	return all
}

// TestSecond: every path to a prober has the second responder next to it, on the same address; those to others, and
// those that policy shuts, have none.
func TestSecond(t *testing.T) {
	topology := whole(2)
	topology.Ports.SecondOffset, topology.SecondNodePorts = 2, map[string]int{Old: 30011, New: 30012}
	beside := map[string]string{"7001": "7003", "7002": "7004", "7101": "7103", "7102": "7104",
		"30001": "30011", "30002": "30012"}
	seen := map[string]int{}
	for _, path := range Build(topology) {
		host, port, err := net.SplitHostPort(path.Target.Address)
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if other := beside[port]; other != "" && !path.Denied {
			want = net.JoinHostPort(host, other)
		}
		if path.Second != want {
			t.Errorf("%s: beside %s is %q, want %q", path.ID, path.Target.Address, path.Second, want)
		}
		if path.Second != "" {
			seen[path.Class]++
		}
	}
	if len(seen) != 9 {
		t.Errorf("classes with second responders: %v", seen)
	}
	for _, path := range Build(whole(2)) {
		if path.Second != "" {
			t.Errorf("%s: %s, where there are none", path.ID, path.Second)
		}
	}
}

// TestWhatIsThere: nothing is measured that does not exist.
func TestWhatIsThere(t *testing.T) {
	topology := whole(3)
	topology.New = map[string]string{"node-1": "198.19.128.2"}
	topology.Denied = map[string]bool{New: true}
	topology.Nodes[2].Address = "fd00::3"
	for _, path := range Build(topology) {
		for _, end := range []v1alpha1.Endpoint{path.Source, path.Target} {
			if end.Network == New && end.Node != "" && end.Node != "node-1" && path.Class != ClassNodePort {
				t.Errorf("%s: no probe pod is there", path.ID)
			}
		}
		if path.Denied != (path.Class == ClassDenied) || path.Denied != Denies(path.ID) ||
			path.Denied && path.Target.Network != New {
			t.Errorf("%s: denied %v", path.ID, path.Denied)
		}
	}
	var hosts []string
	for _, path := range Build(topology) {
		if path.Class == ClassPodHost && path.Target.Node == "node-2" {
			hosts = append(hosts, path.Target.Address)
		}
	}
	if slices.Sort(hosts); !slices.Equal(slices.Compact(hosts), []string{"[fd00::3]:7101"}) {
		t.Errorf("host addresses %q", hosts)
	}
	if paths := Build(Topology{Nodes: topology.Nodes}); len(paths) != 0 {
		t.Errorf("%d paths without a probe pod: %v", len(paths), paths)
	}
}

// TestAttempts: with any budget, what a policy denies is tried about as often as a gate watches, for which it waits.
func TestAttempts(t *testing.T) {
	for fast, want := range map[time.Duration]time.Duration{
		5 * time.Millisecond: 500 * time.Millisecond, 10 * time.Millisecond: time.Second,
		50 * time.Millisecond: time.Second, 200 * time.Millisecond: 2 * time.Second,
	} {
		topology := whole(3)
		topology.Intervals.Fast = fast
		for _, one := range Build(topology) {
			if got := time.Duration(one.IntervalMillis) * time.Millisecond; one.Denied &&
				one.Protocol == v1alpha1.TCPNew && got != want {
				t.Fatalf("with %s on the fastest paths, %s is tried every %s, not every %s", fast, one.ID, got, want)
			}
		}
	}
}
