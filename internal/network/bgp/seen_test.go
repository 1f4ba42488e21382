package bgp

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// recorded is what BIRD 1.6.8 answers with one session that is up and one that waits.
func recorded(t testing.TB) string {
	text, err := os.ReadFile("testdata/bird-1.6.8.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestParseBIRD(t *testing.T) {
	got, err := ParseBIRD(recorded(t))
	if err != nil {
		t.Fatal(err)
	}
	want := []cluster.BGPSession{{Peer: "198.18.0.12", State: "Established"}, {Peer: "198.18.0.13", State: "Passive"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{
		"":                           "truncated",
		recorded(t)[:4000]:           "truncated",
		"0001 BIRD\n9001 no command": "no command",
	} {
		if _, err := ParseBIRD(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v; want %q", text, err, want)
		}
	}
}

func FuzzParseBIRD(f *testing.F) {
	f.Add(recorded(f))
	f.Add("0001 BIRD 1.6.8 ready.\n0000 \n")
	f.Add("1002-x BGP\n BGP state: \n0000")
	f.Fuzz(func(t *testing.T, text string) {
		sessions, err := ParseBIRD(text)
		if err != nil && sessions != nil {
			t.Errorf("sessions and an error: %v", err)
		}
		if len(sessions) > strings.Count(text, "1002") {
			t.Errorf("%d sessions of %q", len(sessions), text)
		}
	})
}

func TestWatch(t *testing.T) {
	taken := time.Date(2026, 3, 14, 19, 0, 0, 0, time.UTC)
	status := func(node string, age time.Duration, classes ...any) unstructured.Unstructured {
		return unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "crd.projectcalico.org/v1", "kind": "CalicoNodeStatus",
			"metadata": map[string]any{"name": node},
			"spec":     map[string]any{"node": node, "classes": classes, "updatePeriodSeconds": int64(10)},
			"status": map[string]any{
				"lastUpdated": taken.Add(-age).Format(time.RFC3339),
				"bgp": map[string]any{"peersV4": []any{map[string]any{"peerIP": "10.0.0.1",
					"state": "Established"}}},
				"routes": map[string]any{"routesV4": []any{
					map[string]any{"type": "FIB", "learnedFrom": map[string]any{"sourceType": "BGPPeer"}},
					map[string]any{"type": "RIB", "learnedFrom": map[string]any{"sourceType": "BGPPeer"}},
					map[string]any{"type": "FIB", "learnedFrom": map[string]any{"sourceType": "Kernel"}},
				}},
			},
		}}
	}
	s := &cluster.Snapshot{TakenAt: metav1.Time{Time: taken},
		Other: []unstructured.Unstructured{
			status("fresh", 30*time.Second, "BGP", "Routes"), status("old", 40*time.Second, "BGP"),
			status("silent", 0, "Agent"), status("asked", 0, "BGP"),
		},
		Facts: []cluster.NodeFacts{
			{Node: "asked", Routes: map[string]int{"bird": 3, "kernel": 9},
				BIRD: &cluster.BIRD{Sessions: []cluster.BGPSession{
					{Peer: "10.0.0.2", State: "Active"}, {Peer: "fd00::2", State: "Established"},
				}}},
			{Node: "none"},
		},
	}
	want := map[string]Seen{
		"fresh": {Peers: map[netip.Addr]string{netip.MustParseAddr("10.0.0.1"): "Established"}, Routes: 1},
		"asked": {Peers: map[netip.Addr]string{netip.MustParseAddr("10.0.0.2"): "Active",
			netip.MustParseAddr("fd00::2"): "Established"}, Routes: 3},
	}
	if diff := cmp.Diff(want, Watch(s), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCompare holds nodes against two reflectors with one client, by sessions and by the kernel's routes.
func TestCompare(t *testing.T) {
	ip, prefix := netip.MustParseAddr, netip.MustParsePrefix
	in := &Input{Nodes: []Node{
		{Name: "a", IPv4: ip("10.0.0.1"), Labels: map[string]string{}},
		{Name: "rr", IPv4: ip("10.0.0.2"), ClusterID: "244.0.0.1", Labels: map[string]string{"rr": ""}},
		{Name: "s", IPv4: ip("10.0.0.3"), ClusterID: "244.0.0.2", Labels: map[string]string{"rr": ""}},
	}, Peers: []Peer{{Name: "p", PeerSelector: mustParse("has(rr)")}},
		Blocks: []Block{{"a", prefix("10.1.0.0/26")}, {"rr", prefix("10.1.0.64/26")}, {"rr", prefix("10.1.0.128/26")},
			{"s", prefix("10.1.0.192/26")}, {"gone", prefix("10.1.1.0/26")}, {"s", prefix("fd00::/122")}}}
	g := Build(in, false)
	said := func(routes int, up ...string) *v1alpha1.BGP { return &v1alpha1.BGP{Up: up, Routes: routes} }
	for name, test := range map[string]struct {
		said *v1alpha1.BGP
		want []Lack
	}{
		"whole":         {said(3, "10.0.0.2", "10.0.0.3"), nil},
		"more":          {said(4, "10.0.0.2", "10.0.0.3", "192.0.2.1"), nil},
		"routes lost":   {said(2, "10.0.0.2", "10.0.0.3"), []Lack{{Node: "a", Up: 2, Owed: 3}}},
		"one reflector": {said(3, "10.0.0.3"), []Lack{{Node: "a", Up: 1, Missing: []string{"rr"}}}},
		"nothing":       {said(0), []Lack{{Node: "a", Missing: []string{"rr", "s"}, Owed: 3}}},
		"mute": {&v1alpha1.BGP{Down: "i/o timeout", Routes: 3},
			[]Lack{{Node: "a", Missing: []string{"rr", "s"}}}},
		"no BIRD": {nil, []Lack{{Node: "a", Missing: []string{"rr", "s"}}}},
	} {
		got := g.Compare(in, map[string]Seen{"a": Reported(test.said)})
		if diff := cmp.Diff(test.want, got, cmpopts.IgnoreFields(Lack{}, "Seen")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestReadBlocks: only blocks whose routes BIRD carries are owed.
func TestReadBlocks(t *testing.T) {
	affinity := func(node, cidr, state string) string {
		return "---\napiVersion: crd.projectcalico.org/v1\nkind: BlockAffinity\nmetadata: {name: " +
			strings.NewReplacer(".", "-", "/", "-").Replace(node+"-"+cidr) +
			"}\nspec: {node: " + node + ", cidr: " + cidr + ", state: " + state + ", deleted: \"false\"}\n"
	}
	pool := func(name, cidr, more string) string {
		return "---\napiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: " + name +
			"}\nspec: {cidr: " + cidr + more + "}\n"
	}
	text := pool("plain", "10.1.0.0/16", "") + pool("tunnel", "10.2.0.0/16", ", vxlanMode: Always") +
		pool("hidden", "10.3.0.0/16", ", disableBGPExport: true") +
		affinity("a", "10.1.0.0/26", "confirmed") + affinity("b", "10.1.0.64/26", "pending") +
		affinity("a", "10.2.0.0/26", "confirmed") +
		affinity("a", "10.3.0.0/26", "confirmed") + affinity("a", "10.4.0.0/26", "confirmed") +
		// as definitions of projectcalico.org have it
		"---\napiVersion: projectcalico.org/v3\nkind: BlockAffinity\nmetadata: {name: going}\n" +
		"spec: {node: a, cidr: 10.1.0.128/26, state: confirmed, deleted: true}\n"
	want := []Block{{"a", netip.MustParsePrefix("10.1.0.0/26")}}
	if got := read(t, text).Blocks; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	const filtered = "---\napiVersion: crd.projectcalico.org/v1\nkind: BGPPeer\n" +
		"metadata: {name: p}\nspec: {filters: [f]}\n"
	if got := read(t, text+filtered).Blocks; got != nil {
		t.Errorf("a filter decides, and %v are owed", got)
	}
}

// TestMissing compares a mesh of two and a reflector with what is there.
func TestMissing(t *testing.T) {
	ip := netip.MustParseAddr
	in := &Input{Mesh: true, Nodes: []Node{
		{Name: "a", IPv4: ip("10.0.0.1"), Labels: map[string]string{}},
		{Name: "b", IPv4: ip("10.0.0.2"), Labels: map[string]string{}},
		{Name: "rr", IPv4: ip("10.0.0.3"), ClusterID: "244.0.0.1", Labels: map[string]string{"rr": ""}},
	}, Peers: []Peer{{Name: "p", PeerSelector: mustParse("has(rr)")}}}
	g := Build(in, false)
	for _, test := range []struct {
		seen    map[netip.Addr]string
		missing []int
		up      int
	}{
		{nil, []int{1, 2}, 0},
		{map[netip.Addr]string{ip("10.0.0.2"): "Established", ip("10.0.0.3"): "Idle", ip("fd00::3"): "Established"},
			[]int{2}, 1},
		{map[netip.Addr]string{ip("10.0.0.2"): "Established", ip("10.0.0.3"): "Established"}, []int{}, 2},
	} {
		seen := Seen{Peers: test.seen}
		if got := g.Missing(0, seen); !cmp.Equal(got, test.missing) || g.Up(seen) != test.up {
			t.Errorf("%v: %v are missing and %d are up; want %v and %d",
				test.seen, got, g.Up(seen), test.missing, test.up)
		}
	}
}
