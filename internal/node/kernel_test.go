package node

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// childMark marks the child process that runs one test in network and mount namespaces of its own. Its value is
// an empty folder.
const childMark = "THESEUS_TEST_NETNS"

// oneLost begins a line about the only datagram that a test lost, of thousands: a receiver that does not run for some
// milliseconds, on a busy machine, loses one, too.
const oneLost = "ONE DATAGRAM LOST"

// aloneTries is how often a test runs that loses one datagram. It fails if that happens each time.
const aloneTries = 3

// ones counts the lines of oneLost in this process.
var ones atomic.Int64

// loses reports the loss of datagrams.
func loses(t *testing.T, lost int, format string, args ...any) {
	t.Helper()
	if lost == 1 && ones.Add(1) == 1 {
		t.Logf(oneLost+": "+format, args...)
		return
	}
	t.Errorf(format, args...)
}

// alone runs the calling test again in a child process with a new network namespace, and reports true in
// that child. A namespace belongs to a thread, and Go moves goroutines between threads whenever it likes:
// locking one thread would still let a command or a netlink socket start from another one and reach the
// machine's own network. A process that is born in the namespace has no thread outside it.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(childMark) != "" {
		return true
	}
	for tries := 1; strings.Contains(inChild(t), oneLost); tries++ {
		if tries == aloneTries {
			t.Fatalf("a datagram was lost in each of %d runs", tries)
		}
	}
	return false
}

// inChild runs the calling test in a child process, in which it must pass, and returns what that prints.
func inChild(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	child := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$",
		"-test.v", "-test.count=1")
	child.Env = append(os.Environ(), childMark+"="+t.TempDir())
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Pdeathsig: syscall.SIGKILL}
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in a network namespace of its own (this needs root): %v\n%s", err, out)
	}
	t.Logf("%s", out)
	return string(out)
}

func newNode(t *testing.T) *Node {
	t.Helper()
	return &Node{Name: "node-1", Root: t.TempDir(), Sys: "/proc/sys", Commands: NewCommands(4, 20*time.Second)}
}

// do runs a verb that must succeed.
func do(t *testing.T, n *Node, verb string, argument any) Answer {
	t.Helper()
	got, err := n.Do(t.Context(), verb, args(t, argument))
	if err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	return got
}

// sh runs a program that must succeed, with input.
func sh(t *testing.T, input string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdin = strings.NewReader(input)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, errs.String())
	}
	return string(out)
}

func addLink(t *testing.T, link netlink.Link) {
	t.Helper()
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatalf("add %s: %v", link.Attrs().Name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatalf("up %s: %v", link.Attrs().Name, err)
	}
}

func linkAttrs(name string) netlink.LinkAttrs {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return attrs
}

// flannelNode makes the kernel and the files look as on a node of flannel with kube-router.
func flannelNode(t *testing.T, n *Node) {
	t.Helper()
	addLink(t, &netlink.Bridge{LinkAttrs: linkAttrs("eth0")}) // stands for the node's own interface
	addLink(t, &netlink.Bridge{LinkAttrs: linkAttrs("cni0")})
	addLink(t, &netlink.Vxlan{LinkAttrs: linkAttrs("flannel.1"), VxlanId: 1, Port: 8472, Learning: false})
	addLink(t, &netlink.Vxlan{LinkAttrs: linkAttrs("vxlan.calico"), VxlanId: 4096, Port: 4789, Learning: false})
	for _, command := range []string{
		"ip address add 198.18.0.11/18 dev eth0",
		"ip address add 198.19.0.1/24 dev cni0",
		"ip address add 198.19.0.0/32 dev flannel.1",
		"ip route add 198.19.1.0/24 via 198.19.1.0 dev flannel.1 onlink",
		"ip route add 198.19.16.64/26 dev vxlan.calico",
		"ip route add default via 198.18.0.1",
		"ip route add blackhole 198.19.2.0/24",
		"ip route add blackhole 198.19.16.0/26",
		"ip route add unreachable 198.19.3.0/24 table 77",
		"ipset create KUBE-DST-3YNVZWWGX3UQQ4VQ hash:ip",
		"ipset create mine hash:ip",
		"nft add table ip flannel-ipv4",
		"nft add table inet mine",
	} {
		sh(t, "", strings.Fields(command)...)
	}
	for _, kind := range []string{"nft", "legacy"} {
		sh(t, load(t, "flannel.save"), "iptables-"+kind+"-restore")
	}
	write(t, n.Root, map[string]string{
		filepath.Join(confDir, active): conf, filepath.Join(confDir, flannels): conf,
		"opt/cni/bin/flannel": "x", "opt/cni/bin/portmap": "x",
		"run/flannel/subnet.env": "x", "var/lib/cni/flannel/id": "x", "var/lib/cni/networks/cbr0/198.19.0.2": "x",
	})
}

func residue(t *testing.T, a Answer) step.Residue {
	t.Helper()
	var found step.Inventory
	if err := json.Unmarshal(a.Result, &found); err != nil {
		t.Fatal(err)
	}
	return found.Found
}

func TestKernelClean(t *testing.T) {
	if !alone(t) {
		return
	}
	n := newNode(t)
	flannelNode(t, n)
	wanted := flannelResidue
	wanted.NFTables = []string{"ip flannel-ipv4"}

	want := step.Residue{
		Links: []string{"cni0", "flannel.1"},
		Chains: []string{"FLANNEL-FWD", "FLANNEL-POSTRTG", "KUBE-NWPLCY-DEFAULT", "KUBE-POD-FW-Q7BYLJWXJKZ2ITRW",
			"KUBE-ROUTER-FORWARD", "KUBE-ROUTER-INPUT", "KUBE-ROUTER-OUTPUT"},
		RuleComments: []string{"flanneld masq"},
		NFTables:     []string{"ip flannel-ipv4"},
		IPSets:       []string{"KUBE-DST-3YNVZWWGX3UQQ4VQ"},
		Routes:       []string{"198.19.0.0/24", "198.19.1.0/24", "198.19.2.0/24", "198.19.3.0/24"},
		ConfFiles:    []string{flannels},
		Binaries:     []string{"flannel"},
		Paths:        []string{"/run/flannel", "/var/lib/cni/flannel"},
	}
	if diff := cmp.Diff(want, residue(t, do(t, n, step.VerbInventory, wanted))); diff != "" {
		t.Fatalf("inventory (-want +got):\n%s", diff)
	}
	foreign := foreignRules(t, n)

	got := do(t, n, step.VerbClean, wanted)
	if !got.Changed || residue(t, got).Count() != 0 {
		t.Errorf("clean: %+v", got)
	}
	if diff := cmp.Diff(foreign, foreignRules(t, n)); diff != "" {
		t.Errorf("rules of others (-before +after):\n%s", diff)
	}
	links := sh(t, "", "ip", "-o", "link")
	routes := sh(t, "", "ip", "route", "show", "table", "all")
	for _, kept := range []string{"eth0", "vxlan.calico"} {
		if !strings.Contains(links, kept) {
			t.Errorf("%s is gone:\n%s", kept, links)
		}
	}
	for _, kept := range []string{"default via 198.18.0.1", "198.19.16.64/26", "blackhole 198.19.16.0/26"} {
		if !strings.Contains(routes, kept) {
			t.Errorf("the route %s is gone:\n%s", kept, routes)
		}
	}
	if diff := cmp.Diff("mine\n", sh(t, "", "ipset", "list", "-name")); diff != "" {
		t.Errorf("ipsets (-want +got):\n%s", diff)
	}
	if tables := sh(t, "", "nft", "list", "tables"); !strings.Contains(tables, "inet mine") ||
		strings.Contains(tables, "flannel") {
		t.Errorf("nft tables:\n%s", tables)
	}
	if diff := cmp.Diff(map[string]string{active: conf}, readAll(t, filepath.Join(n.Root, confDir))); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	if again := do(t, n, step.VerbClean, wanted); again.Changed {
		t.Errorf("clean again changed something: %s", again.Message)
	}
}

// TestKernelCleanRouted: what a routing agent leaves outside of chains of its own goes: a rule that matches on its
// sets, rules known by their comments, and the policy routing rules of its range; and nobody else's.
func TestKernelCleanRouted(t *testing.T) {
	if !alone(t) {
		return
	}
	n := newNode(t)
	wanted := step.Residue{
		RuleLinks: []string{"kube-bridge"}, IPSets: []string{"kube-router-*"},
		RuleSets: []string{"kube-router-pod-subnets", "kube-router-node-ips"},
		Routes:   []string{"198.19.0.0/20"}, Rules: []string{"77 198.19.0.0/20"},
	}
	for _, set := range []string{"kube-router-pod-subnets", "kube-router-node-ips", "mine", "mine2"} {
		sh(t, "", "ipset", "create", set, "hash:net")
	}
	for _, source := range []string{"198.19.1.0/24", "198.19.2.0/24", "10.0.0.0/8"} {
		sh(t, "", "ip", "rule", "add", "from", source, "lookup", "77")
	}
	sh(t, "", "ip", "rule", "add", "from", "198.19.3.0/24", "lookup", "78")
	// with the same source and table as one of the agent's, and before it
	sh(t, "", "ip", "rule", "add", "from", "198.19.1.0/24", "ipproto", "tcp", "lookup", "77", "priority", "100")
	sh(t, "", "ip", "rule", "add", "from", "198.19.4.0/24", "iif", "lo", "lookup", "77")
	for _, rule := range []string{
		"-t nat -A POSTROUTING -m set --match-set kube-router-pod-subnets src -m set ! --match-set " +
			"kube-router-pod-subnets dst -m set ! --match-set kube-router-node-ips dst -j MASQUERADE --random-fully",
		"-t nat -A POSTROUTING -m set --match-set mine src -j MASQUERADE",
		"-A INPUT -m set --match-set mine src -m set --match-set mine2 dst -j DROP",
		"-A FORWARD -i kube-bridge -m comment --comment allow_outbound_traffic_from_pods -j ACCEPT",
		"-A FORWARD -i bridge0 -m comment --comment mine -j ACCEPT",
		"-A FORWARD -i bridge0 -m comment --comment allow_inbound_traffic_to_pods -j ACCEPT",
	} {
		words := strings.Fields(rule)
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "_", " ")
		}
		sh(t, "", append([]string{"iptables"}, words...)...)
	}
	found := residue(t, do(t, n, step.VerbInventory, wanted))
	if diff := cmp.Diff([]string{"77 198.19.1.0/24", "77 198.19.2.0/24"}, found.Rules); diff != "" ||
		len(found.IPSets) != 2 || len(found.RuleLinks) != 1 || len(found.RuleSets) != 2 {
		t.Errorf("inventory: %+v, rules (-want +got):\n%s", found, diff)
	}
	if got := do(t, n, step.VerbClean, wanted); !got.Changed || residue(t, got).Count() != 0 {
		t.Errorf("clean: %+v", got)
	}
	rules := sh(t, "", "ip", "rule")
	for _, kept := range []string{"from 10.0.0.0/8 lookup 77", "from 198.19.3.0/24 lookup 78",
		"from 198.19.4.0/24 iif lo", "from 198.19.1.0/24 ipproto tcp"} {
		if !strings.Contains(rules, kept) {
			t.Errorf("the rule %q is gone:\n%s", kept, rules)
		}
	}
	saved := sh(t, "", "iptables-save")
	if strings.Count(rules, "lookup 77") != 3 || strings.Contains(saved, "kube-router") ||
		strings.Contains(saved, "allow outbound") || strings.Count(saved, "--match-set mine") != 3 ||
		!strings.Contains(saved, "allow inbound") ||
		!strings.Contains(saved, "--comment mine") {
		t.Errorf("rules:\n%s\n%s", rules, saved)
	}
	if sets := sh(t, "", "ipset", "list", "-name"); sets != "mine\nmine2\n" {
		t.Errorf("ipsets: %q", sets)
	}
}

// TestKernelCleanByLink: the rules that match on Weave Net's bridge go, as the kernel spells them, and
// nobody else's.
func TestKernelCleanByLink(t *testing.T) {
	if !alone(t) {
		return
	}
	n := newNode(t)
	// Weave Net's names of sets are hashes in letters of every kind.
	sets := []string{
		"weave-;rGqyMIl1HN^cfDki~Z$3]6!N", "weave-s_+ChJId4Uy_$}G;WdH|~TK)I",
		"weave-PZ#!dW~)u]Q6RbAC$N/I3K)_G", "weave-w3$Qsd+Gp3REXR)oUNiKpUdMW",
	}
	for _, set := range sets {
		sh(t, "", "ipset", "create", set, "hash:ip")
	}
	for _, kind := range []string{"nft", "legacy"} {
		sh(t, load(t, "weave.save"), "iptables-"+kind+"-restore")
	}
	found := residue(t, do(t, n, step.VerbInventory, weaveResidue))
	if diff := cmp.Diff([]string{"weave"}, found.RuleLinks); diff != "" || len(found.IPSets) != len(sets) {
		t.Errorf("inventory: sets %q, links (-want +got):\n%s", found.IPSets, diff)
	}
	if got := do(t, n, step.VerbClean, weaveResidue); !got.Changed || residue(t, got).Count() != 0 {
		t.Errorf("clean: %+v", got)
	}
	const want = `-A INPUT -i weave0 -m comment --comment "the user\'s own -i weave rule" -j ACCEPT
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A FORWARD -i eth0 -o eth1 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
`
	for _, kind := range []string{"nft", "legacy"} {
		var left strings.Builder
		for _, table := range []string{"filter", "nat"} {
			for line := range strings.Lines(sh(t, "", "iptables-"+kind+"-save", "-t", table)) {
				if strings.HasPrefix(line, "-A ") {
					left.WriteString(line)
				}
			}
		}
		if diff := cmp.Diff(want, left.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

// foreignRules are the rules that the residue does not mean, of all backends, as the kernel has them.
func foreignRules(t *testing.T, n *Node) []string {
	t.Helper()
	var rules []string
	for _, b := range backends() {
		tables, err := n.save(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			left := map[string]bool{}
			for _, name := range table.leftChains(flannelResidue.Chains) {
				left[name] = true
			}
			doomed := map[string]bool{}
			for _, r := range table.leftRules(flannelResidue) {
				doomed[r.chain+r.spec] = true
			}
			for _, r := range table.rules {
				if !left[r.chain] && !doomed[r.chain+r.spec] {
					rules = append(rules, b.program(" ")+table.name+" "+r.chain+" "+r.spec)
				}
			}
		}
	}
	if len(rules) < 20 {
		t.Fatalf("only %d rules of others: the test would show nothing", len(rules))
	}
	return rules
}

// TestKernelCleanRefusesInUse: while a pod hangs on the network, or it is the only one that the runtime
// could serve from, nothing of it is touched.
func TestKernelCleanRefusesInUse(t *testing.T) {
	if !alone(t) {
		return
	}
	n := newNode(t)
	n.patience = time.Millisecond
	flannelNode(t, n)
	pod := &netlink.Veth{LinkAttrs: linkAttrs("vethpod"), PeerName: "vethpeer"}
	addLink(t, pod)
	bridge, err := netlink.LinkByName("cni0")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetMaster(pod, bridge); err != nil {
		t.Fatal(err)
	}
	refuses := func(says string) {
		t.Helper()
		before, rules := residue(t, do(t, n, step.VerbInventory, flannelResidue)), allRules(t, n)
		got, err := n.Do(t.Context(), step.VerbClean, args(t, flannelResidue))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Fatalf("error %v, want one that says %q", err, says)
		}
		if diff := cmp.Diff(before, residue(t, got)); diff != "" || got.Changed {
			t.Errorf("changed %t, what is left (-before +answer):\n%s", got.Changed, diff)
		}
		if diff := cmp.Diff(rules, allRules(t, n)); diff != "" {
			t.Errorf("rules (-before +after):\n%s", diff)
		}
	}
	refuses("vethpod")
	if err := netlink.LinkDel(pod); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.Root, confDir, active)); err != nil {
		t.Fatal(err)
	}
	refuses("only network configuration")
	write(t, n.Root, map[string]string{filepath.Join(confDir, active): conf})
	do(t, n, step.VerbClean, flannelResidue)
}

// TestKernelCleanOwnPort: Weave Net's bridge holds a link of its own, which keeps nobody from removing it;
// a pod's link does.
func TestKernelCleanOwnPort(t *testing.T) {
	if !alone(t) {
		return
	}
	n := newNode(t)
	n.patience = time.Millisecond
	wanted := step.Residue{Links: []string{"weave", "vethwe-*"}}
	bridge := &netlink.Bridge{LinkAttrs: linkAttrs("weave")}
	addLink(t, bridge)
	pod := &netlink.Veth{LinkAttrs: linkAttrs("vethwepl1"), PeerName: "vethpeer"}
	for _, link := range []netlink.Link{&netlink.Veth{LinkAttrs: linkAttrs("vethwe-bridge"), PeerName: "vethwe-pcap"},
		pod} {
		addLink(t, link)
		if err := netlink.LinkSetMaster(link, bridge); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Do(t.Context(), step.VerbClean, args(t, wanted)); err == nil ||
		!strings.Contains(err.Error(), "has the port vethwepl1:") {
		t.Fatalf("error %v, want one that names the pod's link alone", err)
	}
	if err := netlink.LinkDel(pod); err != nil {
		t.Fatal(err)
	}
	if got := do(t, n, step.VerbClean, wanted); residue(t, got).Count() != 0 {
		t.Errorf("left: %+v", got)
	}
}

func TestKernelJoin(t *testing.T) {
	if !alone(t) {
		return
	}
	n := newNode(t)
	flannelNode(t, n)
	for name, value := range map[string]string{"all": "0", "default": "1", "eth0": "1", "cni0": "0",
		"flannel.1": "1", "vxlan.calico": "2"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte(value), 0); err != nil {
			t.Fatal(err)
		}
	}
	before, rules := filters(t, n), allRules(t, n)

	if got := do(t, n, step.VerbJoin, networks); !got.Changed {
		t.Errorf("join changed nothing: %s", got.Message)
	}
	wantFirst(t, "nft")
	wantFirst(t, "legacy")
	want := map[string]int{"all": 0, "default": 2, "eth0": 2, "cni0": 0, "flannel.1": 2, "vxlan.calico": 2}
	if diff := cmp.Diff(want, pickFilters(filters(t, n), want)); diff != "" {
		t.Errorf("rp_filter (-want +got):\n%s", diff)
	}
	if got := do(t, n, step.VerbJoin, networks); got.Changed {
		t.Errorf("join again changed something: %s", got.Message)
	}

	// Others push in front, and an interface comes up strict: a restarted agent puts it right.
	sh(t, "", "iptables-nft", "-w", "-t", "nat", "-I", "POSTROUTING", "1", "-s", "198.19.0.0/20", "-j", "MASQUERADE")
	addLink(t, &netlink.Bridge{LinkAttrs: linkAttrs("late")})
	sh(t, "1", "tee", "/proc/sys/net/ipv4/conf/late/rp_filter")
	restarted := &Node{Name: n.Name, Root: n.Root, Sys: n.Sys, Commands: n.Commands}
	mended, err := restarted.Keep(t.Context())
	if err != nil || !strings.Contains(mended, "iptables-nft") || !strings.Contains(mended, "rp_filter late=2") {
		t.Errorf("keep: %q, %v", mended, err)
	}
	wantFirst(t, "nft")
	if mended, err = restarted.Keep(t.Context()); err != nil || mended != "" {
		t.Errorf("keep again: %q, %v", mended, err)
	}
	sh(t, "", "iptables-nft", "-w", "-t", "nat", "-D", "POSTROUTING", "-s", "198.19.0.0/20", "-j", "MASQUERADE")
	if err := netlink.LinkDel(&netlink.Bridge{LinkAttrs: linkAttrs("late")}); err != nil {
		t.Fatal(err)
	}

	if got := do(t, restarted, step.VerbPart, networks); !got.Changed {
		t.Errorf("part changed nothing: %s", got.Message)
	}
	if diff := cmp.Diff(before, filters(t, n)); diff != "" {
		t.Errorf("rp_filter before and after (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(rules, allRules(t, n)); diff != "" {
		t.Errorf("rules before and after (-want +got):\n%s", diff)
	}
	if left, err := names(filepath.Join(n.Root, "var/lib/theseus")); err != nil || len(left) > 0 {
		t.Errorf("left in the state folder: %v, %v", left, err)
	}
	if got := do(t, restarted, step.VerbPart, networks); got.Changed {
		t.Errorf("part again changed something: %s", got.Message)
	}
	if mended, err := restarted.Keep(t.Context()); err != nil || mended != "" {
		t.Errorf("keep after part: %q, %v", mended, err)
	}
}

// TestKernelJoinFollowsKubeProxy: with no rule in POSTROUTING anywhere, the backend of the KUBE chains is
// taken, and no other gets a table.
func TestKernelJoinFollowsKubeProxy(t *testing.T) {
	if !alone(t) {
		return
	}
	n := newNode(t)
	sh(t, "", "iptables-legacy", "-w", "-t", "mangle", "-N", "KUBE-KUBELET-CANARY")
	do(t, n, step.VerbJoin, networks)
	wantFirst(t, "legacy")
	if tables := sh(t, "", "nft", "list", "tables"); tables != "" {
		t.Errorf("the other backend got tables:\n%s", tables)
	}
	do(t, n, step.VerbPart, networks)
}

func wantFirst(t *testing.T, kind string) {
	t.Helper()
	lines := strings.Split(sh(t, "", "iptables-"+kind, "-w", "-t", "nat", "-S", "POSTROUTING"), "\n")
	for _, line := range lines[1:3] {
		if !strings.Contains(line, jointComment) {
			t.Errorf("%s: the exemptions are not first:\n%s", kind, strings.Join(lines, "\n"))
			return
		}
	}
}

func filters(t *testing.T, n *Node) map[string]int {
	t.Helper()
	values, err := n.rpFilter()
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func pickFilters(values, like map[string]int) map[string]int {
	picked := map[string]int{}
	for name := range like {
		picked[name] = values[name]
	}
	return picked
}

func allRules(t *testing.T, n *Node) []string {
	t.Helper()
	var rules []string
	for _, b := range backends() {
		tables, err := n.save(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables {
			for _, r := range table.rules {
				rules = append(rules, b.program(" ")+table.name+" "+r.chain+" "+r.spec)
			}
		}
	}
	return rules
}

func TestKernelFacts(t *testing.T) {
	if !alone(t) {
		return
	}
	n := newNode(t)
	flannelNode(t, n)
	sh(t, "", "iptables-nft", "-w", "-P", "FORWARD", "DROP")
	sh(t, "", "ip", "route", "add", "198.19.1.0/26", "dev", "eth0", "proto", "bird")
	sh(t, "", "ip", "route", "add", "blackhole", "198.19.2.0/26", "proto", "bird")
	sh(t, "", "iptables-legacy", "-w", "-A", "INPUT", "-j", "REJECT")
	sh(t, "", "iptables-legacy", "-w", "-N", "cali-INPUT")
	sh(t, "", "ip", "link", "set", "lo", "up")
	sh(t, "", "iptables-legacy", "-w", "-I", "INPUT", "-i", "lo", "-j", "ACCEPT")
	sh(t, "table inet own { chain in { type filter hook input priority 0; policy drop; iif lo accept; }; }",
		"nft", "-f", "-")
	sh(t, "", "ip", "route", "add", "192.0.2.0/24", "via", "198.18.0.99")
	sh(t, "", "ip", "rule", "add", "fwmark", "0x200/0xf00", "priority", "77", "lookup", "2004")
	var got cluster.NodeFacts
	if err := json.Unmarshal(do(t, n, step.VerbFacts,
		step.FactsArgs{Peers: []string{"127.0.0.1", "198.18.0.99"}}).Result, &got); err != nil {
		t.Fatal(err)
	}
	if got.Node != "node-1" || got.Kernel == "" || got.ForwardPolicy != "DROP" {
		t.Errorf("facts: %+v", got)
	}
	if diff := cmp.Diff([]string{active, flannels}, got.ConfFiles); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
	byName := map[string]cluster.Link{}
	for _, link := range got.Links {
		byName[link.Name] = link
	}
	if vxlan := byName["flannel.1"]; vxlan.Type != "vxlan" || vxlan.VNI != 1 || vxlan.Port != 8472 {
		t.Errorf("flannel.1: %+v", vxlan)
	}
	if eth := byName["eth0"]; len(eth.Addresses) == 0 || eth.Addresses[0] != "198.18.0.11/18" {
		t.Errorf("eth0: %+v", eth)
	}
	if got.Routes["bird"] != 1 || got.Routes["kernel"] == 0 {
		t.Errorf("routes by protocol: %v", got.Routes)
	}
	if _, has := got.RPFilter["all"]; !has {
		t.Errorf("rp_filter: %v", got.RPFilter)
	}
	host := got.Host
	if host == nil || time.Since(host.Clock.At) > time.Minute || host.IPTables["legacy"] == 0 ||
		host.IPTables["nft"] == 0 {
		t.Fatalf("host: %+v", host)
	}
	if want := []cluster.PathMTU{{To: "127.0.0.1", MTU: 65535, Link: 65535},
		{To: "198.18.0.99", Link: 1500}}; !slices.Equal(host.Paths, want) {
		t.Errorf("path MTUs: %+v", host.Paths)
	}
	if want := []string{"a rule of INPUT takes REJECT for all that is left (iptables-legacy)",
		"the chain in of the nft table inet own drops by default"}; !slices.Equal(host.Filters, want) {
		t.Errorf("filters: %q", host.Filters)
	}
	wantForward := map[string][]string{"nft": {"KUBE-FORWARD", "FLANNEL-FWD",
		`-m comment --comment "the user\'s \"own\" FLANNEL-FWD remark" -j ACCEPT`}}
	if diff := cmp.Diff(wantForward, host.Forward); diff != "" {
		t.Errorf("FORWARD (-want +got):\n%s", diff)
	}
	if host.Sysctls["net.ipv4.ip_forward"] == "" {
		t.Errorf("sysctls: %v", host.Sysctls)
	}
	traces := host.Traces
	if traces == nil || traces.Chains["FLANNEL-"] == 0 || traces.Legacy["FLANNEL-"] != traces.Chains["FLANNEL-"]/2 ||
		traces.Legacy["cali-"] != 1 || traces.Chains["cali-"] != 1 || !slices.Contains(traces.NFTables, "inet own") ||
		!slices.Contains(traces.Blackholes, "198.19.2.0/26") ||
		!slices.Contains(traces.Reached, "192.0.2.0/24") ||
		!slices.Contains(traces.Rules, "77: fwmark 0x200 lookup 2004") ||
		slices.ContainsFunc(traces.Rules, func(rule string) bool { return strings.HasSuffix(rule, "lookup 255") }) {
		t.Errorf("traces: %+v", traces)
	}
}

// TestKernelPathMTU measures a path in whose middle a link takes less than the ones at its ends.
func TestKernelPathMTU(t *testing.T) {
	if !alone(t) {
		return
	}
	for _, name := range []string{"middle-of-path", "far-end-of-path"} {
		sh(t, "", "ip", "netns", "add", name)
		defer sh(t, "", "ip", "netns", "del", name)
	}
	sh(t, "", "ip", "link", "add", "near", "mtu", "1500", "type", "veth", "peer", "name",
		"m0", "netns", "middle-of-path")
	sh(t, "", "ip", "-n", "middle-of-path", "link", "add", "m1", "mtu", "1404", "type", "veth", "peer", "name",
		"far", "netns", "far-end-of-path")
	for _, words := range []string{
		"address add 198.18.1.1/24 dev near", "link set near up", "route add 198.18.2.0/24 via 198.18.1.2",
		"-n middle-of-path address add 198.18.1.2/24 dev m0", "-n middle-of-path link set m0 up",
		"-n middle-of-path address add 198.18.2.1/24 dev m1", "-n middle-of-path link set m1 up",
		"-n far-end-of-path address add 198.18.2.2/24 dev far", "-n far-end-of-path link set far up",
		"-n far-end-of-path route add default via 198.18.2.1",
	} {
		sh(t, "", append([]string{"ip"}, strings.Fields(words)...)...)
	}
	sh(t, "", "ip", "netns", "exec", "middle-of-path", "sysctl", "-qw", "net.ipv4.ip_forward=1")
	want := []cluster.PathMTU{{To: "198.18.2.2", MTU: 1404, Link: 1500}}
	if got := measure(t.Context(), []string{"198.18.2.2"}); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
