package scenario

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// TestAlike: what differs between two nodes that are alike goes, and what a network leaves does not.
func TestAlike(t *testing.T) {
	lab := spec.Lab{Name: "a", Index: 1}
	for line, want := range map[string]string{
		"link cali0123456789a": "link cali*",
		"link vethwepl0123456": "link vethwepl0123456",
		"link flannel.1":       "link flannel.1",
		"route4 198.19.33.0/24 dev cni0 proto kernel scope link src 198.19.33.1": "route4 POD/24 dev cni0 " +
			"proto kernel scope link src POD",
		"route4 blackhole 198.19.48.64/26 proto 80":               "route4 blackhole NEW-POD/26 proto 80",
		"route4 198.19.34.0/24 via 198.18.8.12 dev eth0":          "route4 POD/24 via NODE dev eth0",
		"route4 198.19.50.1 dev vxlan.calico scope link mtu 1450": "",
		"route4 default via 198.18.8.1 dev eth0":                  "route4 default via 198.18.8.1 dev eth0",
		"iptables-nft filter chain cali-fw-cali0123456789a -":     "iptables-nft filter cali-*",
		"iptables-nft nat -A KUBE-SEP-ABCDEFGHIJKLMNOP -j DNAT":   "iptables-nft nat KUBE-SEP-*",
		"iptables-nft filter -A KUBE-POD-FW-ABCDEFGHIJKLMNOP -j ACCEPT": "iptables-nft " +
			"filter -A KUBE-POD-FW-ABCDEFGHIJKLMNOP -j ACCEPT",
		"iptables-nft nat -A POSTROUTING -s 198.19.32.0/20 -j FLANNEL-POSTRTG": "iptables-nft " +
			"nat -A POSTROUTING -s POD/20 -j FLANNEL-POSTRTG",
		"ipset cali40s:abc_-DEF":                                             "ipset cali40*",
		"ipset weave-abc":                                                    "ipset weave-abc",
		"sysctl net/ipv4/conf/cali0123456789a/rp_filter:1":                   "",
		"sysctl net/ipv4/conf/all/rp_filter:2":                               "sysctl net/ipv4/conf/all/rp_filter:2",
		"file /var/lib/cni/flannel/" + strings.Repeat("0123456789abcdef", 4): "file /var/lib/cni/flannel/NUMBER",
		"mount /run/netns/cni-01234567-89ab-cdef-0123-456789abcdef nsfs":     "",
		"nft table ip raw":                                                   "",
		"nft table ip calico":                                                "nft table ip calico",
		"iptables-nft raw chain OUTPUT ACCEPT":                               "",
		"iptables-nft filter chain FORWARD DROP":                             "iptables-nft filter chain FORWARD DROP",
		"process weaver":                                                     "process weaver",
		"process coredns":                                                    "",
		"file /etc/a-node-2.conf":                                            "file /etc/NODE.conf",
	} {
		if got := alike(lab, line); got != want {
			t.Errorf("%q becomes %q, not %q", line, got, want)
		}
	}
}
