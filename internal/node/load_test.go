package node

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	conntrackStat = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop " +
		"early_drop icmp_error  expect_new expect_create expect_delete search_restart\n" +
		"0000002a  00000000 00000001 00000000 00000002 00000000 00000000 00000003 00000000 0000000a 00000001 " +
		"00000000 00000000  00000000 00000000 00000000 00000000\n" +
		"0000002a  00000000 00000001 00000000 00000002 00000000 00000000 00000003 00000000 00000001 00000000 " +
		"00000002 00000000  00000000 00000000 00000000 00000000\n"
	softnetStat = "000000ff 00000001 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 " +
		"00000000 00000000 00000000 00000000 00000000\n" +
		"00000001 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 " +
		"00000001 00000000 00000000\n"
	snmp = "Tcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 100 3\n" +
		"Udp: InDatagrams NoPorts RcvbufErrors SndbufErrors\nUdp: 50 1 4 0\n"
	netstat = "TcpExt: SyncookiesSent ListenDrops\nTcpExt: 0 7\n"
	dev     = "Inter-|   Receive                                                |  Transmit\n face |bytes    packets " +
		"errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n" +
		"    lo:  1 1 0 9 0 0 0 0 1 1 0 9 0 0 0 0\n  eth0: 10 2 0 3 0 0 0 0 20 4 0 1 0 0 0 0\n" +
		"cali12: 1 1 0 5 0 0 0 0 1 1 0 5 0 0 0 0\n"
)

// TestLoad: the counters of a kernel's files are added up over processors, and what grew while they were watched is the
// sample.
func TestLoad(t *testing.T) {
	n := newNode(t)
	n.Sys = filepath.Join(n.Root, "proc/sys")
	files := map[string]string{"proc/net/stat/nf_conntrack": conntrackStat, "proc/net/softnet_stat": softnetStat,
		"proc/net/snmp": snmp, "proc/net/netstat": netstat, "proc/net/dev": dev,
		"proc/sys/net/netfilter/nf_conntrack_count": "42\n", "proc/sys/net/netfilter/nf_conntrack_max": "1000\n"}
	write(t, n.Root, files)
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "dropped %d\ntime{quantile=\"0.99\"} 0.5\n", 10*asked.Add(1))
	}))
	defer server.Close()
	readings := []step.Reading{{URL: server.URL, Counters: map[string]string{"router.dropped": "dropped"},
		Gauges: map[string]string{"router.time": `time{quantile="0.99"}`}}, {URL: "http://127.0.0.1:1/"}}
	end, err := n.load(t.Context(), readings)
	if err != nil {
		t.Fatal(err)
	}
	write(t, n.Root, map[string]string{"proc/net/snmp": strings.Replace(snmp, "50 1 4 0", "60 1 9 0", 1)})
	load, err := end(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(load.Counters, func(name string, _ cluster.Counter) bool { // of this machine
		return strings.HasPrefix(name, "qdisc.")
	})
	if load.Gauges["router.time"] != 0.5 || load.Unread["http://127.0.0.1:1/"] != "connection refused" ||
		len(load.Unread) != 1 {
		t.Errorf("%+v", load)
	}
	want := map[string]cluster.Counter{
		"router.dropped":          {Boot: 20, Sample: 10},
		"conntrack.insert_failed": {Boot: 11}, "conntrack.drop": {Boot: 1}, "conntrack.early_drop": {Boot: 2},
		"softnet.processed": {Boot: 256}, "softnet.dropped": {Boot: 1}, "softnet.time_squeeze": {Boot: 3},
		"udp.InDatagrams": {Boot: 60, Sample: 10}, "udp.RcvbufErrors": {Boot: 9, Sample: 5}, "udp.SndbufErrors": {},
		"tcp.OutSegs": {Boot: 100}, "tcp.RetransSegs": {Boot: 3}, "tcp.ListenDrops": {Boot: 7},
		"link.eth0.rx_dropped": {Boot: 3}, "link.eth0.tx_dropped": {Boot: 1},
	}
	if !reflect.DeepEqual(load.Counters, want) || load.Conntrack != 42 || load.Most != 1000 ||
		load.Seconds < sample.Seconds() {
		t.Errorf("%+v", load)
	}
	if end, err = newNode(t).load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	write(t, n.Root, map[string]string{"proc/net/softnet_stat": "no numbers\n"})
	if _, err := n.Counters(); err == nil {
		t.Error("a file that is no table of numbers is read")
	}
}

// TestLoadHere: this kernel's own files are read.
func TestLoadHere(t *testing.T) {
	n := &Node{Sys: "/proc/sys"}
	all, err := n.Counters()
	if err != nil || all["softnet.processed"] == 0 || all["udp.InDatagrams"] < 0 {
		t.Errorf("%v, %v", all, err)
	}
	for _, name := range []string{"softnet.processed", "softnet.dropped", "udp.RcvbufErrors",
		"tcp.RetransSegs", "tcp.ListenDrops"} {
		if _, ok := all[name]; !ok {
			t.Errorf("no %s in %v", name, all)
		}
	}
}

// FuzzCounters: no file of counters makes the agent panic.
func FuzzCounters(f *testing.F) {
	for _, text := range []string{conntrackStat, softnetStat, snmp, netstat, dev, "", "a:\n",
		":", "Udp: InDatagrams\nUdp:"} {
		f.Add(text)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		for _, parse := range []func([]string, map[string]int64) error{perProcessor, softnet, protocols, devices} {
			_ = parse(strings.Split(strings.TrimSpace(text), "\n"), map[string]int64{}) // an error is fine
		}
	})
}

// TestQueues: what the queue in front of an interface drops is counted, as the kernel counts it.
func TestQueues(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	home, err := netns.Get()
	must(t, err)
	defer home.Close()
	defer func() { must(t, netns.Set(home)) }()
	here, err := netns.New()
	must(t, err)
	defer here.Close()
	for _, name := range []string{"up0", "cali0"} { // their other ends have no queue
		addLink(t, &netlink.Veth{LinkAttrs: linkAttrs(name), PeerName: "of" + name})
		sh(t, "", "ip", "link", "set", name, "up")
		sh(t, "", "ip", "link", "set", "of"+name, "up")
		sh(t, "", "tc", "qdisc", "replace", "dev", name, "root", "bfifo", "limit", "100b")
	}
	link, err := netlink.LinkByName("up0")
	must(t, err)
	sh(t, "", "ip", "address", "add", "198.18.7.1/24", "dev", "up0")
	before := map[string]int64{}
	queues(before)
	must(t, netlink.NeighAdd(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: net.IPv4(198, 18, 7, 2),
		State: netlink.NUD_PERMANENT, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1}}))
	to, err := net.Dial("udp", "198.18.7.2:9")
	must(t, err)
	defer to.Close()
	for range 50 {
		_, _ = to.Write(make([]byte, 1000)) // what the queue drops may be an error
	}
	after := map[string]int64{}
	queues(after)
	if _, ok := after["qdisc.cali0.drops"]; ok || len(after) != 1 || before["qdisc.up0.drops"] != 0 ||
		after["qdisc.up0.drops"] < 10 {
		t.Errorf("%v, and then %v", before, after)
	}
}
