package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// modules are those that networks need: encapsulations, and what rules are made of.
func modules() []string {
	return []string{"vxlan", "ipip", "geneve", "wireguard", "br_netfilter", "ip_set", "xt_set",
		"ip_tables", "nf_tables", "nf_conntrack"}
}

// host looks at what is neither links nor rules.
func (n *Node) host(ctx context.Context, host *cluster.Host, kernel string, args step.FactsArgs) error {
	sampled, err := n.load(ctx, args.Readings)
	if err != nil {
		return err
	}
	if host.Modules, err = n.modules(kernel); err != nil {
		return err
	}
	if host.BPF, err = n.bpf(); err != nil {
		return err
	}
	if host.Managers, err = n.managers(); err != nil {
		return err
	}
	more, err := n.firewalls(ctx)
	if err != nil {
		return err
	}
	host.Filters = append(host.Filters, more...)
	if host.Sysctls, err = n.sysctls(); err != nil {
		return err
	}
	host.Paths = measure(ctx, args.Peers)
	if host.Load, err = sampled(ctx); err != nil {
		return err
	}
	host.Clock, err = now()
	return err
}

// sysctls reads those that networks set.
func (n *Node) sysctls() (map[string]string, error) {
	values := map[string]string{}
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding", "net.ipv4.conf.all.arp_ignore",
		"net.ipv4.conf.all.arp_announce",
		"net.netfilter.nf_conntrack_tcp_be_liberal"} {
		text, err := os.ReadFile(filepath.Join(n.Sys, strings.ReplaceAll(name, ".", "/")))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		values[name] = strings.TrimSpace(string(text))
	}
	return values, nil
}

func now() (cluster.Clock, error) {
	var state unix.Timex
	if _, err := unix.Adjtimex(&state); err != nil {
		return cluster.Clock{}, fmt.Errorf("ask for the clock's state: %w", err)
	}
	return cluster.Clock{At: time.Now().UTC(), Unsynchronised: state.Status&unix.STA_UNSYNC != 0}, nil
}

// modules says of each module whether the kernel has it, or could.
func (n *Node) modules(kernel string) (map[string]string, error) {
	found := map[string]string{}
	dir := filepath.Join(n.Root, "lib/modules", kernel)
	for _, source := range []struct{ file, state string }{
		{filepath.Join(dir, "modules.dep"), "loadable"},
		{filepath.Join(dir, "modules.builtin"), "built-in"},
		{filepath.Join(filepath.Dir(n.Sys), "modules"), "loaded"},
	} {
		text, err := os.ReadFile(source.file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for kernel modules: %w", err)
		}
		if source.state == "loadable" {
			for _, name := range modules() {
				found[name] = "absent"
			}
		}
		for line := range strings.Lines(string(text)) {
			first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			name, _, _ := strings.Cut(filepath.Base(strings.TrimSuffix(first, ":")), ".ko")
			if name = strings.ReplaceAll(name, "-", "_"); slices.Contains(modules(), name) {
				found[name] = source.state
			}
		}
	}
	return found, nil
}

// bpf asks the kernel for what Cilium's programs need. Without rights, the kernel refuses the call for another reason.
func (n *Node) bpf() (*cluster.BPF, error) {
	if !n.exists("sys/kernel") {
		return nil, nil // nothing is known
	}
	found := &cluster.BPF{Types: n.exists("sys/kernel/btf/vmlinux")}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_GET_NEXT_ID, 0, 0)
	found.Syscall = errno != unix.ENOSYS
	text, err := os.ReadFile(filepath.Join(n.Root, "sys/kernel/security/lockdown"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return found, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the kernel's lockdown mode: %w", err)
	}
	found.Lockdown = lockdown(string(text))
	return found, nil
}

// lockdown picks the mode in brackets, as in "none [integrity] confidentiality"; empty if there is none.
func lockdown(text string) string {
	for word := range strings.FieldsSeq(text) {
		mode, opens := strings.CutPrefix(word, "[")
		mode, closes := strings.CutSuffix(mode, "]")
		if opens && closes && slices.Contains([]string{"none", "integrity", "confidentiality"}, mode) {
			return mode
		}
	}
	return ""
}

// managers finds systemd-networkd and NetworkManager, by what they keep in /run, and how they are set.
func (n *Node) managers() ([]cluster.LinkManager, error) {
	var found []cluster.LinkManager
	if n.exists("run/systemd/netif/state") {
		settings, err := n.settings("systemd/networkd.conf", "systemd/networkd.conf.d")
		if err != nil {
			return nil, err
		}
		kept := no(settings["ManageForeignRoutes"]) && no(settings["ManageForeignRoutingPolicyRules"])
		found = append(found, cluster.LinkManager{Name: "systemd-networkd", Foreign: !kept})
	}
	if n.exists("run/NetworkManager") {
		settings, err := n.settings("NetworkManager/NetworkManager.conf", "NetworkManager/conf.d")
		if err != nil {
			return nil, err
		}
		manager := cluster.LinkManager{Name: "NetworkManager"}
		for entry := range strings.FieldsFuncSeq(settings["unmanaged-devices"],
			func(r rune) bool { return r == ';' || r == ',' }) {
			if name, is := strings.CutPrefix(strings.TrimSpace(entry), "interface-name:"); is {
				manager.Unmanaged = append(manager.Unmanaged, name)
			}
		}
		found = append(found, manager)
	}
	return found, nil
}

func (n *Node) exists(name string) bool {
	_, err := os.Stat(filepath.Join(n.Root, name))
	return err == nil
}

// no is how systemd reads a refusal.
func no(value string) bool {
	return slices.Contains([]string{"no", "n", "false", "f", "off", "0"}, strings.ToLower(value))
}

// settings reads a configuration file and the folder next to it as these daemons do: a later file's keys count, and of
// two files of one name that of /etc before that of /run and /usr/lib.
func (n *Node) settings(file, folder string) (map[string]string, error) {
	files := map[string]string{}
	all := map[string]string{}
	for _, base := range []string{"usr/lib", "run", "etc"} {
		if err := n.readSettings(filepath.Join(base, file), all); err != nil {
			return nil, err
		}
		inside, err := names(filepath.Join(n.Root, base, folder))
		if err != nil {
			return nil, err
		}
		for _, name := range inside {
			if strings.HasSuffix(name, ".conf") {
				files[name] = filepath.Join(base, folder, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := n.readSettings(files[name], all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// readSettings takes the keys of an INI file, whatever their section; a key that ends in + adds to what is there.
func (n *Node) readSettings(name string, into map[string]string) error {
	file, err := os.Open(filepath.Join(n.Root, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read a configuration: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		key, value, ok := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		if !ok || strings.HasPrefix(key, "#") || strings.HasPrefix(key, ";") {
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if more, adds := strings.CutSuffix(key, "+"); adds {
			key, value = more, into[more]+";"+value
		}
		into[key] = value
	}
	return lines.Err()
}

// countRules is how many rules there are in all tables.
func countRules(tables []table) int {
	count := 0
	for _, t := range tables {
		count += len(t.rules)
	}
	return count
}

// inputFilters finds an INPUT that takes nothing but what a rule allows.
func inputFilters(b backend, tables []table) []string {
	var found []string
	for _, t := range tables {
		if t.name != "filter" {
			continue
		}
		for _, c := range t.chains {
			if c.name == "INPUT" && c.policy == "DROP" {
				found = append(found, fmt.Sprintf("the policy of INPUT is DROP (%s)", b.program("")))
			}
		}
		for _, r := range t.rules {
			if target := r.target(); r.chain == "INPUT" && (target == "DROP" || target == "REJECT") &&
				strings.HasPrefix(r.spec, "-j ") {
				found = append(found, fmt.Sprintf("a rule of INPUT takes %s for all that is left (%s)",
					target, b.program("")))
			}
		}
	}
	return found
}

// firewalls finds firewalld, ufw, and tables of nftables' own that drop what comes in.
func (n *Node) firewalls(ctx context.Context) ([]string, error) {
	var found []string
	if n.exists("run/firewalld.pid") {
		found = append(found, "firewalld runs")
	}
	ufw := map[string]string{}
	if err := n.readSettings("etc/ufw/ufw.conf", ufw); err != nil {
		return nil, err
	}
	if strings.EqualFold(ufw["ENABLED"], "yes") {
		found = append(found, "ufw is enabled")
	}
	text, err := n.Commands.run(ctx, "", "nft", "-j", "list", "chains")
	if errors.Is(err, errAbsent) {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	chains, err := droppingChains(text)
	return append(found, chains...), err
}

// droppingChains are base chains at the input that drop by default. Those of iptables-nft are told by inputFilters.
func droppingChains(text string) ([]string, error) {
	var ruleset struct {
		NFTables []struct {
			Chain *struct{ Family, Table, Name, Hook, Policy string }
		}
	}
	if err := json.Unmarshal([]byte(text), &ruleset); err != nil {
		return nil, fmt.Errorf("read the nft chains: %w", err)
	}
	var found []string
	for _, entry := range ruleset.NFTables {
		if c := entry.Chain; c != nil && c.Hook == "input" && c.Policy == "drop" && c.Name != "INPUT" {
			found = append(found, fmt.Sprintf("the chain %s of the nft table %s %s drops by default",
				c.Name, c.Family, c.Table))
		}
	}
	return found, nil
}
