// Package outer is the outer process of a lab: process 1 of a pid namespace, holder of the network namespace with the
// fabric, and parent of the control plane and of every node. Killing it ends every process, mount and namespace of the
// lab.
package outer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/lab/internal/cgroup"
	"github.com/theseus-cni/theseus/lab/internal/control"
	"github.com/theseus-cni/theseus/lab/internal/controlplane"
	"github.com/theseus-cni/theseus/lab/internal/fabric"
	"github.com/theseus-cni/theseus/lab/internal/pki"
	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/supervise"
)

// Stage is the first argument of the program when it is to become the outer process.
const Stage = "_outer"

// Descriptors that the outer process is started with.
const (
	fdConfig = 3 + iota // Config as JSON
	fdRelay             // listening socket of the host's loopback
	fdReady             // gets "ok" or an error
)

// Config is the outer process' configuration.
type Config struct {
	Lab         spec.Lab
	Secrets     *pki.Lab
	Hierarchies []cgroup.Hierarchy
}

// CloneFlags are the namespaces that the outer process starts in.
const CloneFlags = unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWPID

type outer struct {
	Config
	super *supervise.Supervisor
	log   io.Writer
	mu    sync.Mutex // held while a node starts, stops, comes or goes, or a link changes
	nodes []*node    // in the order of their numbers
}

// Run is the outer process. It only returns if it could not start.
func Run() error {
	ready := os.NewFile(fdReady, "ready")
	o := &outer{log: os.Stderr}
	if err := json.NewDecoder(os.NewFile(fdConfig, "configuration")).Decode(&o.Config); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	listener, err := net.FileListener(os.NewFile(fdRelay, "relay"))
	if err == nil {
		err = o.start()
	}
	if err != nil {
		fmt.Fprintln(ready, err)
		return err
	}
	go relay(listener, netip.AddrPortFrom(o.Lab.ControlPlaneIP(), 6443).String())
	socket, err := net.Listen("unix", filepath.Join(o.Lab.Dir, "control.sock"))
	if err != nil {
		fmt.Fprintln(ready, err)
		return err
	}
	fmt.Fprintln(ready, "ok")
	ready.Close()
	return http.Serve(socket, control.Handler(o))
}

func (o *outer) start() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := unix.Sethostname([]byte(o.Lab.Name + "-fabric")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := fabric.Setup(netip.PrefixFrom(o.Lab.GatewayIP(), spec.FabricBits)); err != nil {
		return err
	}
	logs := filepath.Join(o.Lab.Dir, "logs", "fabric")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	o.super = supervise.New(logs, "")
	if err := o.startControlPlane(); err != nil {
		return err
	}
	for _, n := range o.Lab.Numbers() {
		o.nodes = append(o.nodes, &node{number: n, name: o.Lab.NodeName(n)})
	}
	return o.eachNode(o.powerOn)
}

// eachNode runs f for every node at once.
func (o *outer) eachNode(f func(*node) error) error {
	errs := make([]error, len(o.nodes))
	var all sync.WaitGroup
	for i, n := range o.nodes {
		all.Go(func() { errs[i] = f(n) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (o *outer) startControlPlane() error {
	dir := filepath.Join(o.Lab.Dir, "controlplane")
	c := controlplane.Config{
		Lab: o.Lab, PKI: filepath.Join(dir, "pki"), Data: filepath.Join(dir, "data"),
		Logs: filepath.Join(o.Lab.Dir, "logs", "controlplane"), Routes: o.podRoutes(0),
	}
	if err := errors.Join(os.MkdirAll(c.Data, 0o700), os.MkdirAll(c.Logs, 0o755)); err != nil {
		return err
	}
	if err := c.WritePKI(o.Secrets); err != nil {
		return err
	}
	// It weighs what a node does. Outside of the lab's cgroup, etcd, the API server and the server outside of the
	// cluster would each weigh as much as a compiler, and a sixteenth of all nodes together: they stand still when
	// nodes are busy.
	child := child{name: "controlplane", stage: controlplane.Stage, flags: CloneFlags, port: o.Lab.Name + "-cp",
		cgroup: o.Lab.Cgroup() + "/controlplane", config: c}
	_, _, err := o.spawn(child)
	return err
}

// podRoutes are the static routes to the pods of every node but the n-th. Only the plain bridge
// network needs them: every other one brings its own routes or tunnels, and hides pods behind
// their node's address from what is no pod.
func (o *outer) podRoutes(n int) []fabric.Route {
	var out []fabric.Route
	for m := 1; m <= o.Lab.Nodes && o.Lab.Network == "bridge"; m++ {
		if m != n {
			out = append(out, fabric.Route{To: o.Lab.NodePodCIDR(m), Via: o.Lab.NodeIP(m)})
		}
	}
	return out
}

// child is a process that starts in namespaces of its own and reads its configuration from
// descriptor 3 once its surroundings are made.
type child struct {
	name, stage string
	flags       uintptr
	port        string // its port on the fabric
	cgroup      string
	config      any
}

func (o *outer) spawn(c child) (int, <-chan syscall.WaitStatus, error) {
	log, err := os.OpenFile(filepath.Join(o.Lab.Dir, "logs", "fabric", c.name+".log"),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 0, nil, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, nil, err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return 0, nil, err
	}
	defer r.Close()
	defer w.Close()
	pid, done, err := o.super.Start(supervise.Program{
		Name: c.name, Argv: []string{o.Lab.LabBinary, c.stage},
		Attr:  &syscall.SysProcAttr{Cloneflags: c.flags},
		Files: []*os.File{null, log, log, r},
	})
	if err != nil {
		return 0, nil, err
	}
	if err := o.furnish(c, pid, w); err != nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return 0, nil, fmt.Errorf("%s: %w", c.name, err)
	}
	return pid, done, nil
}

func (o *outer) furnish(c child, pid int, w io.Writer) error {
	if err := cgroup.Make(o.Hierarchies, c.cgroup, pid); err != nil {
		return err
	}
	if err := fabric.Plug(c.port, pid); err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(c.config)
}

// relay carries connections from the host's loopback to the API server until the process ends.
func relay(listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			var d net.Dialer
			server, err := d.DialContext(context.Background(), "tcp", target)
			if err != nil {
				return
			}
			defer server.Close()
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(client, server)
		}()
	}
}
