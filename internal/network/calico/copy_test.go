package calico_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
)

const (
	daemonSet = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: calico-node, namespace: kube-system}\nspec: " +
		"{template: {spec: {containers: [{name: calico-node, image: 'quay.io/calico/node:v3.31.0', env: " +
		"[{name: FELIX_HEALTHENABLED, value: 'true'}]}]}}}\n---\n"
	served = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " +
		"ippools.crd.projectcalico.org}\n---\n"
)

// side is a cluster with Calico.
func side(t *testing.T, mtu string, objects ...string) *cluster.Snapshot {
	t.Helper()
	text := daemonSet + served + "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: calico-config, namespace: " +
		"kube-system}\ndata: {veth_mtu: '" + mtu + "', other: kept}\n"
	for _, object := range objects {
		text += "---\n" + object + "\n"
	}
	s := cnitest.Snapshot(t, cnitest.Documents(t, []byte(text)))
	s.Sources = append(s.Sources, cluster.Source{Resource: "ippools.crd.projectcalico.org", From: "test"})
	return s
}

func object(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: crd.projectcalico.org/v1\nkind: %s\nmetadata: {name: %s}\nspec: {%s}", kind, name,
		spec)
}

func node(name, address, ranges string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\nspec: {podCIDR: %s, podCIDRs: ['%s']}\n"+
		"status: {addresses: [{type: InternalIP, address: %s}]}", name, ranges, ranges, address)
}

const service = "apiVersion: v1\nkind: Service\nmetadata: {name: kubernetes, namespace: default}\nspec: {clusterIP: " +
	"10.96.0.1}"

// copied is what the scratch cluster gets, as lines; other has its kinds and names.
func copied(t *testing.T, c *cni.Copying) (lines []string, got *cni.Copied) {
	t.Helper()
	c.Ours = calico.Driver{}.Detect(c.Original)
	if c.Theirs == nil {
		c.Theirs = calico.Driver{}.Detect(c.Scratch)
	}
	got, err := calico.Driver{}.Copy(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range got.Objects {
		fields := o.Object["spec"]
		if fields == nil {
			fields = o.Object["data"]
		}
		lines = append(lines, o.GetKind()+" "+o.GetName()+" "+cni.FieldText(fields))
	}
	return lines, got
}

// TestCopyReflectors: the copy has no full mesh either, if the nodes that stand for the route reflectors are some.
func TestCopyReflectors(t *testing.T) {
	mesh := object("BGPConfiguration", "default", "nodeToNodeMeshEnabled: false")
	reflector := func(name string) string {
		return strings.Replace(node(name, "192.0.2.10", "10.9.0.0/24"), "{name: "+name+"}",
			"{name: "+name+", annotations: {projectcalico.org/RouteReflectorClusterID: 244.0.0.1}}", 1)
	}
	for name, c := range map[string]struct {
		node string
		want bool
	}{
		"none":      {node("s-1", "192.0.2.10", "10.9.0.0/24"), true},
		"reflector": {reflector("s-1"), false},
		"another":   {node("s-1", "192.0.2.10", "10.9.0.0/24") + "\n---\n" + reflector("s-2"), true},
	} {
		lines, got := copied(t, &cni.Copying{Original: side(t, "0", mesh, reflector("node-1")),
			Scratch: side(t, "0", c.node), Plays: map[string]string{"node-1": "s-1"}})
		want := fmt.Sprintf(`BGPConfiguration default {"nodeToNodeMeshEnabled":%v}`, c.want)
		if said := strings.Contains(fmt.Sprint(got.Lacks), "route reflector node-1 is none"); said != c.want ||
			!slices.Contains(lines, want) {
			t.Errorf("%s: %v, %v", name, lines, got.Lacks)
		}
	}
}

// TestCopy: a running Calico gets the original's settings. Its pool keeps its range and the size of its blocks; another
// pool is made with its own range, or not at all where that overlaps; and settings of nodes are those of the nodes that
// play them. What it cannot have is said.
func TestCopy(t *testing.T) {
	original := side(t, "1400",
		object("IPPool", "main", "cidr: 10.1.0.0/16, blockSize: 28, ipipMode: Always, natOutgoing: true"),
		object("IPPool", "other", "cidr: 10.2.0.0/16, nodeSelector: \"kubernetes.io/hostname == 'node-1'\""),
		object("IPPool", "overlaps", "cidr: 10.96.0.0/16"),
		object("IPPool", "six", "cidr: 'fd00::/64'"),
		object("FelixConfiguration", "default", "vxlanPort: 4790, natOutgoingAddress: 192.0.2.1, vxlanMTU: 1480"),
		object("FelixConfiguration", "node.node-1", "logSeverityScreen: Debug"),
		object("FelixConfiguration", "node.node-2", "logSeverityScreen: Error"),
		object("FelixConfiguration", "node.gone", "logSeverityScreen: Error"),
		object("BGPConfiguration", "default", "asNumber: 64600, nodeToNodeMeshEnabled: false, serviceClusterIPs: "+
			"[{cidr: 10.96.0.0/12}]"),
		object("BGPPeer", "rack", "peerIP: 192.0.2.2"),
		object("IPAMConfig", "default", "strictAffinity: true"))
	scratch := side(t, "0", object("IPPool", "main", "cidr: 10.9.0.0/16, vxlanMode: Always"),
		object("IPPool", "second", "cidr: 10.10.0.0/16"), node("s-1", "192.0.2.10", "10.9.0.0/24"), service)
	scratch.Facts = []cluster.NodeFacts{{Node: "s-1", Links: []cluster.Link{{Name: "eth0", MTU: 1500,
		Addresses: []string{"192.0.2.10/24"}}}}}
	lines, got := copied(t, &cni.Copying{Original: original, Scratch: scratch,
		Plays: map[string]string{"node-1": "s-1", "node-2": "s-1"}})
	want := []string{
		`IPPool main {"cidr":"10.9.0.0/16","ipipMode":"Always","natOutgoing":true}`,
		`IPPool other {"cidr":"10.2.0.0/16","nodeSelector":"kubernetes.io/hostname == 's-1'"}`,
		`IPPool second {"cidr":"10.10.0.0/16","disabled":true}`,
		`FelixConfiguration default {"vxlanPort":4790}`,
		`FelixConfiguration node.s-1 {"logSeverityScreen":"Debug"}`,
		`BGPConfiguration default {"asNumber":64600,"nodeToNodeMeshEnabled":true}`,
		`IPAMConfig default {"strictAffinity":true}`,
		`ConfigMap calico-config {"other":"kept","veth_mtu":"1400"}`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	if len(got.Restart) != 1 || got.Restart[0].Name != "calico-node" {
		t.Errorf("restarts %v", got.Restart)
	}
	said := fmt.Sprint(got.Said, got.Lacks)
	for _, text := range []string{"with its range 10.9.0.0/16 instead of 10.1.0.0/16", "IPPool main: blockSize 28",
		"made with its own range 10.2.0.0/16", "{IPPool overlaps with 10.96.0.0/16 it overlaps the address 10.96.0.1 " +
			"of its Service", "part of 10.9.0.0/16 is free", "IPPool six it has no IPv4 range", "natOutgoingAddress",
		"vxlanMTU 1480",
		"node.node-2 node s-1 also stands for another node with different settings",
		"nodeToNodeMeshEnabled false BGPPeer rack is not in",
		"serviceClusterIPs"} {
		if !strings.Contains(said, text) {
			t.Errorf("%q is not said: %s", text, said)
		}
	}
	again := side(t, "1400", object("IPPool", "main", "cidr: 10.9.0.0/16, ipipMode: Always, natOutgoing: true"))
	unlike := map[string]int{}
	for _, s := range (calico.Driver{}).Settings(original, again, map[string]string{"node-1": "s-1"}) {
		if s.Original != s.Copy {
			unlike[s.Area]++
		}
	}
	// of main its block size, and three pools that are not there
	if fmt.Sprint(unlike) != "map[BGPConfigurations:3 FelixConfigurations:4 IPAM:1 IPPools:4 ranges of pods:1]" {
		t.Errorf("not alike: %v", unlike)
	}
	for _, s := range (calico.Driver{}).Settings(original, original, nil) {
		if s.Original != s.Copy {
			t.Errorf("of the same cluster: %+v", s)
		}
	}
}

// TestCopyRanges: with a network that is installed, a pool has its own range unless that overlaps what the scratch
// cluster has, or is outside of what kube-proxy there takes for the range of pods.
func TestCopyRanges(t *testing.T) {
	manifest, err := os.ReadFile("testdata/calico-vxlan-v3.31.0.yaml")
	if err != nil {
		t.Fatal(err)
	}
	one, two := object("IPPool", "a", "cidr: 10.1.0.0/16, blockSize: 28, vxlanMode: Always"),
		object("IPPool", "b", "cidr: 10.2.0.0/16")
	for name, c := range map[string]struct {
		pools   []string
		address string
		proxied string
		want    []string
		no      string
	}{
		"its own":           {pools: []string{one}, want: []string{"10.1.0.0/16"}},
		"a node":            {pools: []string{one}, address: "10.1.5.5", want: []string{"10.9.0.0/16"}},
		"kube-proxy":        {pools: []string{one}, proxied: "10.128.0.0/9", want: []string{"10.128.0.0/16"}},
		"within kube-proxy": {pools: []string{one}, proxied: "10.0.0.0/9", want: []string{"10.1.0.0/16"}},
		"two": {pools: []string{one, two}, proxied: "10.128.0.0/16", want: []string{"10.128.0.0/17",
			"10.128.128.0/17"}},
		"none free":       {pools: []string{one}, proxied: "10.96.0.0/28", no: "no part of 10.96.0.0/28 is free"},
		"no enabled pool": {pools: []string{one[:len(one)-1] + ", disabled: true}"}, no: "no enabled IPv4 pool"},
	} {
		address := c.address
		if address == "" {
			address = "192.0.2.10"
		}
		scratch := cnitest.Snapshot(t, cnitest.Documents(t, []byte(node("s-1", address, "10.9.0.0/24")+"\n---\n"+
			node("s-2", "192.0.2.11", "10.9.1.0/24")+"\n---\n"+service)))
		if c.address != "" {
			c.proxied = "10.9.0.0/16"
		}
		original := side(t, "1400", c.pools...)
		request := &cni.Copying{Original: original, Scratch: scratch, Proxied: c.proxied, Plays: map[string]string{},
			Ours: calico.Driver{}.Detect(original), Theirs: &cni.Installation{CNI: "calico"},
			Manifest: cnitest.Documents(t, manifest)}
		if c.no != "" {
			if _, err := (calico.Driver{}).Copy(request); err == nil || !strings.Contains(err.Error(), c.no) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		_, got := copied(t, request)
		var ranges []string
		config := false
		for _, o := range got.Objects {
			if o.GetKind() == "IPPool" {
				cidr, _, _ := unstructured.NestedString(o.Object, "spec", "cidr")
				ranges = append(ranges, cidr)
			}
			mtu, _, _ := unstructured.NestedString(o.Object, "data", "veth_mtu")
			config = config || mtu == "1400"
		}
		if !slices.Equal(ranges, c.want) || !config || len(got.Restart) > 0 {
			t.Errorf("%s: %v, want %v; %v", name, ranges, c.want, got)
		}
	}
}

// TestCopyOperator: an operator would revert the settings.
func TestCopyOperator(t *testing.T) {
	s := side(t, "0", object("IPPool", "main", "cidr: 10.1.0.0/16"))
	found := calico.Driver{}.Detect(s)
	found.Maker = &cni.Maker{}
	got, err := calico.Driver{}.Copy(&cni.Copying{Original: s, Scratch: s, Ours: found, Theirs: found})
	if err != nil || len(got.Objects) > 0 || len(got.Lacks) != 1 {
		t.Errorf("%v: %+v", err, got)
	}
}
