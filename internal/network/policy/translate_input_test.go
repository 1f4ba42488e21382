package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// TestTranslateUnknownAddresses: without pods, pools and nodes it is not known what a range contains. That is said, and
// pods and nodes are not left out silently.
func TestTranslateUnknownAddresses(t *testing.T) {
	const shop = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}"
	bare := Profile{CNI: "calico", Dialect: Calico}
	pool := Profile{CNI: "calico", Dialect: Calico, Tunnelled: true,
		Pods: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}}
	for _, test := range []struct {
		name    string
		profile Profile
		rule    string
		want    string // of the remark; empty for none
	}{
		{"all", bare, "{action: Allow, source: {nets: [0.0.0.0/0]}}", "no addresses of pods and nodes"},
		{"a part", bare, "{action: Deny, source: {nets: [10.0.0.0/8]}}", "no addresses of pods and nodes"},
		{"but", bare, "{action: Allow, source: {notNets: [10.0.0.0/8]}}", "no addresses of pods and nodes"},
		{"pods", bare, "{action: Allow, source: {selector: app == 'a', nets: [10.0.0.0/8]}}", "no addresses of pods,"},
		{"all of a family, also of the pod itself", bare, "{action: Allow, ipVersion: 4}", "which pods these are"},
		{"no nodes", pool, "{action: Allow, source: {nets: [10.0.0.0/8]}}", "no addresses of nodes,"},
		{"no nodes matter for the pod itself", pool, "{action: Allow, destination: {nets: [10.0.0.0/8]}}", ""},
		{"no ranges", bare, "{action: Allow, source: {selector: app == 'a'}}", ""},
		{"no addresses", bare, "{action: Allow, source: {nets: [10.0.0.0/8], notNets: [10.0.0.0/8]}}", ""},
	} {
		got := Translate(snapshotOf(t, shop, calicoText("NetworkPolicy", "c",
			"{selector: app == 'web', ingress: ["+test.rule+", {action: Allow, protocol: TCP}]}")), test.profile)
		var said []string
		for _, r := range got.Untranslated {
			said = append(said, r.Text+"; hint: "+r.Hint)
		}
		all := strings.Join(said, "\n")
		if (len(said) > 0) != (test.want != "") || !strings.Contains(all, test.want) ||
			test.want != "" && !strings.Contains(all, "theseus snapshot") {
			t.Errorf("%s: %q, want %q", test.name, said, test.want)
		}
	}
}

// TestJudgeNothing: without pods, nothing is judged, and the judgement says so.
func TestJudgeNothing(t *testing.T) {
	target := calicoPods
	target.CNI, target.Dialect = "cilium", Cilium
	for text, want := range map[string]int{"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}": 0, town: 3} {
		snapshot := snapshotOf(t, text)
		if j := Translate(snapshot, calicoPods).Judge(snapshot, calicoPods, target); j.Pods != want {
			t.Errorf("%d pods, want %d", j.Pods, want)
		}
	}
}

// TestTranslateAgain: a policy of an earlier translation whose source is gone stays in force. It is listed, and the
// judge knows it.
func TestTranslateAgain(t *testing.T) {
	target := calicoPods
	target.CNI, target.Dialect = "cilium", Cilium
	first := snapshotOf(t, town,
		calicoText("NetworkPolicy", "a", "{selector: app == 'web', ingress: [{action: Allow}]}"),
		calicoText("GlobalNetworkPolicy", "g", "{selector: app == 'db', ingress: [{action: Allow}]}"))
	made := Translate(first, calicoPods)
	if len(made.Objects) != 2 || len(made.Left) > 0 {
		t.Fatalf("%+v", made)
	}
	// The same again: nothing is left.
	first.Other = append(first.Other, made.Objects...)
	if again := Translate(first, calicoPods); len(again.Left) > 0 {
		t.Errorf("%+v", again.Left)
	}
	// Renamed, and another rule; the global one is removed.
	second := snapshotOf(t, town, calicoText("NetworkPolicy", "b", "{selector: app == 'web', ingress: [{action: "+
		"Allow, source: {selector: app == 'db'}}]}"))
	second.Other = append(second.Other, made.Objects...)
	again := Translate(second, calicoPods)
	var hints []string
	for _, r := range again.Left {
		hints = append(hints, r.Hint)
	}
	want := []string{"kubectl delete ciliumclusterwidenetworkpolicy g", "kubectl delete ciliumnetworkpolicy -n shop a"}
	if !slices.Equal(hints, want) {
		t.Errorf("%q, want %q", hints, want)
	}
	j := again.Judge(second, calicoPods, target)
	if !slices.ContainsFunc(j.Differences, func(d Difference) bool { return d.Change == Opens }) {
		t.Errorf("what the old policy allows: %+v", j.Differences)
	}
	if t.Failed() {
		text, _ := yaml.Marshal(again.Objects)
		t.Logf("%s", text)
	}
}

// TestAllAddresses: all addresses of pods and nodes count, for the translation and for what is outside.
func TestAllAddresses(t *testing.T) {
	snapshot := &cluster.Snapshot{Pods: []corev1.Pod{{}}, Nodes: []corev1.Node{{}}}
	pod, node := &snapshot.Pods[0], &snapshot.Nodes[0]
	pod.Namespace, pod.Name = "shop", "web"
	pod.Status.PodIP, pod.Status.PodIPs = "10.0.0.1", []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
	pod.Status.HostIP, pod.Status.HostIPs = "192.168.0.1", []corev1.HostIP{{IP: "192.168.0.1"}, {IP: "fd01::1"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.0.2"},
		{Type: corev1.NodeExternalIP, Address: "203.0.113.2"}, {Type: corev1.NodeHostName, Address: "198.51.100.1"}}
	policies := snapshotOf(t, calicoText("NetworkPolicy", "c",
		"{selector: all(), ingress: [{action: Allow, ipVersion: 4}]}"))
	snapshot.Other = policies.Other
	// A part of the pod's addresses is of the other family.
	if got := Translate(snapshot, calicoNow).Untranslated; len(got) != 1 ||
		!strings.Contains(got[0].Text, "some of the pods") {
		t.Errorf("%+v", got)
	}
	m := Build(snapshot, calicoNow, ciliumNow)
	single := func(text string) addresses {
		a := netip.MustParseAddr(text)
		return addressesOf(netip.PrefixFrom(a, a.BitLen()))
	}
	for _, text := range []string{"10.0.0.1", "fd00::1", "192.168.0.1", "fd01::1", "192.168.0.2", "203.0.113.2"} {
		m.beyond = []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(text), netip.MustParseAddr(text).BitLen())}
		for _, r := range m.outside() {
			if (addresses{{r.first, r.first}}).holds(single(text)) == yes {
				t.Errorf("%s counts as outside of the cluster", text)
			}
		}
	}
	m.beyond = []netip.Prefix{netip.MustParsePrefix("198.51.100.1/32")}
	if !slices.ContainsFunc(m.outside(), func(r addressRange) bool { return r.first.String() == "198.51.100.1" }) {
		t.Error("a host name counts as an address of the cluster")
	}
}
