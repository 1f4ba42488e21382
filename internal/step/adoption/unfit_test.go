package adoption

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

func TestUnfit(t *testing.T) {
	orders := &step.Orders{Network: "Calico", Prefix: "cni.projectcalico.org/", Notes: []string{"podIP"}}
	for name, c := range map[string]struct {
		change func(*corev1.Node, *corev1.Pod)
		want   string
	}{
		"fit":          {func(*corev1.Node, *corev1.Pod) {}, ""},
		"Linux 6.2":    {kernel("6.2.0-39-generic"), ""},
		"Debian 12":    {kernel("6.1.0-18-amd64"), ""},
		"Ubuntu 22.04": {kernel("5.15.0-101-generic"), ""},
		"RHEL 9":       {kernel("5.14.0-427.el9.x86_64"), ""},
		"RHEL 8": {kernel("4.18.0-553.el8_10.x86_64"),
			"the kernel of its node (4.18.0-553.el8_10.x86_64) is older than Linux 5.10"},
		"a kernel without name": {kernel(""), "or unknown"},
		"two families": {func(_ *corev1.Node, p *corev1.Pod) {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: "fd00::7"})
		}, "two families"},
		"another node's range": {func(_ *corev1.Node, p *corev1.Pod) { p.Status.PodIP = "198.19.1.7" },
			"not in its node's range"},
		"a node without range": {func(n *corev1.Node, _ *corev1.Pod) { n.Spec.PodCIDR = "" },
			"not in its node's range"},
		"several interfaces": {note("k8s.v1.cni.cncf.io/networks"), "several interfaces"},
		"asks Calico": {note("cni.projectcalico.org/ipv4pools"),
			"ask Calico for something of their own (cni.projectcalico.org/ipv4pools)"},
		"noted by Calico": {note("cni.projectcalico.org/podIP"), ""},
		"limited":         {note("kubernetes.io/egress-bandwidth"), "bandwidth is limited"},
		"anything else":   {note("prometheus.io/scrape"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot := &cluster.Snapshot{Nodes: []corev1.Node{{}}}
			node, pod := &snapshot.Nodes[0], &corev1.Pod{}
			node.Name, node.Spec.PodCIDR, node.Status.NodeInfo.KernelVersion = "node-1", "198.19.0.0/24", "6.18.5"
			pod.Spec.NodeName, pod.Status.PodIP, pod.Status.PodIPs = "node-1", "198.19.0.7",
				[]corev1.PodIP{{IP: "198.19.0.7"}}
			c.change(node, pod)
			for _, flat := range []bool{false, true} {
				want := c.want
				if flat && want == "not in its node's range" {
					want = ""
				}
				if got := Unfit(snapshot, flat, orders)(pod); want == "" && got != "" || !strings.Contains(got, want) {
					t.Errorf("unfit for %q, want %q (flat: %t)", got, want, flat)
				}
			}
		})
	}
}

func kernel(version string) func(*corev1.Node, *corev1.Pod) {
	return func(n *corev1.Node, _ *corev1.Pod) { n.Status.NodeInfo.KernelVersion = version }
}

func note(key string) func(*corev1.Node, *corev1.Pod) {
	return func(_ *corev1.Node, p *corev1.Pod) { p.Annotations = map[string]string{key: "something"} }
}
