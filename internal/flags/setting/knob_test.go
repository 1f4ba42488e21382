package setting

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
)

func calico(version string) *Catalogue { return New(map[string]string{"calico": version}) }

// TestSaid: how Felix writes values into its log, by the formats that Go has for its types.
func TestSaid(t *testing.T) {
	c := New(map[string]string{"calico": "v3.31.0"})
	for _, test := range []struct{ id, value, parameter, text string }{
		{"calico/nftablesMode", "Enabled", "NFTablesMode", "Enabled"},
		{"calico/iptablesRefreshInterval", "60s", "IptablesRefreshInterval", "60000000000"},
		{"calico/iptablesRefreshInterval", "180", "IptablesRefreshInterval", "180000000000"},
		{"calico/ipv6Support", "yes", "Ipv6Support", "true"},
		{"calico/logSeverityScreen", "Warning", "", ""},
		{"calico/failsafeInboundHostPorts", "[]", "", ""},
		{"calico/bgp", "vxlan", "", ""},
	} {
		k, ok := c.Get(test.id)
		if !ok {
			t.Fatalf("there is no %s", test.id)
		}
		if parameter, text, ok := k.Said(test.value); ok != (test.text != "") ||
			ok && (parameter != test.parameter || text != test.text) {
			t.Errorf("%s=%s is said as %s:%s, %t", test.id, test.value, parameter, text, ok)
		}
	}
}

// TestWriteWhereDefined: where there is no FelixConfiguration yet, one is made as the cluster's definitions have it.
func TestWriteWhereDefined(t *testing.T) {
	k, err := calico("v3.31.0").Find("nftablesMode")
	if err != nil {
		t.Fatal(err)
	}
	for definition, want := range map[string]string{
		"felixconfigurations.projectcalico.org":     "projectcalico.org/v3",
		"felixconfigurations.crd.projectcalico.org": "crd.projectcalico.org/v1"} {
		crd := unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1",
			"kind": "CustomResourceDefinition"}}
		crd.SetName(definition)
		w, err := Read(&cluster.Snapshot{Other: []unstructured.Unstructured{crd}}, nil).Write(k,
			Aim{Scope: Cluster}, "Enabled")
		if err != nil || w.Ref.APIVersion != want {
			t.Errorf("with %s it is written as %s: %v", definition, w.Ref.APIVersion, err)
		}
	}
}

func TestWrite(t *testing.T) {
	c := calico("v3.31.0")
	for _, test := range []struct {
		knob, value string
		aim         Aim
		want        string // the object, or the error
	}{
		{"nftablesMode", "enabled", Aim{Scope: Node, Node: "a"},
			`{"apiVersion":"crd.projectcalico.org/v1","kind":"FelixConfiguration","metadata":{"name":"node.a"},"spec":{"nftablesMode":"Enabled"}}`},
		{"FELIX_BPFENABLED", "yes", Aim{Scope: Cluster, CalicoAPI: "projectcalico.org/v3"},
			`{"apiVersion":"projectcalico.org/v3","kind":"FelixConfiguration","metadata":{"name":"default"},"spec":{"bpfEnabled":true}}`},
		{"calico/routeRefreshInterval", "90s", Aim{Scope: Node, Node: "a"},
			`{"apiVersion":"crd.projectcalico.org/v1","kind":"FelixConfiguration","metadata":{"name":"node.a"},"spec":{"routeRefreshInterval":"1m30s"}}`},
		{"calico/routeRefreshInterval", "90", Aim{Scope: Node, Node: "a"},
			`{"apiVersion":"crd.projectcalico.org/v1","kind":"FelixConfiguration","metadata":{"name":"node.a"},"spec":{"routeRefreshInterval":"1m30s"}}`},
		{"calico/routeRefreshInterval", "61.5", Aim{Scope: Node, Node: "a"}, // the field's pattern takes no point
			`{"apiVersion":"crd.projectcalico.org/v1","kind":"FelixConfiguration","metadata":{"name":"node.a"},"spec":{"routeRefreshInterval":"1m1s500ms"}}`},
		{"calico/routeRefreshInterval", "0.25s", Aim{Scope: Node, Node: "a"},
			`{"apiVersion":"crd.projectcalico.org/v1","kind":"FelixConfiguration","metadata":{"name":"node.a"},"spec":{"routeRefreshInterval":"250ms"}}`},
		{"calico/routeRefreshInterval", "-5", Aim{Scope: Node, Node: "a"},
			`error: calico/routeRefreshInterval: "-5": the API server accepts no negative values and no fractions of a millisecond`},
		{"calico/routeRefreshInterval", "1us", Aim{Scope: Node, Node: "a"},
			`error: calico/routeRefreshInterval: "1us": the API server accepts no negative values and no fractions of a millisecond`},
		{"calico/routeRefreshInterval", "1e300", Aim{Scope: Node, Node: "a"},
			`error: calico/routeRefreshInterval: "1e300": it is longer than 292 years`},
		{"nftablesMode", "none", Aim{Scope: Cluster},
			`error: calico/nftablesMode: "none": it must be one of Disabled, Enabled`},
		{"vxlanPort", "0x12b5", Aim{Scope: Node, Node: "a"},
			`{"apiVersion":"crd.projectcalico.org/v1","kind":"FelixConfiguration","metadata":{"name":"node.a"},"spec":{"vxlanPort":4789}}`},
		{"externalNodesList", "10.0.0.0/8,10.1.1.1", Aim{Scope: Cluster},
			`{"apiVersion":"crd.projectcalico.org/v1","kind":"FelixConfiguration","metadata":{"name":"default"},"spec":{"externalNodesList":["10.0.0.0/8","10.1.1.1"]}}`},
		{"nftablesMode", "on", Aim{Scope: Cluster},
			`error: calico/nftablesMode: "on": it must be one of Disabled, Enabled`},
		{"nftablesMode", "Enabled", Aim{Scope: Node}, `error: calico/nftablesMode: no nodes are given`},
		{"nftablesMode", "Enabled", Aim{Scope: Selector, Object: "x", Selector: "a == 'b'"},
			`error: calico/nftablesMode cannot be set for one selector: its narrowest place is FelixConfiguration node.NODE (node)`},
	} {
		k, err := c.Find(test.knob)
		if err != nil {
			t.Error(err)
			continue
		}
		have := ""
		w, err := k.Write(test.aim, test.value)
		if err != nil {
			have = "error: " + err.Error()
		} else {
			object, ok := w.Object()
			if !ok {
				t.Errorf("%s: no object", test.knob)
				continue
			}
			raw, _ := json.Marshal(object.Object)
			have = string(raw)
		}
		if have != test.want {
			t.Errorf("%s=%s:\nhave %s\nwant %s", test.knob, test.value, have, test.want)
		}
	}
	k, _ := calico("v3.32.0").Find("nftablesMode")
	w, err := k.Write(Aim{Scope: Selector, Object: "canary", Selector: "pool == 'edge'"}, "Enabled")
	if err != nil {
		t.Fatal(err)
	}
	object, _ := w.Object()
	if s, _, _ := unstructured.NestedString(object.Object, "spec", "nodeSelector"); s != "pool == 'edge'" ||
		object.GetName() != "canary" {
		t.Errorf("%v", object.Object)
	}
	if w.Place.Effect != Restart || w.Place.Trigger != Itself || len(k.ProofsOf("enabled")) != 2 {
		t.Errorf("%+v, proofs %v", w.Place, k.ProofsOf("enabled"))
	}
}

func TestFind(t *testing.T) {
	c := calico("v3.31.0")
	_, err := c.Find("nftableMode")
	if err == nil || !strings.Contains(err.(*Error).Hint(), "calico/nftablesMode") {
		t.Errorf("a typo: %v", err)
	}
	if _, err := c.Find("nothing of the kind"); err == nil || !strings.Contains(err.(*Error).Hint(), "explain") {
		t.Error("no such thing")
	}
}

// FuzzWrite holds that no value makes a knob panic, and that an edit names its object.
func FuzzWrite(f *testing.F) {
	for i, text := range []string{"Enabled", "90s", "0x12b5", "[{}]", "{", "a=b,c", "none", "true", "1e999"} {
		f.Add(uint16(i*37), text)
	}
	c := New(nil)
	f.Fuzz(func(t *testing.T, n uint16, text string) {
		k := c.All()[int(n)%len(c.All())]
		for _, aim := range []Aim{{Scope: Cluster}, {Scope: Node, Node: "a"},
			{Scope: Selector, Object: "o", Selector: "a=b"}} {
			w, err := k.Write(aim, text)
			if err != nil {
				continue
			}
			if object, ok := w.Object(); ok && object.GetKind() == "" {
				t.Errorf("%s: an object of no kind", k.ID())
			}
		}
	})
}
