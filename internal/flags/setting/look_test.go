package setting

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// TestLook holds every kind of proof against a node that shows it, and against one that does not.
func TestLook(t *testing.T) {
	sound := func() *cluster.NodeFacts {
		return &cluster.NodeFacts{
			Links:  []cluster.Link{{Name: "vxlan.calico", MTU: 1450, VNI: 4096, Port: 4789}},
			Routes: map[string]int{"bird": 3},
			BIRD:   &cluster.BIRD{Sessions: []cluster.BGPSession{{Peer: "10.0.0.2", State: "Established"}}},
			Host: &cluster.Host{Sysctls: map[string]string{"net.ipv4.ip_forward": "1"},
				Traces: &cluster.Traces{NFTables: []string{"ip calico"}, Chains: map[string]int{"cali-": 40},
					Legacy: map[string]int{"cali-": 0}}},
		}
	}
	for name, test := range map[string]struct {
		proof Proof
		value string
		spoil func(*cluster.NodeFacts)
		wrong string
	}{
		"a link": {Proof{Links: []string{"vxlan.calico"}}, "", func(f *cluster.NodeFacts) { f.Links = nil },
			"interface vxlan.calico does not exist"},
		"no link": {Proof{NoLinks: []string{"tunl0"}}, "",
			func(f *cluster.NodeFacts) { f.Links[0].Name = "tunl0" }, "interface tunl0 still exists"},
		"MTU": {Proof{MTU: "vxlan.calico"}, "1450", func(f *cluster.NodeFacts) { f.Links[0].MTU = 1400 },
			"MTU of vxlan.calico is 1400"},
		"port": {Proof{Port: "vxlan.calico"}, "4789", func(f *cluster.NodeFacts) { f.Links[0].Port = 8472 },
			"port of vxlan.calico is 8472"},
		"VNI": {Proof{VNI: "vxlan.calico"}, "4096", func(f *cluster.NodeFacts) { f.Links[0].VNI = 1 },
			"VNI of vxlan.calico is 1"},
		"routes": {Proof{Routes: []string{"bird"}}, "", func(f *cluster.NodeFacts) { f.Routes = nil },
			"0 routes of proto bird"},
		"no routes": {Proof{NoRoutes: []string{"80"}}, "", func(f *cluster.NodeFacts) { f.Routes["80"] = 2 },
			"2 routes of proto 80"},
		"BIRD": {Proof{BIRD: birdRuns}, "", func(f *cluster.NodeFacts) { f.BIRD = nil }, "does not run"},
		"BIRD hangs": {Proof{BIRD: birdRuns}, "", func(f *cluster.NodeFacts) { f.BIRD.Down = "timeout" },
			"does not answer: timeout"},
		"sessions": {Proof{BIRD: birdMeets}, "",
			func(f *cluster.NodeFacts) { f.BIRD.Sessions[0].State = "Active" }, "0 of 1 sessions"},
		"no session": {Proof{BIRD: birdMeets}, "", func(f *cluster.NodeFacts) { f.BIRD.Sessions = nil },
			"0 of 0 sessions"},
		"a table": {Proof{Tables: []string{"ip calico"}}, "",
			func(f *cluster.NodeFacts) { f.Host.Traces.NFTables = nil }, "nft table ip calico does not exist"},
		"no table": {Proof{NoTables: []string{"ip6 calico"}}, "", func(f *cluster.NodeFacts) {
			f.Host.Traces.NFTables = []string{"ip6 calico"}
		}, "nft table ip6 calico still exists"},
		"backend": {Proof{Backend: "nft"}, "", func(f *cluster.NodeFacts) {
			f.Host.Traces.Legacy["cali-"] = 2
		}, "38 chains cali-* in iptables-nft, 2 in iptables-legacy"},
		"no chains at all": {Proof{Backend: "nft"}, "",
			func(f *cluster.NodeFacts) { f.Host.Traces.Chains = nil }, "0 chains"},
		"sysctl": {Proof{Sysctls: map[string]string{"net.ipv4.ip_forward": "1"}}, "",
			func(f *cluster.NodeFacts) { f.Host.Sysctls["net.ipv4.ip_forward"] = "0" }, `is "0", not 1`},
		"an older agent": {Proof{Tables: []string{"ip calico"}}, "", func(f *cluster.NodeFacts) { f.Host = nil },
			"does not report rules"},
	} {
		facts := sound()
		if !test.proof.Machine() {
			t.Errorf("%s: a machine cannot look for it", name)
		}
		if there, wrong := test.proof.Look(test.value, facts); len(wrong) > 0 || len(there) == 0 {
			t.Errorf("%s: %q, %q", name, there, wrong)
		}
		test.spoil(facts)
		if _, wrong := test.proof.Look(test.value, facts); !strings.Contains(strings.Join(wrong, "; "), test.wrong) ||
			len(wrong) == 0 {
			t.Errorf("%s: %q, want %q", name, wrong, test.wrong)
		}
	}
	gone := Proof{BIRD: birdGone}
	if _, wrong := gone.Look("", sound()); len(wrong) != 1 {
		t.Errorf("BIRD runs, which goes unseen: %q", wrong)
	}
	if there, wrong := gone.Look("",
		&cluster.NodeFacts{BIRD: &cluster.BIRD{Down: "connection refused"}}); len(there) != 1 || len(wrong) != 0 {
		t.Errorf("a socket that is left: %q, %q", there, wrong)
	}
	if there, wrong := (&Proof{MTU: "vxlan.calico"}).Look("0", sound()); len(there)+len(wrong) != 0 {
		t.Errorf("an MTU that the agent chooses: %q, %q", there, wrong)
	}
}
