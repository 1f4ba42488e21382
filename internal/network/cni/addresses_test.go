package cni_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// TestAddressesOf: what pods have in a node's range, and what the records of a pool say, is in use; the fullest range
// comes first.
func TestAddressesOf(t *testing.T) {
	pod := func(node, ip string, phase corev1.PodPhase, host bool) corev1.Pod {
		return corev1.Pod{Spec: corev1.PodSpec{NodeName: node, HostNetwork: host},
			Status: corev1.PodStatus{Phase: phase, PodIPs: []corev1.PodIP{{IP: ip}, {IP: "no address"}}}}
	}
	node := func(name, one string, more ...string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.NodeSpec{PodCIDR: one, PodCIDRs: more}}
	}
	snapshot := &cluster.Snapshot{
		Nodes: []corev1.Node{node("a", "10.1.0.0/29"), node("b", "10.1.0.8/29", "10.1.0.8/29", "fd00::/64"),
			node("c", "none"), node("d", "")},
		Pods: []corev1.Pod{pod("b", "10.1.0.10", corev1.PodRunning, false),
			pod("b", "10.1.0.11", corev1.PodRunning, false),
			pod("b", "10.1.0.12", corev1.PodSucceeded, false), pod("b", "10.1.0.13", corev1.PodRunning, true),
			pod("a", "10.1.0.14", corev1.PodRunning, false), pod("a", "10.2.0.1", corev1.PodRunning, false)},
	}
	all := cni.AddressesOf(snapshot, []*cni.Installation{
		{CNI: "bridge", Capabilities: cni.Capabilities{CIDRSource: "node", KeptFirst: 2, KeptLast: 1}},
		{CNI: "one", As: "Another", PodCIDRs: []string{"10.2.0.0/30", "10.2.0.0/1", "x"},
			Capabilities: cni.Capabilities{CIDRSource: "pool"}},
		{CNI: "two", PodCIDRs: []string{"10.3.0.7/30"}, Used: map[string]int64{"10.3.0.4/30": 9},
			Capabilities: cni.Capabilities{CIDRSource: "pool"}},
	})
	var text strings.Builder
	if err := cluster.WriteAddresses(&text, all); err != nil {
		t.Fatal(err)
	}
	want := `ADDRESSES OF  RANGE        USABLE      IN USE  LEFT        COUNTED BY
two           10.3.0.4/30  4           9       0           its IPAM
bridge on b   10.1.0.8/29  5           2       3           pods
Another       10.2.0.0/30  4           1       3           pods
Another       0.0.0.0/1    2147483648  4       2147483644  pods
bridge on a   10.1.0.0/29  5           0       5           pods
`
	if text.String() != want {
		t.Errorf("%s\nwant\n%s", text.String(), want)
	}
	text.Reset()
	if err := cluster.WriteAddresses(&text, make([]cluster.Addresses, 22)); err != nil ||
		!strings.HasSuffix(text.String(), "\n2 ranges with a smaller share in use are not shown\n") {
		t.Errorf("%s, %v", text.String(), err)
	}
}
