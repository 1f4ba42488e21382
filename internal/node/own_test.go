package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestKernelCleanRefuses: whoever wrote the task, what is no network's stays: the host's folders, interfaces and
// bridges.
func TestKernelCleanRefuses(t *testing.T) {
	if !alone(t) {
		return
	}
	n := newNode(t)
	flannelNode(t, n)
	write(t, n.Root, map[string]string{
		"etc/kubernetes/admin.conf": "secret", "var/lib/kubelet/config.yaml": "x", "srv/data/198.19.0.9": "x",
		"srv/data/customers.db": "x", "srv/addresses/198.19.0.9": "x", "srv/addresses/lock": "",
		"srv/addresses/last_reserved_ip.0": "x",
	})
	port := &netlink.Vxlan{LinkAttrs: linkAttrs("uplink"), VxlanId: 7, Port: 4790}
	addLink(t, port)
	outer := &netlink.Bridge{LinkAttrs: linkAttrs("outer")}
	addLink(t, outer)
	if err := netlink.LinkSetMaster(port, outer); err != nil {
		t.Fatal(err)
	}
	addLink(t, &netlink.Bridge{LinkAttrs: linkAttrs("pods")})
	for _, residue := range []step.Residue{
		{Paths: []string{"/etc/kubernetes"}}, {Paths: []string{"/var/lib/kubelet"}}, {Paths: []string{"/etc/kube*"}},
		{Paths: []string{"/etc/kubernetes/admin.conf"}}, {Paths: []string{"/srv/data"}}, {Paths: []string{"/etc"}},
		{Links: []string{"uplink"}}, {Links: []string{"outer"}}, {Links: []string{"eth0"}}, {Links: []string{"lo"}},
		{Annotations: []string{"a"}},
	} {
		if got, err := n.Do(t.Context(), step.VerbClean, args(t, residue)); err == nil {
			t.Errorf("%+v was removed: %+v", residue, got)
		}
	}
	for _, kept := range []string{"etc/kubernetes/admin.conf", "var/lib/kubelet/config.yaml",
		"srv/data/customers.db", "srv/data/198.19.0.9"} {
		if _, err := os.Stat(filepath.Join(n.Root, kept)); err != nil {
			t.Errorf("%s: %v", kept, err)
		}
	}
	links := sh(t, "", "ip", "-o", "link")
	for _, kept := range []string{"eth0", "uplink", "outer"} {
		if !strings.Contains(links, kept) {
			t.Errorf("%s is gone:\n%s", kept, links)
		}
	}
	own := step.Residue{Links: []string{"pods"}, Paths: []string{"/srv/addresses"}}
	if got := do(t, n, step.VerbClean, own); !got.Changed || residue(t, got).Count() != 0 {
		t.Errorf("a bridge of pods and a folder of host-local's, under names of the user's, stay: %+v", got)
	}
}
