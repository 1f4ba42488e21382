package node

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step"
)

// The two site of these tests: the real bridge plugin, and the real ptp plugin, whose pods are routed as
// Calico's are. Both take addresses from one range.
const (
	bridgeList = `{"cniVersion":"0.4.0","name":"cbr0","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,"mtu":1450,
		"ipam":{"type":"host-local","subnet":"198.19.5.0/24","routes":[{"dst":"0.0.0.0/0"},{"dst":"198.19.0.0/16"}]}},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`
	routedList = `{"cniVersion":"0.4.0","name":"routed","plugins":[{"type":"ptp","mtu":1400,
		"ipam":{"type":"host-local","subnet":"198.19.5.0/24","routes":[{"dst":"0.0.0.0/0"}]}},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`
)

var (
	bridged = step.Attachment{Conf: []string{"10-bridge.conflist"}, Bridge: "cni0",
		Reservations: "/var/lib/cni/networks/cbr0"}
	routed = step.Attachment{Conf: []string{"05-routed.conflist.theseus"}, Strict: true,
		Reservations: "/var/lib/cni/networks/routed"}
	forth = step.AdoptArgs{From: bridged, To: routed}
	back  = step.AdoptArgs{From: routed, To: bridged, Release: true}
)

// site is a node with both site' plugins in a root of its own.
type site struct {
	*Node
	t *testing.T
}

// newSite makes the node on a file system that goes with the mount namespace.
func newSite(t *testing.T) *site {
	t.Helper()
	root := os.Getenv(childMark)
	must(t, unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""))
	must(t, unix.Mount("tmpfs", root, "tmpfs", 0, "mode=755"))
	for _, dir := range []string{"opt/cni/bin", "etc/cni/net.d", "run/netns", "var/lib/cni", "proc", "sys", "dev",
		"usr", "lib", "lib64", "bin", "sbin", "etc/alternatives"} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	must(t, unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""))
	for _, dir := range []string{"usr", "lib", "lib64", "bin", "sbin", "etc/alternatives"} {
		if _, err := os.Stat("/" + dir); err == nil {
			must(t, unix.Mount("/"+dir, filepath.Join(root, dir), "", unix.MS_BIND, ""))
			must(t, unix.Mount("", filepath.Join(root, dir), "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		}
	}
	for _, plugin := range []string{"bridge", "ptp", "host-local", "portmap", "tuning"} {
		binary, err := os.ReadFile("/usr/lib/cni/" + plugin)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(root, binaryDir, plugin), binary, 0o755))
	}
	write(t, root, map[string]string{confDir + "/10-bridge.conflist": bridgeList,
		confDir + "/05-routed.conflist.theseus": routedList})
	sh(t, "", "ip", "link", "set", "lo", "up")
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
	return &site{nodeAt(root), t}
}

func nodeAt(root string) *Node {
	return &Node{Name: "node-1", Root: root, Sys: "/proc/sys", Commands: NewCommands(4, 20*time.Second),
		Park: os.Getenv(parkMark) != ""}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// testPod is a network namespace that the runtime's part of these tests has attached.
type testPod struct {
	name, id, path, address string
	t                       *testing.T
	w                       *site
}

// pod makes one on a network, as a container runtime does.
func (w *site) pod(name, list string, capabilities map[string]any) *testPod {
	w.t.Helper()
	p := &testPod{name: name, id: fmt.Sprintf("%x", sha256.Sum256([]byte(name))),
		path: "/run/netns/cni-" + name, t: w.t, w: w}
	p.makeSpace()
	parsed, err := confList([]byte(list))
	must(w.t, err)
	runner, err := w.cni()
	must(w.t, err)
	result, err := runner.AddNetworkList(w.t.Context(), parsed, p.conf(capabilities))
	must(w.t, err)
	text, err := json.Marshal(result)
	must(w.t, err)
	var answer struct{ IPs []struct{ Address string } }
	must(w.t, json.Unmarshal(text, &answer))
	p.address, _, _ = strings.Cut(answer.IPs[0].Address, "/")
	return p
}

// makeSpace makes the pod's network namespace.
func (p *testPod) makeSpace() {
	p.t.Helper()
	file := filepath.Join(p.w.Root, p.path)
	must(p.t, os.WriteFile(file, nil, 0o644))
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		done <- func() error {
			if _, err := netns.New(); err != nil {
				return err
			}
			if err := unix.Mount(fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()), file, "",
				unix.MS_BIND, ""); err != nil {
				return err
			}
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(lo)
		}()
	}()
	must(p.t, <-done)
}

func (p *testPod) conf(capabilities map[string]any) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: p.id, NetNS: p.path, IfName: "eth0", CapabilityArgs: capabilities,
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "test"}, {"K8S_POD_NAME", p.name},
			{"K8S_POD_UID", "uid-" + p.name}}}
}

// del is what the runtime does when a pod ends, with the configuration that is current then.
func (p *testPod) del(list string) {
	p.t.Helper()
	parsed, err := confList([]byte(list))
	must(p.t, err)
	runner, err := p.w.cni()
	must(p.t, err)
	must(p.t, runner.DelNetworkList(p.t.Context(), parsed, p.conf(nil)))
	must(p.t, unix.Unmount(filepath.Join(p.w.Root, p.path), unix.MNT_DETACH))
	must(p.t, os.Remove(filepath.Join(p.w.Root, p.path)))
}

// in calls in the pod's namespace.
func (p *testPod) in(call func() error) {
	p.t.Helper()
	s, err := p.w.enter(p.path)
	must(p.t, err)
	defer s.close()
	must(p.t, s.do(call))
}

// ip runs ip in the pod's namespace.
func (p *testPod) ip(args ...string) string {
	return sh(p.t, "", append([]string{"nsenter", "--net=" + filepath.Join(p.w.Root, p.path), "ip"}, args...)...)
}

// state is what of a pod's network anybody can see; two equal states are one and the same network.
func (p *testPod) state() string {
	p.t.Helper()
	s, err := p.w.enter(p.path)
	must(p.t, err)
	defer s.close()
	var lines []string
	links, err := s.LinkList()
	must(p.t, err)
	for _, link := range links {
		if attrs := link.Attrs(); attrs.Flags&net.FlagUp != 0 {
			lines = append(lines, fmt.Sprintf("link %s mtu %d", attrs.Name, attrs.MTU))
		}
	}
	for _, what := range []string{"address show dev eth0", "route show table all type unicast", "rule"} {
		for line := range strings.Lines(p.ip(append([]string{"-4", "-o"}, strings.Fields(what)...)...)) {
			line = strings.TrimSpace(line)
			if what == "address show dev eth0" {
				line = strings.Join(strings.Fields(line)[1:4], " ")
			}
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// whole fails unless the pod is on exactly one network with nothing left of a move; it says which one.
func (p *testPod) whole() string {
	p.t.Helper()
	state := p.state()
	for _, left := range []string{oldName, parkName, strconv.Itoa(pinTable),
		strconv.Itoa(parkTable), "\n90:", "\n89:"} {
		if strings.Contains(state, left) {
			p.t.Errorf("%s: %q is left of a move:\n%s", p.name, left, state)
		}
	}
	if ends, _ := filepath.Glob("/proc/sys/net/ipv4/conf/park*"); len(ends) > 0 {
		p.t.Errorf("%s: pairs are left on the host: %v", p.name, ends)
	}
	records, err := p.w.sandboxes()
	must(p.t, err)
	for _, s := range records {
		if s.ID != p.id {
			continue
		}
		record, pod, err := p.w.describe(&s)
		must(p.t, err)
		if record.Address != p.address {
			p.t.Errorf("%s: its address is %s and was %s", p.name, record.Address, p.address)
		}
		if pod.Master != "" {
			return "bridged"
		}
		return "routed"
	}
	p.t.Errorf("%s: the runtime remembers nothing", p.name)
	return ""
}

// clock is how a log shows times, so that a lost datagram can be put next to what was done.
const clock = "15:04:05.000"

// traffic is a flow of one datagram a millisecond that is sent back, and of bytes on a kept connection.
type traffic struct {
	name      string
	stop      chan struct{}
	senders   sync.WaitGroup
	done      sync.WaitGroup
	sent      int
	sentAt    []time.Time // of the datagram 1, 2, ...
	mu        sync.Mutex
	seen      map[uint64]bool
	broken    error
	exchanged int
	closers   []io.Closer
	longest   time.Duration
	last      time.Time
}

// talk makes a flow between two namespaces; a nil pod is the host, whose address is given.
func talk(t *testing.T, w *site, name string, from, to *testPod, address string) *traffic {
	t.Helper()
	return talkThrough(t, w, name, from, to, address, address)
}

// talkThrough makes one that is sent to another address than the one that answers.
func talkThrough(t *testing.T, w *site, name string, from, to *testPod, address, through string) *traffic {
	t.Helper()
	f := &traffic{name: name, stop: make(chan struct{}), seen: map[uint64]bool{}}
	inside := func(p *testPod, call func() error) {
		if p == nil {
			must(t, call())
			return
		}
		p.in(call)
	}
	var listener net.Listener
	var server, client *net.UDPConn
	var stream net.Conn
	inside(to, func() (err error) {
		if listener, err = net.Listen("tcp4", address+":0"); err != nil {
			return err
		}
		server, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(address)})
		return err
	})
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	inside(from, func() (err error) {
		if client, err = net.DialUDP("udp4", nil,
			&net.UDPAddr{IP: net.ParseIP(through), Port: server.LocalAddr().(*net.UDPAddr).Port}); err != nil {
			return err
		}
		stream, err = net.DialTimeout("tcp4", fmt.Sprintf("%s:%d", through, listener.Addr().(*net.TCPAddr).Port),
			5*time.Second)
		return err
	})
	f.closers = []io.Closer{listener, server, client, stream}
	f.done.Go(func() { f.echo(server) })
	f.done.Go(func() { f.receive(client) })
	f.senders.Go(func() { f.exchange(stream) })
	f.senders.Go(func() { f.send(client) })
	return f
}

func (f *traffic) send(conn *net.UDPConn) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
			f.mu.Lock()
			f.sent++
			seq := uint64(f.sent)
			f.sentAt = append(f.sentAt, time.Now())
			f.mu.Unlock()
			_, _ = conn.Write(binary.BigEndian.AppendUint64(nil, seq))
		}
	}
}

func (f *traffic) echo(conn *net.UDPConn) {
	var data [64]byte
	for {
		n, from, err := conn.ReadFromUDP(data[:])
		if err != nil {
			return
		}
		_, _ = conn.WriteToUDP(data[:n], from)
	}
}

func (f *traffic) receive(conn *net.UDPConn) {
	var data [64]byte
	for {
		_, err := conn.Read(data[:])
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			f.mu.Lock()
			f.seen[binary.BigEndian.Uint64(data[:])] = true
			now := time.Now()
			if !f.last.IsZero() {
				f.longest = max(f.longest, now.Sub(f.last))
			}
			f.last = now
			f.mu.Unlock()
		}
	}
}

func (f *traffic) exchange(conn net.Conn) {
	few, many := make([]byte, 32), make([]byte, 64<<10) // these fill packets, on both networks' interfaces
	for {
		select {
		case <-f.stop:
			return
		default:
		}
		data := few
		if f.exchanged%16 == 15 {
			data = many
		}
		_ = conn.SetDeadline(time.Now().Add(30 * time.Second)) // a busy machine lets nobody run for long
		_, err := conn.Write(data)
		if err == nil {
			_, err = io.ReadFull(conn, data)
		}
		if err != nil {
			f.mu.Lock()
			f.broken = err
			f.mu.Unlock()
			return
		}
		f.exchanged++
		time.Sleep(2 * time.Millisecond)
	}
}

func (f *traffic) isBroken() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken != nil
}

// end stops the flow and fails where anything was lost.
func (f *traffic) end(t *testing.T) {
	t.Helper()
	time.Sleep(20 * time.Millisecond)
	close(f.stop)
	f.senders.Wait()
	for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		f.mu.Lock()
		all := len(f.seen) == f.sent
		f.mu.Unlock()
		if all {
			break
		}
	}
	for _, c := range f.closers {
		_ = c.Close()
	}
	f.done.Wait()
	var lost []uint64
	var when []string
	for seq := uint64(1); seq <= uint64(f.sent); seq++ {
		if !f.seen[seq] {
			lost = append(lost, seq)
			when = append(when, f.sentAt[seq-1].Format(clock))
		}
	}
	t.Logf("%s: %d datagrams, %d lost, longest gap %s, %d exchanges",
		f.name, f.sent, len(lost), f.longest.Round(time.Microsecond), f.exchanged)
	if f.broken != nil || f.exchanged == 0 || f.sent < 10 {
		t.Errorf("%s: sent %d; the connection: %d exchanges, %v", f.name, f.sent, f.exchanged, f.broken)
	}
	if len(lost) > 0 {
		loses(t, len(lost), "%s: lost %v of %d, sent at %v", f.name, lost, f.sent, when)
	}
}

// flows are what must not notice anything: host and neighbours, both ways.
func flows(t *testing.T, w *site, pods ...*testPod) func() {
	t.Helper()
	var all []*traffic
	for i, p := range pods {
		all = append(all, talk(t, w, "host to "+p.name, nil, p, p.address),
			talk(t, w, p.name+" to host", p, nil, "198.19.5.1"))
		next := pods[(i+1)%len(pods)]
		if next != p {
			all = append(all, talk(t, w, p.name+" to "+next.name, p, next, next.address))
		}
	}
	return func() {
		t.Helper()
		for _, f := range all {
			f.end(t)
		}
	}
}

// outcomes reads a result by pod.
func outcomes(t *testing.T, a Answer) map[string]step.AdoptOutcome {
	t.Helper()
	var result step.AdoptResult
	must(t, json.Unmarshal(a.Result, &result))
	all := map[string]step.AdoptOutcome{}
	for _, o := range result.Pods {
		all[o.Name] = o
	}
	return all
}

func TestAdoptThereAndBack(t *testing.T) { bothWays(t, testAdoptThereAndBack) }

func testAdoptThereAndBack(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a, b, c := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil), w.pod("c", bridgeList, nil)
	before := a.state()
	hostBefore := hostState(t)
	end := flows(t, w, a, b, c)

	canary := forth
	canary.Pods = []string{"test/a"}
	got := outcomes(t, do(t, w.Node, step.VerbAdopt, canary))
	if len(got) != 1 || got["a"].State != step.AdoptMoved || got["a"].Network != "routed" || got["a"].Gap == nil {
		t.Errorf("the canary: %+v", got)
	}
	if on := a.whole() + b.whole() + c.whole(); on != "routedbridgedbridged" {
		t.Errorf("after the canary: %s", on)
	}
	do(t, w.Node, step.VerbAdopt, forth)
	if on := a.whole() + b.whole() + c.whole(); on != "routedroutedrouted" {
		t.Errorf("after all: %s", on)
	}
	if again := do(t, w.Node, step.VerbAdopt, forth); again.Changed ||
		outcomes(t, again)["b"].State != step.AdoptAlready {
		t.Errorf("again: %+v", again)
	}
	do(t, w.Node, step.VerbAdopt, back)
	end()
	if on := a.whole() + b.whole() + c.whole(); on != "bridgedbridgedbridged" {
		t.Errorf("after the way back: %s", on)
	}
	if after := a.state(); after != before {
		t.Errorf("the pod's network was\n%s\nand is\n%s", before, after)
	}
	if after := hostState(t); after != hostBefore {
		t.Errorf("the host's network was\n%s\nand is\n%s", hostBefore, after)
	}
	if left, _ := names(filepath.Join(w.Root, "var/lib/theseus")); len(left) > 1 {
		t.Errorf("left: %v", left)
	}
	for _, p := range []*testPod{a, b, c} {
		p.del(bridgeList)
	}
	if left, _ := names(filepath.Join(w.Root, "var/lib/cni/networks/cbr0")); slices.ContainsFunc(left, isAddress) {
		t.Errorf("reservations are left: %v", left)
	}
	if left, _ := names(filepath.Join(w.Root, "var/lib/cni/networks/routed")); slices.ContainsFunc(left, isAddress) {
		t.Errorf("reservations are left: %v", left)
	}
}

func isAddress(name string) bool { return net.ParseIP(name) != nil }

// hostState is what moving changes on the host.
func hostState(t *testing.T) string {
	t.Helper()
	text := sh(t, "", "ip", "rule") + sh(t, "", "ip", "-4", "route", "show", "table", "all", "type", "unicast")
	for _, name := range []string{"conf/cni0/rp_filter", "conf/cni0/proxy_arp", "neigh/cni0/proxy_delay"} {
		value, err := readParameter("/proc/sys/net/ipv4/" + name)
		must(t, err)
		text += name + " " + value + "\n"
	}
	return text
}

// TestAdoptAgentDies kills the agent, a process of its own, before every single change that a move makes to the kernel
// or the disk, both ways, with traffic on the pod all the while. The next agent leaves the pod whole on one network.
func TestAdoptAgentDies(t *testing.T) { bothWays(t, testAdoptAgentDies) }

func testAdoptAgentDies(t *testing.T) {
	if isVictim(t) || !alone(t) {
		return
	}
	w := newSite(t)
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	service(t, a)
	end, throughService := flows(t, w, a, b), talkThrough(t, w, "host to a's Service", nil,
		a, a.address, serviceAddress)
	w.hasty = true
	for _, way := range []struct {
		args, other step.AdoptArgs
		from, to    string
	}{{forth, back, "bridged", "routed"}, {back, forth, "routed", "bridged"}} {
		ends := map[string]int{}
		for change := 1; ; change++ {
			began := time.Now()
			reached, point := moveUntil(t, w, a, way.args, change)
			ended := time.Now()
			next := nodeAt(w.Root)
			next.hasty = true
			if _, err := next.Resume(t.Context()); err != nil {
				t.Fatalf("after %q: %v", point, err)
			}
			on := a.whole()
			ends[on]++
			t.Logf("%s moves, %s killed before %q, %s resumed: %s",
				began.Format(clock), ended.Format(clock), point, time.Now().Format(clock), on)
			if t.Failed() {
				t.Fatalf("ended before change %d, %q", change, point)
			}
			if !reached {
				t.Logf("%s to %s: ended before each of %d changes; then %v", way.from, way.to, change-1, ends)
				break
			}
			if on == way.to { // and back to the beginning
				do(t, next, step.VerbAdopt, way.other)
			}
		}
		if ends[way.from] < 20 || ends[way.to] < 5 {
			t.Errorf("%s to %s: it ended on %v", way.from, way.to, ends)
		}
	}
	end()
	throughService.end(t)
	mustBeUntied(t)
	a.del(bridgeList)
	do(t, w.Node, step.VerbSettle, step.SettleArgs{Network: routed})
	for _, network := range []string{"cbr0", "routed"} {
		left, _ := names(filepath.Join(w.Root, "var/lib/cni/networks", network))
		if slices.Contains(left, a.address) {
			t.Errorf("%s still holds %s", network, a.address)
		}
	}
}

// plugin replaces a plugin of the node by a script.
func (w *site) plugin(name, script string) (restore func()) {
	w.t.Helper()
	file := filepath.Join(w.Root, binaryDir, name)
	must(w.t, os.Rename(file, file+".real"))
	must(w.t, os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	return func() { must(w.t, os.Rename(file+".real", file)) }
}

// TestAdoptFaults: whatever the target does, the pod stays on a working network, and nothing is left.
func TestAdoptFaults(t *testing.T) { bothWays(t, testAdoptFaults) }

func testAdoptFaults(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	w.hasty = true
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	before, hostBefore := a.state(), hostState(t)
	end := flows(t, w, a, b)
	veths := func() string { // those that are down, too
		return sh(t, "", "ip", "-br", "link", "show", "type", "veth") + a.ip("-br", "link", "show", "type", "veth")
	}
	vethsBefore := veths()
	delegate := func(more string) string { // the real plugin, and then something else
		return `out=$(/opt/cni/bin/ptp.real); code=$?; [ "$CNI_COMMAND" = ADD ] || exit $code; ` + more
	}
	for name, c := range map[string]struct{ script, want string }{
		"refuses": {
			`[ "$CNI_COMMAND" = ADD ] || exit 0; echo '{"cniVersion":"0.4.0","code":11,"msg":"no more of it"}'; exit 1`,
			"no more of it"},
		"garbage":          {delegate(`echo '{"cniVersion":'`), "ptp"},
		"answers null":     {delegate(`echo null`), "assigned no address"},
		"answers too much": {delegate(`yes | head -c 3000000`), "longer than"},
		"fails when done":  {delegate(`exit 3`), "exit status 3"},
		"lies": {`[ "$CNI_COMMAND" = ADD ] || exit 0; echo '{"cniVersion":"0.4.0","ips":[{"version":"4","address":"` +
			a.address + `/24"}]}'`, "created no interface eth0"},
		"gives another": {delegate(`echo "$out" | sed s/` + strings.ReplaceAll(a.address, ".", "[.]") +
			`/198.19.5.77/`), "198.19.5.77"},
		"leaves all": {
			`[ "$CNI_COMMAND" = ADD ] || exit 0; set -e; ip link add cali123 type veth peer name half; ip link set half netns $CNI_NETNS name eth0
			ip link set cali123 up; ip route add ` + a.address + ` dev cali123; nsenter --net=$CNI_NETNS sh -c "ip address add ` + a.address + `/32 dev eth0; ip link set eth0 up"
			echo '{"cniVersion":"0.4.0","code":999,"msg":"failed to add IPv4 route for 0.0.0.0/0 via 169.254.1.1: file exists"}'; exit 1`, "file exists"},
		"dies of a signal": {delegate(`kill -9 $$`), "killed"},
	} {
		restore := w.plugin("ptp", c.script)
		wanted := forth
		wanted.Pods = []string{"test/a"}
		got, err := w.Do(t.Context(), step.VerbAdopt, args(t, wanted))
		restore()
		if err == nil || !strings.Contains(err.Error(), c.want) || outcomes(t, got)["a"].State != step.AdoptUndone {
			t.Errorf("%s: %v, %+v", name, err, outcomes(t, got)["a"])
		}
		if after := a.state(); after != before || a.whole() != "bridged" {
			t.Errorf("%s: the pod's network was\n%s\nand is\n%s", name, before, after)
		}
		if after := veths(); after != vethsBefore {
			t.Errorf("%s: interfaces were\n%s\nand are\n%s", name, vethsBefore, after)
		}
		if after := hostState(t); after != hostBefore {
			t.Errorf("%s: the host was\n%s\nand is\n%s", name, hostBefore, after)
		}
		if left, _ := names(filepath.Join(w.Root, "var/lib/cni/networks/routed")); slices.Contains(left, a.address) {
			t.Errorf("%s: the target still holds the address", name)
		}
	}

	taken := filepath.Join(w.Root, routed.Reservations, a.address)
	must(t, os.MkdirAll(filepath.Dir(taken), 0o755))
	must(t, os.WriteFile(taken, []byte("somebody\neth0"), 0o644))
	got, err := w.Do(t.Context(), step.VerbAdopt, args(t, forth))
	if err == nil || outcomes(t, got)["a"].State != step.AdoptRefused ||
		!strings.Contains(err.Error(), "reserved for the sandbox somebody") ||
		outcomes(t, got)["b"].State != step.AdoptMoved {
		t.Errorf("a taken address: %v", err)
	}
	if text, _ := os.ReadFile(taken); string(text) != "somebody\neth0" {
		t.Errorf("somebody's reservation is %q", text)
	}
	if on := a.whole() + b.whole(); on != "bridgedrouted" {
		t.Errorf("then: %s", on)
	}
	end()
}

// TestAdoptHangs: a plugin that does not answer is ended with all that it started.
func TestAdoptHangs(t *testing.T) { bothWays(t, testAdoptHangs) }

func testAdoptHangs(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a := w.pod("a", bridgeList, nil)
	end := flows(t, w, a)
	defer w.plugin("ptp",
		`[ "$CNI_COMMAND" = ADD ] || exit 0; sleep 3217 & echo $! > /etc/new; mv /etc/new /etc/child; wait`)()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil { // the plugin hangs by now
			if _, err := os.Stat(filepath.Join(w.Root, "etc/child")); err == nil {
				cancel()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	got, err := w.Do(ctx, step.VerbAdopt, args(t, forth))
	if err == nil || outcomes(t, got)["a"].State != step.AdoptUndone || a.whole() != "bridged" {
		t.Errorf("%v, %s", err, got.Result)
	}
	end()
	child, err := os.ReadFile(filepath.Join(w.Root, "etc/child"))
	must(t, err)
	mustEnd(t, strings.TrimSpace(string(child)))
}

// TestAdoptPodDies: a pod that ends in the middle of its move leaves nothing at either network.
func TestAdoptPodDies(t *testing.T) { bothWays(t, testAdoptPodDies) }

func testAdoptPodDies(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	keeper := w.pod("keeper", bridgeList, nil)
	end := flows(t, w, keeper)
	for change := 1; ; change++ {
		p := w.pod(fmt.Sprintf("p%d", change), bridgeList, nil)
		n := nodeAt(w.Root)
		n.hasty = true
		count, point := 0, ""
		n.hook = func(at string) {
			if count++; count == change {
				point = at
				p.del(bridgeList)
			}
		}
		wanted := forth
		wanted.Pods = []string{"test/" + p.name}
		got, _ := n.Do(t.Context(), step.VerbAdopt, args(t, wanted))
		if point == "" {
			t.Logf("ended before each of %d changes", change-1)
			break
		}
		n.hook = nil
		if state := outcomes(t, got)[p.name].State; state != step.AdoptGone {
			if _, err := n.Do(t.Context(), step.VerbAdopt,
				args(t, step.AdoptArgs{From: bridged, To: routed, Skip: []string{"test/keeper"}})); err != nil {
				t.Errorf("after %q: %v", point, err)
			}
		}
		for _, dir := range []string{"var/lib/cni/networks/cbr0", "var/lib/cni/networks/routed", adoptDir, resultsDir} {
			left, _ := names(filepath.Join(w.Root, dir))
			if i := slices.IndexFunc(left,
				func(name string) bool { return name == p.address || strings.Contains(name, p.id) }); i >= 0 {
				t.Errorf("the pod ended before %q: %s/%s is left", point, dir, left[i])
			}
		}
		if routes := sh(t, "", "ip", "route", "show", "table", "all"); strings.Contains(routes, p.address+" ") {
			t.Errorf("the pod ended before %q: %s", point, routes)
		}
	}
	end()
}

// TestAdoptRefused: what a pod has that cannot be carried over is named, and nothing is touched.
func TestAdoptRefused(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	several, rules, six, fine := w.pod("several", bridgeList, nil), w.pod("rules", bridgeList, nil),
		w.pod("six", bridgeList, nil), w.pod("fine", bridgeList, nil)
	unknown := w.pod("unknown",
		strings.Replace(bridgeList, `{"type":"portmap"`, `{"type":"tuning","sysctl":{}},{"type":"portmap"`, 1), nil)
	several.ip("link", "add", "net1", "type", "bridge")
	several.ip("link", "set", "net1", "up")
	rules.ip("rule", "add", "fwmark", "7", "lookup", "77")
	six.ip("address", "add", "fd00::2/64", "dev", "eth0")
	before := several.state() + rules.state() + six.state() + unknown.state() + hostState(t)
	got := outcomes(t, do(t, w.Node, step.VerbAdoptable, forth))
	for name, want := range map[string]string{"several": "several interfaces: eth0, net1",
		"rules": "1 routing rules of its own",
		"six":   "IPv6", "unknown": "does not know configured it: tuning"} {
		if o := got[name]; o.State != step.AdoptRefused || !strings.Contains(o.Reason, want) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if got["fine"].State != step.AdoptReady {
		t.Errorf("fine: %+v", got["fine"])
	}
	_, err := w.Do(t.Context(), step.VerbAdopt, args(t, forth))
	if err == nil || fine.whole() != "routed" {
		t.Errorf("the others: %v", err)
	}
	do(t, w.Node, step.VerbAdopt, back)
	if after := several.state() + rules.state() + six.state() + unknown.state() + hostState(t); after != before {
		t.Errorf("touched:\n%s\nwas\n%s", after, before)
	}
}

// TestAdoptBornThere: a pod that the target made can be moved to the source, which never knew it, and whose bridge
// does not exist yet.
func TestAdoptBornThere(t *testing.T) { bothWays(t, testAdoptBornThere) }

func testAdoptBornThere(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	p := w.pod("p", routedList, nil)
	end := flows(t, w, p)
	do(t, w.Node, step.VerbAdopt, back)
	end()
	if p.whole() != "bridged" {
		t.Error("it is not on the bridge")
	}
	if text, err := os.ReadFile(filepath.Join(w.Root, bridged.Reservations, p.address)); err != nil ||
		!strings.HasPrefix(string(text), p.id) {
		t.Errorf("its address is not reserved: %v %q", err, text)
	}
}
