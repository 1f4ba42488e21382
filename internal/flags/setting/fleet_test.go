package setting

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/document"
)

// read makes a snapshot of YAML.
func read(t testing.TB, text string) *cluster.Snapshot {
	t.Helper()
	b := document.New("test")
	if err := b.Add("test.yaml", strings.NewReader(text), false); err != nil {
		t.Fatal(err)
	}
	snapshot, _ := b.Snapshot()
	return snapshot
}

func objects(t testing.TB, text string) []unstructured.Unstructured {
	t.Helper()
	found, err := document.Objects("edit.yaml", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

const cluster3 = `
apiVersion: v1
kind: Node
metadata: {name: a, labels: {pool: edge}}
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {pool: edge, zone: z1}, annotations: {projectcalico.org/ASNumber: "64999"}}
---
apiVersion: v1
kind: Node
metadata: {name: c}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: calico-node, namespace: calico-system}
spec:
  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 34%}}
  template:
    spec:
      containers:
      - name: calico-node
        image: quay.io/calico/node:v3.32.1
        env:
        - {name: FELIX_IPV6SUPPORT, value: "false"}
        - {name: FELIX_NFTABLEMODE, value: Enabled}
        - {name: CALICO_NETWORKING_BACKEND, valueFrom: {configMapKeyRef: {name: calico-config, key: calico_backend}}}
        - {name: FELIX_VXLANPORT, valueFrom: {secretKeyRef: {name: s, key: k}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: calico-config, namespace: calico-system}
data: {calico_backend: vxlan}
---
apiVersion: crd.projectcalico.org/v1
kind: FelixConfiguration
metadata: {name: default}
spec: {bpfEnabled: false, ipv6Support: true, nftablesMode: Disabled, natPortRange: "9:1", routeRefreshInterval: 90s, bpfEnable: true, interfacePrefix: cali}
---
apiVersion: crd.projectcalico.org/v1
kind: FelixConfiguration
metadata: {name: edge-new, creationTimestamp: "2026-02-01T00:00:00Z"}
spec: {nodeSelector: "pool == 'edge'", nftablesMode: Auto, bpfEnabled: true}
---
apiVersion: crd.projectcalico.org/v1
kind: FelixConfiguration
metadata: {name: edge-old, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {nodeSelector: "has(zone)", nftablesMode: Enabled}
---
apiVersion: crd.projectcalico.org/v1
kind: FelixConfiguration
metadata: {name: node.c}
spec: {nftablesMode: Auto, ipv6Support: true}
---
apiVersion: cilium.io/v2
kind: CiliumNodeConfig
metadata: {name: one, namespace: kube-system}
spec: {nodeSelector: {matchLabels: {pool: edge}}, defaults: {bpf-lb-mode: dsr, bpf-lb-mod: x}}
---
apiVersion: cilium.io/v2
kind: CiliumNodeConfig
metadata: {name: two, namespace: kube-system}
spec: {nodeSelector: {matchLabels: {zone: z1}}, defaults: {bpf-lb-mode: hybrid}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cilium-config, namespace: kube-system}
data: {bpf-lb-mode: snat, enable-ipv4: "true"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system}
data: {config.conf: "mode: nftables\niptables: {masqueradeAll: true}\n"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-flannel-cfg, namespace: kube-flannel}
data: {net-conf.json: '{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "VNI": 2}}'}
`

func TestFleet(t *testing.T) {
	f := Read(read(t, cluster3), nil)
	if f.Versions()["calico"] != "v3.32.1" {
		t.Errorf("%v", f.Versions())
	}
	for _, test := range []struct{ knob, node, want string }{
		// the selectors of both match b: only the older applies, as a whole, so bpfEnabled of the newer does not.
		{"calico/nftablesMode", "a", "Auto by FelixConfiguration/edge-new over FelixConfiguration/default"},
		{"calico/nftablesMode", "b", "Enabled by FelixConfiguration/edge-old over FelixConfiguration/default"},
		{"calico/nftablesMode", "c", "Auto by FelixConfiguration/node.c over FelixConfiguration/default"},
		{"calico/nftablesMode", "", "Disabled by FelixConfiguration/default"},
		{"calico/bpfEnabled", "a", "true by FelixConfiguration/edge-new over FelixConfiguration/default"},
		{"calico/bpfEnabled", "b", "false by FelixConfiguration/default"},
		{"calico/ipv6Support", "c", "false by DaemonSet/calico-system/calico-node over FelixConfiguration/node.c " +
			"over FelixConfiguration/default"},
		{"calico/natPortRange", "a", " by FelixConfiguration/default"}, // invalid: the default, which is empty
		{"calico/vxlanPort", "a", "unknown by DaemonSet/calico-system/calico-node"},
		{"calico/routeRefreshInterval", "a", "90s by FelixConfiguration/default"},
		{"calico/bgp", "a",
			"vxlan by ConfigMap/calico-system/calico-config over ConfigMap/calico-system/calico-config"},
		{"calico/asNumber", "b", "64999 by Node/b"},
		{"calico/asNumber", "a", "64512"},
		{"calico/iptablesBackend", "a", "auto"},
		{"cilium/bpf-lb-mode", "a", "dsr by CiliumNodeConfig/kube-system/one over ConfigMap/kube-system/cilium-config"},
		{"cilium/bpf-lb-mode", "b", "hybrid by CiliumNodeConfig/kube-system/two over " +
			"CiliumNodeConfig/kube-system/one over ConfigMap/kube-system/cilium-config"},
		{"cilium/bpf-lb-mode", "c", "snat by ConfigMap/kube-system/cilium-config"},
		{"kube-proxy/mode", "a", "nftables by ConfigMap/kube-system/kube-proxy"},
		{"kube-proxy/iptables.masqueradeAll", "a", "true by ConfigMap/kube-system/kube-proxy"},
		{"flannel/Backend.VNI", "a", "2 by ConfigMap/kube-flannel/kube-flannel-cfg"},
	} {
		k, ok := f.Catalogue().Get(test.knob)
		if !ok {
			t.Errorf("no %s", test.knob)
			continue
		}
		in := f.Value(k, test.node)
		have := in.Value
		if in.By != nil {
			have += " by " + in.By.Ref.String()
		}
		for _, h := range in.Hidden {
			have += " over " + h.Ref.String()
		}
		if have != test.want {
			t.Errorf("%s on %q:\nhave %s\nwant %s", test.knob, test.node, have, test.want)
		}
	}
	var strays []string
	for _, s := range f.Strays() {
		strays = append(strays, s.Ref.Name+" "+s.Name+": "+s.Near)
	}
	if have, want := fmt.Sprint(strays), "[calico-node FELIX_NFTABLEMODE: calico/nftablesMode one bpf-lb-mod: "+
		"cilium/bpf-lb-mode default bpfEnable: calico/bpfEnabled]"; have != want {
		t.Errorf("strays:\nhave %s\nwant %s", have, want)
	}
}

func TestDiff(t *testing.T) {
	before := Read(read(t, cluster3), nil)
	for _, test := range []struct{ name, edit, want string }{
		{"default", `
apiVersion: crd.projectcalico.org/v1
kind: FelixConfiguration
metadata: {name: default}
spec: {iptablesBackend: NFT, ipv6Support: false, vxlanMTU: 1400, natPortRange: "1:9", routeRefreshInterval: 1m30s}
`, `calico/natPortRange:  -> 1:9 on 3, FelixConfiguration default: felix restart, 3 at once
calico/iptablesBackend: auto -> NFT on 3, FelixConfiguration default: felix restart, 3 at once
calico/vxlanMTU: 0 -> 1400 on 3, FelixConfiguration default: felix workloads, 3 at once
idle calico/ipv6Support by DaemonSet/calico-system/calico-node on 3
felix restart 3 of 3
felix workloads 3 of 3`},
		{"one node", `
apiVersion: crd.projectcalico.org/v1
kind: FelixConfiguration
metadata: {name: node.a}
spec: {nftablesMode: Enabled}
`, `calico/nftablesMode: Auto -> Enabled on 1, FelixConfiguration node.NODE: felix restart, 1 at once
felix restart 1 of 1`},
		{"environment", `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: calico-node, namespace: calico-system}
spec: {template: {spec: {containers: [{name: calico-node, env: [{name: FELIX_BPFENABLED, value: "yes"}, {name: CALICO_NETWORKING_BACKEND, value: bird}]}]}}}
`, `calico/bpfEnabled: false -> yes on 2, environment of calico-node: calico-node recreate, 2 at once
calico/bgp: vxlan -> bird on 3, environment of calico-node: calico-node recreate, 2 at once
calico-node recreate 2 of 3`},
		{"what a variable is taken from", `
apiVersion: v1
kind: ConfigMap
metadata: {name: calico-config, namespace: calico-system}
data: {calico_backend: bird}
`, `calico/bgp: vxlan -> bird on 3, environment of calico-node, from a ConfigMap: calico-node recreate, 0 at once
calico-node recreate 0 of 3`},
		{"config map", `
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-proxy, namespace: kube-system}
data: {config.conf: "mode: iptables\n"}
`, `kube-proxy/mode: nftables -> iptables on 3, ConfigMap kube-proxy: kube-proxy recreate, 0 at once
kube-proxy/iptables.masqueradeAll: true -> false on 3, ConfigMap kube-proxy: kube-proxy recreate, 0 at once
kube-proxy recreate 0 of 3`},
		{"nothing", `
apiVersion: crd.projectcalico.org/v1
kind: FelixConfiguration
metadata: {name: default}
spec: {bpfEnabled: false}
`, ``},
	} {
		after := before.After(objects(t, test.edit))
		d := Diff(before, after)
		var lines []string
		for _, c := range d.Changes {
			lines = append(lines, fmt.Sprintf("%s: %s -> %s on %d, %s: %s %s, %d at once",
				c.Knob, c.From, c.To, len(c.Nodes), c.Why, c.Process, c.Effect, c.AtOnce))
		}
		for _, i := range d.Idle {
			lines = append(lines, fmt.Sprintf("idle %s by %s on %d", i.Knob, i.By.Ref, i.Nodes))
		}
		for _, p := range d.Processes {
			lines = append(lines, fmt.Sprintf("%s %s %d of %d", p.Name, p.Effect, p.AtOnce, p.Nodes))
		}
		if have := strings.Join(lines, "\n"); have != test.want {
			t.Errorf("%s:\nhave %s\nwant %s", test.name, have, test.want)
		}
	}
}
