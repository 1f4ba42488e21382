package bgp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/cluster/document"
)

// read makes the input of YAML.
func read(t *testing.T, text string) *Input {
	t.Helper()
	b := document.New("test")
	if err := b.Add("test.yaml", strings.NewReader(text), false); err != nil {
		t.Fatal(err)
	}
	s, _ := b.Snapshot()
	return FromSnapshot(s)
}

func TestFromSnapshot(t *testing.T) {
	in := read(t, `
apiVersion: v1
kind: Node
metadata:
  name: a
  labels: {rack: "1"}
  annotations: {projectcalico.org/IPv4Address: 10.0.0.1/24, projectcalico.org/IPv6Address: "fd00::1/64", projectcalico.org/ASNumber: "1.10", projectcalico.org/RouteReflectorClusterID: 244.0.0.1}
---
apiVersion: v1
kind: Node
metadata:
  name: b
  annotations: {projectcalico.org/IPv4Address: nonsense, projectcalico.org/ASNumber: x, projectcalico.org/RouteReflectorClusterID: rack-1}
---
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: b, labels: {own: ""}}
spec: {bgp: {ipv4Address: 10.0.0.2/24, asNumber: 64600, routeReflectorClusterID: 244.0.0.2}}
---
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: etcd-only, labels: {own: ""}}
spec: {bgp: {ipv4Address: 10.0.0.3/24}}
---
apiVersion: crd.projectcalico.org/v1
kind: BGPConfiguration
metadata: {name: default}
spec: {nodeToNodeMeshEnabled: false, asNumber: 64999, listenPort: 1790}
---
apiVersion: crd.projectcalico.org/v1
kind: BGPConfiguration
metadata: {name: node.a}
spec: {listenPort: 1791}
---
apiVersion: crd.projectcalico.org/v1
kind: BGPPeer
metadata: {name: both}
spec: {nodeSelector: all()}
---
apiVersion: projectcalico.org/v3
kind: BGPPeer
metadata: {name: both}
spec: {node: a, peerIP: "[fd00::9]:1792", asNumber: "1.11", localASNumber: 64601, numAllowedLocalASNumbers: 1, reversePeering: Manual}
---
apiVersion: crd.projectcalico.org/v1
kind: BGPPeer
metadata: {name: bad}
spec: {nodeSelector: "has(", peerSelector: "rack == '1'", peerIP: 10.0.0.300}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: v}
spec: {vxlanMode: CrossSubnet, ipipMode: Never}
---
apiVersion: crd.projectcalico.org/v1
kind: IPPool
metadata: {name: i}
spec: {ipipMode: Always, disabled: true}
`)
	var lines []string
	for _, n := range in.Nodes {
		lines = append(lines, fmt.Sprintf("node %s %v %v %d %q %q %v", n.Name, n.IPv4, n.IPv6, n.AS,
			n.ClusterID, n.BadClusterID, n.Labels))
	}
	lines = append(lines, fmt.Sprintf("mesh %v AS %d port %d %v backend %q: %s, guessed %v",
		in.Mesh, in.AS, in.Port, in.NodePorts, in.Backend, in.Unknown, in.Guessed))
	for _, p := range in.Peers {
		lines = append(lines, fmt.Sprintf(
			"peer %s node %q %v %v ip %v port %d AS %d local %d manual %v own %v global %v bad %v", p.Name, p.Node,
			p.NodeSelector, p.PeerSelector, p.IP, p.Port, p.AS, p.LocalAS, p.ManualReverse,
			p.AllowOwnAS, p.Global(), p.Bad))
	}
	lines = append(lines, fmt.Sprint(in.Pools))
	want := `node a 10.0.0.1 fd00::1 65546 "244.0.0.1" "" map[rack:1]
node b 10.0.0.2 invalid IP 64600 "244.0.0.2" "" map[own:]
node etcd-only 10.0.0.3 invalid IP 0 "" "" map[own:]
mesh false AS 64999 port 1790 map[a:1791] backend "": daemonsets: not in the input, guessed false
peer both node "a" <nil> <nil> ip fd00::9 port 1792 AS 65547 local 64601 manual true own true global false bad map[]
peer bad node "" <nil> rack == "1" ip invalid IP port 0 AS 0 local 0 manual false own false global false bad map[nodeSelector:selector "has(", column 5: expected a label]
[{i IPIP false true invalid Prefix false} {v VXLAN true false invalid Prefix false}]`
	if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestGuessedAddresses(t *testing.T) {
	in := read(t, "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {addresses: [{type: InternalIP, address: "+
		"10.0.0.1}, {type: InternalIP, address: 'fd00::1'}, {type: ExternalIP, address: 192.0.2.1}]}\n")
	if n := in.Nodes[0]; !in.Guessed || n.IPv4.String() != "10.0.0.1" ||
		n.IPv6.String() != "fd00::1" || !in.Speaks(true) {
		t.Errorf("%+v", in)
	}
}
