package setting

import (
	"slices"
	"strings"
	"testing"
)

// TestComplete holds that every knob says all that the catalogue promises, and that what it refers to is there.
func TestComplete(t *testing.T) {
	for _, version := range []string{"v3.30.1", "v3.31.0", "v3.32.1", "v3.33.0"} {
		c := calico(version)
		if len(c.Notes()) > 0 && version < "v3.32" {
			t.Errorf("%s: %v", version, c.Notes())
		}
		for _, k := range c.All() {
			for what, missing := range map[string]bool{
				"title": k.Title == "", "type": k.Type == "", "places": len(k.Places) == 0,
				"rollback": len(k.Rollback) == 0 && k.Name != "rollOutCiliumPods", "proofs": len(k.Proofs) == 0 &&
					k.Name != "rollOutCiliumPods", "sources": len(k.Sources) == 0,
				"values of an enum": k.Type == Enum && len(k.Values) == 0,
			} {
				if missing && k.Title != "Unused" {
					t.Errorf("%s: %s has no %s", version, k.ID(), what)
				}
			}
			for _, p := range k.Places {
				if !slices.Contains(scopes[1:], p.Scope) ||
					!slices.Contains([]Effect{Live, Restart, Recreate, Workloads}, p.Effect) ||
					!slices.Contains([]Trigger{Itself, Rollout, ByHand}, p.Trigger) {
					t.Errorf("%s: %+v", k.ID(), p)
				}
			}
			for _, coupling := range k.Couples {
				component, _, isKnob := strings.Cut(coupling.With, "/")
				other, known := c.Get(coupling.With)
				if isKnob && slices.Contains(Components(), component) && !known &&
					!strings.Contains(coupling.With, "ProgramClusterRoutes") {
					t.Errorf("%s goes with %s, which does not exist", k.ID(), coupling.With)
				}
				for _, value := range append(slices.Clone(coupling.Needs), coupling.Not...) {
					if known && other.Type == Enum && !slices.Contains(other.Values, value) &&
						!(value == "Auto" && version < "v3.32") {
						t.Errorf("%s wants %s to be %s, which it cannot be", k.ID(), coupling.With, value)
					}
				}
				if coupling.Why == "" {
					t.Errorf("%s with %s: no reason", k.ID(), coupling.With)
				}
			}
			if k.Default != "" && k.Type == Enum && k.Check(k.Default) != nil {
				t.Errorf("%s: its default %q is none of its values", k.ID(), k.Default)
			}
		}
	}
}

// TestMayDiffer: what is said of flags is said of flags that there are, whose value Cilium's agent tells.
func TestMayDiffer(t *testing.T) {
	c := New(map[string]string{"cilium": "v1.20.2"})
	for name, why := range catalogueFiles()["cilium"].mayDiffer {
		k, known := c.Get("cilium/" + name)
		if !known || k.MayDiffer == "" || k.MayDiffer != why {
			t.Errorf("%s: %t, %q", name, known, why)
			continue
		}
		if _, _, tells := k.Said(k.Default); !tells || k.Process != CiliumAgent {
			t.Errorf("%s: Cilium's agent does not tell of it", name)
		}
	}
	if k, _ := c.Get("cilium/routing-mode"); k.MayDiffer != "" {
		t.Errorf("%s: %s", k.ID(), k.MayDiffer)
	}
}

// TestCiliumSays reads lines in the formats of v1.16.0 (logrus) and v1.20.2 (slog), made by hand after their code: no
// agent was run.
func TestCiliumSays(t *testing.T) {
	for _, test := range []struct{ line, value, at string }{
		{`time="2026-11-21T08:16:56.595123456Z" level=info msg="  --bpf-lb-acceleration='native'" subsys=daemon`,
			"'native'", "2026-11-21T08:16:56.595123456Z"},
		{`time=2026-11-21T08:16:56.595123456Z level=info msg="  --bpf-lb-acceleration='disabled'"`,
			"'disabled'", "2026-11-21T08:16:56.595123456Z"},
		{`{"time":"2026-11-21T08:16:56.5+01:00","level":"info","msg":"  --bpf-lb-acceleration=''"}`,
			"''", "2026-11-21T08:16:56.5+01:00"},
		{`level=info msg="  --bpf-lb-acceleration='native'" subsys=daemon`, "'native'", ""},
		{`level=info msg="  --bpf-lb-acceleration-hw='native'"`, "", ""},
		{`level=info msg="  --other-bpf-lb-acceleration='native'"`, "", ""},
		{`level=info msg="  --bpf-lb-acceleration='nat`, "", ""},
		{``, "", ""},
	} {
		if value, at, ok := ciliumSays(test.line, "bpf-lb-acceleration"); value != test.value ||
			at != test.at || ok != (value != "") {
			t.Errorf("%q, %q, %t from %s", value, at, ok, test.line)
		}
	}
	c := New(map[string]string{"cilium": "v1.20.2"})
	for _, test := range []struct{ name, value, says string }{
		{"bpf-lb-acceleration", "native", "'native'"}, {"enable-hubble", "", "'false'"},
		{"conntrack-gc-interval", "", "'0s'"}, {"tofqdns-min-ttl", "", "'0'"},
		{"monitor-aggregation-flags", "[syn,fin,rst]", "'syn,fin,rst'"},
		{"monitor-aggregation-flags", "syn,ack", "'syn,ack'"}, {"bpf-lb-acceleration", "it's", ""},
		{"log-opt", "level=info,format=json", ""},
		{"cluster-pool-ipv4-mask-size", "24", ""},
	} {
		k, known := c.Get("cilium/" + test.name)
		if parameter, says, ok := k.Said(test.value); !known || says != test.says || ok != (test.says != "") ||
			ok && parameter != test.name {
			t.Errorf("%s=%s: %q, %t", test.name, test.value, says, ok)
		} else if heard := k.Heard(says); ok && "'"+heard+"'" != says {
			t.Errorf("%s: heard %s", says, heard)
		}
	}
}

// TestDocumented holds that the flags which the documentation promises are there.
func TestDocumented(t *testing.T) {
	c := calico("v3.33.0")
	for _, id := range []string{
		"calico/bpfEnabled", "calico/nftablesMode", "calico/iptablesBackend", "calico/featureDetectOverride",
		"calico/featureGates", "calico/bgp", "calico/installationBGP", "calico/routeReflectorClusterID",
		"calico/nodeToNodeMeshEnabled", "calico/asNumber", "calico/listenPort", "calico/clusterRoutingMode",
		"calico/programClusterRoutes", "calico/bgpProgramClusterRoutes", "calico/ipipMode", "calico/vxlanMode",
		"calico/linuxDataplane", "calico/windowsDataplane", "cilium/kube-proxy-replacement", "cilium/datapath-mode",
		"cilium/enable-bgp-control-plane", "kube-proxy/mode", "kube-proxy/featureGates",
		"flannel/Backend.Type", "flannel/EnableNFTables", "weave/IPTABLES_BACKEND", "antrea/featureGates",
		"antrea/controllerFeatureGates", "antrea/trafficEncapMode", "antrea/secondaryNetwork.ovsBridges",
	} {
		if _, ok := c.Get(id); !ok {
			t.Errorf("%s is missing", id)
		}
	}
	live := 0
	for _, k := range c.All() {
		if k.felix != nil && k.Places[0].Effect == Live {
			live++
		}
	}
	if live != 1 {
		t.Errorf("%d parameters of Felix are live, not one", live)
	}
	for name, refused := range map[string]bool{"iptables": false, "nftables": false, "ebpf": false,
		"vpp": true, "hns": true, "ipfw": true} {
		settings, err := c.Dataplane(name)
		if (err != nil) != refused {
			t.Errorf("%s: %v", name, err)
		}
		for _, s := range settings {
			if k, ok := c.Get(s.Knob); !ok || k.Check(s.Value) != nil {
				t.Errorf("%s: %v", name, s)
			}
		}
	}
}

// TestVersions holds that a release has what it has.
func TestVersions(t *testing.T) {
	for _, test := range []struct {
		component, version, name string
		there                    bool
	}{
		{"calico", "v3.31.0", "calico/clusterRoutingMode", false},
		{"calico", "v3.33.0", "calico/clusterRoutingMode", true},
		{"calico", "v3.30.1", "calico/programClusterRoutes", false},
		{"calico", "v3.32.0", "calico/programClusterRoutes", true},
		{"cilium", "v1.16.5", "cilium/tunnel-protocol", true},
		{"cilium", "v1.16.5", "cilium/enable-drift-checker", false},
		{"cilium", "v1.20.2", "cilium/enable-drift-checker", true},
	} {
		if _, ok := New(map[string]string{test.component: test.version}).Get(test.name); ok != test.there {
			t.Errorf("%s in %s %s: %v", test.name, test.component, test.version, ok)
		}
	}
	if notes := New(map[string]string{"calico": "v3.28.5", "cilium": "v1.15.0"}).Notes(); len(notes) != 2 {
		t.Errorf("%v", notes)
	}
}
