package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/step"
)

// sample is how long the counters of a node are watched at least.
const sample = time.Second

// load begins to sample the counters of the kernel's part of the network, and of its programs; the returned function
// ends the sample.
func (n *Node) load(ctx context.Context, readings []step.Reading) (end func(context.Context) (*cluster.Load, error),
	err error) {
	began := time.Now()
	before, err := n.Counters()
	if err != nil {
		return nil, err
	}
	own, _ := Served(ctx, readings)
	return func(ctx context.Context) (*cluster.Load, error) {
		if err := outage.Sleep(ctx, sample-time.Since(began)); err != nil {
			return nil, err
		}
		after, err := n.Counters()
		if err != nil {
			return nil, err
		}
		load := &cluster.Load{Seconds: time.Since(began).Seconds(), Counters: map[string]cluster.Counter{}}
		for name, boot := range after {
			load.Counters[name] = cluster.Counter{Boot: boot, Sample: max(0, boot-before[name])}
		}
		now, unread := Served(ctx, readings)
		for name, start := range now.counters {
			counter := cluster.Counter{Boot: start}
			if from, ok := own.counters[name]; ok { // one that has just started counts from 0
				counter.Sample = max(0, start-from)
			}
			load.Counters[name] = counter
		}
		load.Gauges, load.Unread = now.gauges, unread
		load.Conntrack, load.Most, err = n.Conntrack()
		return load, err
	}, nil
}

// Conntrack is how many connections the node tracks, and how many it can; 0 if the kernel tracks none.
func (n *Node) Conntrack() (count, most int64, err error) {
	if count, err = n.number("net/netfilter/nf_conntrack_count"); err != nil {
		return 0, 0, err
	}
	most, err = n.number("net/netfilter/nf_conntrack_max")
	return count, most, err
}

// LinkSpeed is the speed in Mbit/s of the interface that has an address of this network namespace; 0 if it is not
// known, as of most virtual interfaces. class is /sys/class/net. Source: Linux,
// Documentation/ABI/testing/sysfs-class-net, "speed".
func LinkSpeed(class, address string) int64 {
	interfaces, err := net.Interfaces()
	if err != nil {
		return 0
	}
	for _, one := range interfaces {
		addresses, err := one.Addrs()
		if err != nil || !slices.ContainsFunc(addresses, func(a net.Addr) bool {
			own, ok := a.(*net.IPNet)
			return ok && own.IP.Equal(net.ParseIP(address))
		}) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(class, one.Name, "speed"))
		if err != nil {
			return 0
		}
		speed, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			return 0
		}
		return max(0, speed)
	}
	return 0
}

// number reads a sysctl; 0 if the kernel lacks it.
func (n *Node) number(name string) (int64, error) {
	text, err := os.ReadFile(filepath.Join(n.Sys, name))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}

// Counters reads the kernel's counters. Files that the kernel lacks have none.
// Their formats: Linux, Documentation/networking/{nf_conntrack-sysctl,snmp_counter}.rst, net/core/net-procfs.c,
// net/netfilter/nf_conntrack_standalone.c.
func (n *Node) Counters() (map[string]int64, error) {
	all := map[string]int64{}
	for _, source := range []struct {
		file  string
		parse func(lines []string, all map[string]int64) error
	}{
		{"net/stat/nf_conntrack", perProcessor},
		{"net/softnet_stat", softnet},
		{"net/snmp", protocols},
		{"net/netstat", protocols},
		{"net/dev", devices},
	} {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(n.Sys), source.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = source.parse(strings.Split(strings.TrimSpace(string(text)), "\n"), all)
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", source.file, err)
		}
	}
	queues(all)
	return all, nil
}

// queues adds what the queues in front of interfaces dropped (as tc -s qdisc shows it), except those of pods. The
// root of an interface's queues counts those below it, too. A kernel whose queues cannot be read has none.
func queues(all map[string]int64) {
	found, err := netlink.QdiscList(nil)
	if err != nil {
		return
	}
	links, err := netlink.LinkList()
	if err != nil {
		return
	}
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
	}
	for _, queue := range found {
		of, name := queue.Attrs(), names[queue.Attrs().LinkIndex]
		if of.Parent != netlink.HANDLE_ROOT || of.Statistics == nil || of.Statistics.Queue == nil ||
			name == "" || name == "lo" || ofPod(name) || queue.Type() == "noqueue" {
			continue
		}
		all["qdisc."+name+".drops"] = int64(of.Statistics.Queue.Drops)
	}
}

// perProcessor adds up conntrack's lines, one for each processor, below a line of names. Numbers are hexadecimal.
func perProcessor(lines []string, all map[string]int64) error {
	names := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		for i, field := range strings.Fields(line) {
			if i >= len(names) {
				break
			}
			switch names[i] {
			case "insert_failed", "drop", "early_drop":
				value, err := strconv.ParseInt(field, 16, 64)
				if err != nil {
					return err
				}
				all["conntrack."+names[i]] += value
			}
		}
	}
	return nil
}

// softnet adds up the lines of the backlog, one for each processor: packets, dropped, and times that a processor had
// more to do than its budget allowed. Numbers are hexadecimal.
func softnet(lines []string, all map[string]int64) error {
	for _, line := range lines {
		fields := strings.Fields(line)
		for i, name := range []string{"processed", "dropped", "time_squeeze"} {
			if i >= len(fields) {
				break
			}
			value, err := strconv.ParseInt(fields[i], 16, 64)
			if err != nil {
				return err
			}
			all["softnet."+name] += value
		}
	}
	return nil
}

// wanted are the counters of protocols that are read, by the kernel's names.
var wanted = map[string]string{
	"Udp InDatagrams": "udp.InDatagrams", "Udp RcvbufErrors": "udp.RcvbufErrors",
	"Udp SndbufErrors": "udp.SndbufErrors", "Tcp OutSegs": "tcp.OutSegs", "Tcp RetransSegs": "tcp.RetransSegs",
	"TcpExt ListenDrops": "tcp.ListenDrops",
}

// protocols reads pairs of lines: the names of counters, and their values.
func protocols(lines []string, all map[string]int64) error {
	for i := 0; i+1 < len(lines); i += 2 {
		protocol, names, _ := strings.Cut(lines[i], ":")
		_, values, _ := strings.Cut(lines[i+1], ":")
		fields := strings.Fields(values)
		for j, name := range strings.Fields(names) {
			to := wanted[protocol+" "+name]
			if to == "" || j >= len(fields) {
				continue
			}
			value, err := strconv.ParseInt(fields[j], 10, 64)
			if err != nil {
				return err
			}
			all[to] = value
		}
	}
	return nil
}

// devices reads what the interfaces dropped, except those of pods and the loopback.
func devices(lines []string, all map[string]int64) error {
	for _, line := range lines {
		name, values, found := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !found || name == "lo" || ofPod(name) {
			continue
		}
		fields := strings.Fields(values)
		for column, counter := range map[int]string{3: "rx_dropped", 11: "tx_dropped"} {
			if column >= len(fields) {
				continue
			}
			value, err := strconv.ParseInt(fields[column], 10, 64)
			if err != nil {
				return err
			}
			all["link."+name+"."+counter] = value
		}
	}
	return nil
}

// ofPod reports whether an interface is the node's end of a pod's, by the names that networks give them.
func ofPod(name string) bool {
	for _, prefix := range []string{"veth", "cali", "lxc", "eni", "tap", "gke"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
