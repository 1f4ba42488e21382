package node

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/cluster"
)

func TestModules(t *testing.T) {
	n := newNode(t)
	n.Sys = filepath.Join(n.Root, "proc/sys")
	if got, err := n.modules("6.1"); err != nil || len(got) != 0 {
		t.Errorf("without any file: %v, %v", got, err)
	}
	write(t, n.Root, map[string]string{
		"proc/modules": "br_netfilter 32768 0 - Live 0x0\nbridge 1 1 br_netfilter, Live 0x0\n",
		"lib/modules/6.1/modules.dep": "kernel/drivers/net/vxlan/vxlan.ko.zst: " +
			"kernel/net/ipv4/udp_tunnel.ko.zst\nkernel/net/netfilter/ipset/ip_set.ko.xz:\n" +
			"kernel/net/bridge/br_netfilter.ko: x\n",
		"lib/modules/6.1/modules.builtin":  "kernel/net/netfilter/nf_tables.ko\nkernel/net/netfilter/nf-conntrack.ko\n",
		"lib/modules/5.10/modules.builtin": "kernel/net/ipv4/ipip.ko\n",
	})
	got, err := n.modules("6.1")
	want := map[string]string{"vxlan": "loadable", "ip_set": "loadable", "br_netfilter": "loaded",
		"nf_tables": "built-in", "nf_conntrack": "built-in", "ipip": "absent", "geneve": "absent",
		"wireguard": "absent", "xt_set": "absent", "ip_tables": "absent"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func TestBPF(t *testing.T) {
	for text, want := range map[string]string{"[none] integrity confidentiality\n": "none",
		"none [integrity] confidentiality\n": "integrity", "none integrity [confidentiality]\n": "confidentiality",
		"": "", "none integrity": "", "[other] none": "", "[[none]]": ""} {
		if got := lockdown(text); got != want {
			t.Errorf("%q is the mode %q, not %q", text, got, want)
		}
	}
	n := newNode(t)
	if got, err := n.bpf(); got != nil || err != nil {
		t.Errorf("without /sys: %+v, %v", got, err)
	}
	write(t, n.Root, map[string]string{"sys/kernel/x": ""})
	if got, err := n.bpf(); err != nil || !reflect.DeepEqual(got, &cluster.BPF{Syscall: true}) {
		t.Errorf("without types: %+v, %v", got, err)
	}
	write(t, n.Root, map[string]string{"sys/kernel/btf/vmlinux": "x",
		"sys/kernel/security/lockdown": "none [integrity] confidentiality\n"})
	if got, err := n.bpf(); err != nil ||
		!reflect.DeepEqual(got, &cluster.BPF{Syscall: true, Types: true, Lockdown: "integrity"}) {
		t.Errorf("with all: %+v, %v", got, err)
	}
}

func FuzzLockdown(f *testing.F) {
	f.Add("none [integrity] confidentiality\n")
	f.Fuzz(func(t *testing.T, text string) {
		if mode := lockdown(text); mode != "" && !strings.Contains(text, "["+mode+"]") {
			t.Errorf("%q is the mode %q", text, mode)
		}
	})
}

func TestManagers(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  []cluster.LinkManager
	}{
		"none": {map[string]string{"etc/systemd/networkd.conf": "[Network]\n"}, nil},
		"networkd as it is": {map[string]string{"run/systemd/netif/state": ""},
			[]cluster.LinkManager{{Name: "systemd-networkd", Foreign: true}}},
		"networkd, half set": {map[string]string{"run/systemd/netif/state": "",
			"etc/systemd/networkd.conf": "[Network]\nManageForeignRoutes=no\n"},
			[]cluster.LinkManager{{Name: "systemd-networkd", Foreign: true}}},
		"networkd, set": {map[string]string{"run/systemd/netif/state": "",
			"usr/lib/systemd/networkd.conf.d/10-a.conf": "[Network]\nManageForeignRoutes=yes\n",
			"etc/systemd/networkd.conf.d/10-a.conf": "[Network]\n# no\nManageForeignRoutes = no\n" +
				"ManageForeignRoutingPolicyRules=false\n"}, []cluster.LinkManager{{Name: "systemd-networkd"}}},
		"NetworkManager": {map[string]string{"run/NetworkManager/x": "",
			"etc/NetworkManager/conf.d/calico.conf": "[keyfile]\n" +
				"unmanaged-devices=interface-name:cali*;interface-name:tunl*\n",
			"etc/NetworkManager/conf.d/more.conf": "[keyfile]\n" +
				"unmanaged-devices+=mac:00:11;interface-name:vxlan.calico\n"},
			[]cluster.LinkManager{{Name: "NetworkManager", Unmanaged: []string{"cali*", "tunl*", "vxlan.calico"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			write(t, n.Root, test.files)
			got, err := n.managers()
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}
