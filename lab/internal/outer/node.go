package outer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/lab/internal/cgroup"
	"github.com/theseus-cni/theseus/lab/internal/control"
	"github.com/theseus-cni/theseus/lab/internal/fabric"
	"github.com/theseus-cni/theseus/lab/internal/machine"
	"github.com/theseus-cni/theseus/lab/internal/preload"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// node is the outer process' state of one node.
type node struct {
	number  int
	name    string
	started bool // it was started once: its disk exists
	later   bool // it was added to the running lab
	pid     int
	ended   chan struct{} // closed when process 1 of the current start has ended
	link    fabric.Faults
}

func (n *node) running() bool {
	if n.ended == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

func (o *outer) cgroupOf(n *node) string { return o.Lab.Cgroup() + "/" + n.name }

func (o *outer) powerOn(n *node) error {
	c, err := o.prepare(n)
	if err != nil {
		return fmt.Errorf("%s: %w", n.name, err)
	}
	pid, done, err := o.spawn(child{
		name: n.name, stage: machine.StageBoot, flags: CloneFlags,
		port: n.name, cgroup: o.cgroupOf(n), config: c,
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	n.pid, n.ended, n.started = pid, ended, true
	go func() {
		<-done
		close(ended)
	}()
	return nil
}

// prepare makes the node's disk at its first start, and its configuration.
func (o *outer) prepare(n *node) (machine.Config, error) {
	dir := filepath.Join(o.Lab.Dir, "nodes", n.name)
	lab, routes := o.Lab, o.podRoutes(n.number)
	if n.later && lab.Network == "bridge" { // the routes of the others do not lead to it
		lab.Network, routes = "none", nil
	}
	conf, bin := o.Lab.CNIDirs()
	c := machine.Config{
		Name: n.name, Addr: netip.PrefixFrom(o.Lab.NodeIP(n.number), spec.FabricBits),
		Routes: append(routes,
			fabric.Route{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: o.Lab.GatewayIP()}),
		Hierarchies: o.Hierarchies,
		Root:        filepath.Join(dir, "root"),
		Disk:        filepath.Join(dir, "disk"),
		Containerd:  filepath.Join(dir, "containerd"),
		Logs:        filepath.Join(o.Lab.Dir, "logs", n.name),
		LabBinary:   o.Lab.LabBinary, KubeBinary: o.Lab.KubeBinary, Programs: o.Lab.Programs,
		Images: o.Lab.Images, Files: machine.Files(lab, o.Secrets, n.number),
		ConfDir: conf, BinDir: bin,
		First: !n.started, APIServer: o.Lab.APIServer(), WithoutProxy: o.Lab.ProxyMode == spec.NoProxy,
	}
	for _, d := range []string{c.Root, c.Disk, c.Logs} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return c, err
		}
	}
	if c.First {
		size := fmt.Sprintf("mode=755,size=%dm", o.Lab.DiskMiB)
		if err := unix.Mount("disk", c.Disk, "tmpfs", unix.MS_NODEV, size); err != nil {
			return c, fmt.Errorf("mount the disk: %w", err)
		}
		if err := preload.Clone(o.Lab.Template, c.Containerd); err != nil {
			return c, fmt.Errorf("images: %w", err)
		}
	}
	return c, nil
}

func (o *outer) powerOff(n *node) error {
	if n.running() {
		if err := syscall.Kill(n.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		<-n.ended
	}
	if err := fabric.Unplug(n.name); err != nil {
		return err
	}
	// A kubelet that finds cgroups of deleted pods waits for each of them.
	return cgroup.Remove(o.Hierarchies, o.cgroupOf(n), 5*time.Second)
}

func (o *outer) node(number int) (*node, error) {
	for _, n := range o.nodes {
		if n.number == number {
			return n, nil
		}
	}
	return nil, fmt.Errorf("the lab has no node %d", number)
}

// Add implements control.Lab.
func (o *outer) Add(number int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.node(number); err == nil {
		return nil
	}
	ca, err := o.Secrets.Authority()
	if err != nil {
		return err
	}
	o.Lab.Nodes = max(o.Lab.Nodes, number)
	if err := o.Secrets.AddNodes(ca, o.Lab, time.Now()); err != nil {
		return err
	}
	n := &node{number: number, name: o.Lab.NodeName(number), later: true}
	if err := o.powerOn(n); err != nil {
		return errors.Join(err, o.clear(n))
	}
	o.nodes = append(o.nodes, n)
	return nil
}

// Remove implements control.Lab.
func (o *outer) Remove(number int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.node(number)
	if err != nil {
		return nil
	}
	if err := o.clear(n); err != nil {
		return err
	}
	o.nodes = slices.DeleteFunc(o.nodes, func(other *node) bool { return other == n })
	o.Lab.Removed = append(o.Lab.Removed, number)
	return nil
}

// clear ends a node and removes its disk; its logs stay.
func (o *outer) clear(n *node) error {
	if err := o.powerOff(n); err != nil {
		return err
	}
	dir := filepath.Join(o.Lab.Dir, "nodes", n.name)
	err := unix.Unmount(filepath.Join(dir, "disk"), unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // never mounted
		return fmt.Errorf("unmount the disk of %s: %w", n.name, err)
	}
	return os.RemoveAll(dir)
}

// Nodes implements control.Lab.
func (o *outer) Nodes() []control.Node {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []control.Node
	for _, n := range o.nodes {
		state := control.Node{Name: n.name, IP: o.Lab.NodeIP(n.number).String(), Running: n.running(), Link: n.link}
		if state.Running {
			state.Pid = n.pid
		}
		out = append(out, state)
	}
	return out
}

// Kill implements control.Lab.
func (o *outer) Kill(number int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.node(number)
	if err != nil {
		return err
	}
	if !n.running() {
		return fmt.Errorf("%s is already powered off", n.name)
	}
	return o.powerOff(n)
}

// Start implements control.Lab.
func (o *outer) Start(number int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.node(number)
	if err != nil {
		return err
	}
	if n.running() {
		return fmt.Errorf("%s is already running", n.name)
	}
	if n.pid != 0 { // it may have ended by itself
		if err := o.powerOff(n); err != nil {
			return err
		}
	}
	return o.powerOn(n)
}

// SetLink implements control.Lab.
func (o *outer) SetLink(l control.Link) (fabric.Faults, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.node(l.Node)
	if err != nil {
		return fabric.Faults{}, err
	}
	before, want := n.link, n.link
	if l.Clear {
		want.Loss, want.Drops = 0, nil
	}
	if l.Partition != nil {
		want.Partitioned = *l.Partition
	}
	if l.Loss != nil {
		want.Loss = *l.Loss
	}
	want.Drops = append(append([]fabric.Drop(nil), want.Drops...), l.Drops...)
	n.link = want
	faults := map[string]fabric.Faults{}
	for _, n := range o.nodes {
		faults[n.name] = n.link
	}
	out, err := o.super.Output(context.Background(), fabric.Ruleset(faults), "nft", "-f", "-")
	if err != nil {
		n.link = before
		return before, fmt.Errorf("%w: %s", err, out)
	}
	return want, nil
}
