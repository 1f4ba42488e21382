package scenario

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnCilium: a link of the former network that is left is no success.
func TestOnCilium(t *testing.T) {
	for links, want := range map[string]bool{
		"eth0 cilium_host cilium_vxlan lxc12ab":       true,
		"eth0 cilium_host lxc12ab":                    false,
		"eth0 cilium_vxlan cali12ab":                  false,
		"eth0 cilium_vxlan vxlan.calico":              false,
		"eth0 cilium_vxlan flannel.1":                 false,
		"eth0 cilium_vxlan cni0 cni0/brif/veth12ab":   false,
		"eth0 cilium_vxlan my-flannel.1 vxlan-calico": true,
	} {
		root := t.TempDir()
		made := []string{filepath.Join(root, "etc/cni/net.d/05-cilium.conflist")}
		for _, link := range strings.Fields(links) {
			made = append(made, filepath.Join(root, "sys/class/net", link))
		}
		for _, dir := range made {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		script := strings.NewReplacer("/sys/class", root+"/sys/class", "/etc/cni", root+"/etc/cni").Replace(onCilium)
		if err := exec.Command("sh", "-c", script).Run(); (err == nil) != want {
			t.Errorf("a node with %s: %v, want success: %v", links, err, want)
		}
	}
}
