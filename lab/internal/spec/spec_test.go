package spec

import (
	"net/netip"
	"testing"
)

func TestAddresses(t *testing.T) {
	first, third := Lab{Name: "a", Index: 0, Nodes: 3}, Lab{Name: "c", Index: 2, Nodes: 3}
	tests := []struct{ what, got, want string }{
		{"first control plane", first.ControlPlaneIP().String(), "198.18.0.10"},
		{"first gateway", first.GatewayIP().String(), "198.18.0.1"},
		{"first node 1", first.NodeIP(1).String(), "198.18.0.11"},
		{"first services", first.ServiceCIDR().String(), "198.18.64.0/21"},
		{"first DNS", first.DNSIP().String(), "198.18.64.10"},
		{"first pods", first.PodCIDR().String(), "198.19.0.0/20"},
		{"first new pods", first.NewPodCIDR().String(), "198.19.16.0/20"},
		{"first all pods", first.AllPods().String(), "198.19.0.0/19"},
		{"first node 3's pods", first.NodePodCIDR(3).String(), "198.19.2.0/24"},
		{"third control plane", third.ControlPlaneIP().String(), "198.18.16.10"},
		{"third services", third.ServiceCIDR().String(), "198.18.80.0/21"},
		{"third pods", third.PodCIDR().String(), "198.19.64.0/20"},
		{"third new pods", third.NewPodCIDR().String(), "198.19.80.0/20"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.what, tt.got, tt.want)
		}
	}
}

// Every range of every lab must be inside the benchmarking range and apart from all others.
func TestRangesDoNotOverlap(t *testing.T) {
	benchmarking := netip.MustParsePrefix("198.18.0.0/15")
	all := []netip.Prefix{netip.MustParsePrefix("198.18.0.0/18")} // the fabric
	for i := range MaxLabs {
		l := Lab{Index: i}
		for _, p := range []netip.Prefix{l.ServiceCIDR(), l.PodCIDR(), l.NewPodCIDR()} {
			if p != p.Masked() || !benchmarking.Contains(p.Addr()) {
				t.Errorf("lab %d: %s is no range of its own", i, p)
			}
			for _, other := range all {
				if p.Overlaps(other) {
					t.Errorf("lab %d: %s overlaps %s", i, p, other)
				}
			}
			all = append(all, p)
		}
		if last := l.NodeIP(MaxNodes); !all[0].Contains(last) {
			t.Errorf("lab %d: node address %s is not on the fabric", i, last)
		}
		if last := l.NodePodCIDR(MaxNodes); !l.PodCIDR().Contains(last.Addr()) {
			t.Errorf("lab %d: %s is not in %s", i, last, l.PodCIDR())
		}
	}
}

func TestValidate(t *testing.T) {
	good := Lab{Name: "a", Nodes: 3, ProxyMode: "iptables"}
	tests := []struct {
		name   string
		change func(*Lab)
		ok     bool
	}{
		{"good", func(*Lab) {}, true},
		{"nftables", func(l *Lab) { l.ProxyMode = "nftables" }, true},
		{"Cilium in place of kube-proxy", func(l *Lab) { l.Network, l.ProxyMode = "cilium", NoProxy }, true},
		{"nothing in place of kube-proxy", func(l *Lab) { l.Network, l.ProxyMode = "calico", NoProxy }, false},
		{"values of a chart", func(l *Lab) { l.Network, l.Values = "cilium", []string{"a=b"} }, true},
		{"values without a chart", func(l *Lab) { l.Network, l.Values = "calico", []string{"a=b"} }, false},
		{"name too long for a link", func(l *Lab) { l.Name = "abcdefg" }, false},
		{"name with a dash", func(l *Lab) { l.Name = "a-b" }, false},
		{"path as name", func(l *Lab) { l.Name = "../x" }, false},
		{"no name", func(l *Lab) { l.Name = "" }, false},
		{"no nodes", func(l *Lab) { l.Nodes = 0 }, false},
		{"too many nodes", func(l *Lab) { l.Nodes = MaxNodes + 1 }, false},
		{"index beyond the fabric", func(l *Lab) { l.Index = MaxLabs }, false},
		{"other folders", func(l *Lab) { l.ConfDir, l.BinDir = "/srv/net.d", "/srv/cni/bin" }, true},
		{"a folder of the root", func(l *Lab) { l.ConfDir = "/srv" }, false},
		{"a folder elsewhere", func(l *Lab) { l.BinDir = "/srv/../etc" }, false},
		{"a folder of several words", func(l *Lab) { l.BinDir = "/srv/a b" }, false},
		{"a network with folders of its own", func(l *Lab) { l.Network, l.ConfDir = "weave", "/srv/net.d" }, false},
		{"unknown proxy mode", func(l *Lab) { l.ProxyMode = "ipvs" }, false},
	}
	for _, tt := range tests {
		l := good
		tt.change(&l)
		if err := l.Validate(); (err == nil) != tt.ok {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
}

func TestNodeNumber(t *testing.T) {
	l := Lab{Name: "b", Nodes: 2}
	for arg, want := range map[string]int{"b-node-2": 2, "node-1": 1, "2": 2, "3": 0, "a-node-1": 0, "": 0} {
		got, ok := l.NodeNumber(arg)
		if got != want || ok != (want != 0) {
			t.Errorf("NodeNumber(%q) = %d, %v, want %d", arg, got, ok, want)
		}
	}
}

// TestRemoved: a node that was removed has no name any more, and its number is nobody else's.
func TestRemoved(t *testing.T) {
	l := Lab{Name: "a", Nodes: 4, Removed: []int{2, 4}}
	if got := l.Numbers(); len(got) != 2 || got[0] != 1 || got[1] != 3 {
		t.Errorf("numbers: %v", got)
	}
	for name, want := range map[string]int{"a-node-1": 1, "3": 3, "node-2": 0, "a-node-4": 0, "a-node-5": 0} {
		if got, ok := l.NodeNumber(name); got != want || ok != (want > 0) {
			t.Errorf("%s: %d, %t", name, got, ok)
		}
	}
}
