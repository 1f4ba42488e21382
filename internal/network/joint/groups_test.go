package joint_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/joint"
)

// zoned is a cluster of workers in zones, in turn; an empty zone is no label.
func zoned(workers, control int, zones ...string) *cluster.Snapshot {
	s := nodes(workers, control)
	for i := range s.Nodes {
		if zone := zones[i%len(zones)]; zone != "" {
			if s.Nodes[i].Labels == nil {
				s.Nodes[i].Labels = map[string]string{}
			}
			s.Nodes[i].Labels["topology.kubernetes.io/zone"] = zone
			s.Nodes[i].Labels["rack"] = "r" + zone
		}
	}
	return s
}

func TestLimits(t *testing.T) {
	for _, test := range []struct {
		nodes, asked, want int
	}{{1, 0, 4}, {80, 0, 4}, {99, 0, 4}, {100, 0, 5}, {500, 0, 25}, {1280, 0, 64}, {5000, 0, 64},
		{5000, 7, 7}, {3, 64, 64}} {
		if got := joint.LimitsOf(nodes(test.nodes, 0),
			v1alpha1.ChangeSpec{MaxParallel: test.asked}).Most; got != test.want {
			t.Errorf("%d nodes, --max-parallel %d: %d at once, want %d", test.nodes, test.asked, got, test.want)
		}
	}
	for name, s := range map[string]*cluster.Snapshot{"no zones": nodes(9, 0), "one zone": zoned(9, 0, "a")} {
		if domains := joint.LimitsOf(s, v1alpha1.ChangeSpec{}).Domains; domains != nil {
			t.Errorf("%s: domains %v", name, domains)
		}
	}
	if joint.LimitsOf(zoned(9, 0, "a", "b"), v1alpha1.ChangeSpec{DomainLabel: "rack"}).Domains["n9"] != "ra" {
		t.Error("the label of the change is not used")
	}
}

func TestGroups(t *testing.T) {
	domains := map[string]string{"n1": "a", "n2": "a", "n3": "a", "n4": "b", "n5": "b"}
	for _, test := range []struct {
		limits joint.Limits
		want   string
	}{
		{joint.Limits{Most: 2}, "n1 n2 | n3 n4 | n5"},
		{joint.Limits{Most: 9}, "n1 n2 n3 n4 n5"},
		{joint.Limits{Most: 9, Domains: domains}, "n1 n2 n3 | n4 n5"},
		{joint.Limits{Most: 2, Domains: domains}, "n1 n2 | n3 | n4 n5"},
		{joint.Limits{Most: 9, Reflecting: []string{"n2", "n3"}}, "n1 n2 | n3 n4 n5"},
		{joint.Limits{Most: 9, Domains: domains, Reflecting: []string{"n1", "n5"}}, "n1 n2 n3 | n4 n5"},
	} {
		var got []string
		for _, group := range test.limits.Groups([]string{"n1", "n2", "n3", "n4", "n5"}) {
			got = append(got, strings.Join(group, " "))
		}
		if text := strings.Join(got, " | "); text != test.want {
			t.Errorf("%+v: got  %s\nwant %s", test.limits, text, test.want)
		}
	}
	if groups := (joint.Limits{Most: 3}).Groups(nil); len(groups) != 0 {
		t.Errorf("no nodes, and groups %v", groups)
	}
}

// TestZonesOfWaves: a wave is of one zone, unless counts say otherwise; the control plane comes last, zone by zone.
func TestZonesOfWaves(t *testing.T) {
	for _, test := range []struct {
		snapshot *cluster.Snapshot
		counts   []int
		want     string
	}{
		{zoned(7, 0, "b", "a"), nil, "n2 | n4 n6 | n1 n3 n5 n7"},
		{zoned(4, 2, "b", "a"), nil, "n1 | n3 | n2 n4 | c2 | c1"},
		{zoned(4, 0, "b", ""), nil, "n1 | n3 | n2 n4"},
		{zoned(4, 0, "b", "a"), []int{1, 0}, "n1 | n3 n2 n4"},
	} {
		waves, err := joint.Waves(test.snapshot, test.counts, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, wave := range waves {
			got = append(got, strings.Join(wave.Nodes, " "))
		}
		if text := strings.Join(got, " | "); text != test.want {
			t.Errorf("got  %s\nwant %s", text, test.want)
		}
	}
}

// TestGroupsOfAnyCluster: whatever the nodes, their zones, the waves and the reflectors, every node is in one group, in
// the order of the waves, and no group exceeds the bound, crosses a zone or has two reflectors.
func TestGroupsOfAnyCluster(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zones := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), 1, 7).Draw(t, "zones")
		s := zoned(rapid.IntRange(1, 300).Draw(t, "workers"), rapid.IntRange(0, 5).Draw(t, "control"), zones...)
		limits := joint.LimitsOf(s, v1alpha1.ChangeSpec{MaxParallel: rapid.IntRange(0, 64).Draw(t, "max")})
		for i := range s.Nodes {
			if rapid.IntRange(0, 9).Draw(t, "reflects") == 0 {
				limits.Reflecting = append(limits.Reflecting, s.Nodes[i].Name)
			}
		}
		var counts []int
		if rapid.Bool().Draw(t, "counted") {
			counts = []int{rapid.IntRange(1, 20).Draw(t, "first"), 0}
		}
		waves, err := joint.Waves(s, counts, "")
		if err != nil {
			t.Fatal(err)
		}
		var all, planned []string
		for i, wave := range waves {
			if i == 0 && counts == nil && len(wave.Nodes) != 1 {
				t.Fatalf("the canary has %d nodes", len(wave.Nodes))
			}
			planned = append(planned, wave.Nodes...)
			for _, group := range limits.Groups(wave.Nodes) {
				all = append(all, group...)
				if len(group) == 0 || len(group) > limits.Most {
					t.Fatalf("a group has %d nodes, of at most %d", len(group), limits.Most)
				}
				reflectors := 0
				for _, node := range group {
					if limits.Domains[node] != limits.Domains[group[0]] {
						t.Fatalf("%s and %s are of different zones", group[0], node)
					}
					if slices.Contains(limits.Reflecting, node) {
						reflectors++
					}
				}
				if reflectors > 1 {
					t.Fatalf("%d reflectors in %v", reflectors, group)
				}
			}
			if counts == nil {
				for _, node := range wave.Nodes {
					if limits.Domains[node] != limits.Domains[wave.Nodes[0]] {
						t.Fatalf("%s has nodes of different zones", wave.Name)
					}
				}
			}
		}
		if !slices.Equal(all, planned) {
			t.Fatalf("groups have %v, and waves %v", all, planned)
		}
		var names []string
		for i := range s.Nodes {
			names = append(names, s.Nodes[i].Name)
		}
		slices.Sort(names)
		if slices.Sort(all); !slices.Equal(all, names) {
			t.Fatal("not every node is in one group")
		}
	})
}
