// Package swarm runs a cluster of many nodes on one machine, without namespaces: a real etcd, API server, controller
// manager and scheduler on loopback, and the program of test/swarm, in which the product's own agents run and a model
// stands for their nodes. Theseus' built program then changes its network, and what that asks of the API server is
// counted.
package swarm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/controlplane"
	"github.com/theseus-cni/theseus/lab/internal/kubeapi"
	"github.com/theseus-cni/theseus/lab/internal/loopback"
	"github.com/theseus-cni/theseus/lab/internal/network"
	"github.com/theseus-cni/theseus/lab/internal/pki"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

// Ranges of the cluster's addresses. Nodes have theirs in 172.16.0.0/16.
const (
	sourceCIDR = "10.0.0.0/11"
	targetCIDR = "10.64.0.0/11"
)

// Options say what is run.
type Options struct {
	Nodes, Pods int      // of the cluster, and of each node
	Strategy    string   // adopt or recreate
	Faults      []string // as in the flag --fault of the nodes' program
	Times       float64  // what the model takes, as a multiple of what the lab took
	Kube, Nodal string   // programs: Kubernetes, and the nodes
	Theseus     string   // the product
	Dir         string   // folder for everything that is written
	Out         io.Writer
	Manifest    func(network string, params network.Params) ([]byte, error) // of a network
}

// Build builds the programs, unless the cache has them, and sets them.
func (o *Options) Build(ctx context.Context, cache *build.Cache) (err error) {
	if o.Kube, err = cache.Binary(ctx, build.Kube(build.KubernetesVersions()[0])); err != nil {
		return err
	}
	o.Manifest = func(name string, params network.Params) ([]byte, error) {
		params.Calico = build.CalicoComponent("")
		params.Modules = func(component, module string) (string, error) {
			return cache.ModuleDir(ctx, component, module)
		}
		return network.Manifest(name, params)
	}
	o.Nodal, err = cache.Binary(ctx, "swarm")
	return err
}

// Cluster is a cluster that runs.
type Cluster struct {
	Options
	lab    spec.Lab
	config controlplane.Config
	api    *kubeapi.Client
	order  []string           // of the programs, as they were started
	runs   map[string]program // by name
	lock   sync.Mutex
	self   *os.Process // theseus, while it runs
}

// program is a program that runs.
type program struct {
	loopback.Program
	stop func()
}

// Start starts the cluster, and waits until all of its pods run. Stop must be called in any case.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	c := &Cluster{Options: o, lab: spec.Lab{Name: "swarm"}, runs: map[string]program{}}
	c.config = controlplane.Config{Lab: c.lab, PKI: filepath.Join(o.Dir, "pki"), Data: filepath.Join(o.Dir, "data"),
		Logs: filepath.Join(o.Dir, "logs"), Audited: []string{controlplane.Agents}}
	for _, dir := range []string{c.config.Data, c.config.Logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return c, err
		}
	}
	if err := c.controlPlane(ctx); err != nil {
		return c, err
	}
	c.say("etcd, kube-apiserver, kube-controller-manager and kube-scheduler run on loopback")
	args := []string{"--kubeconfig", c.file("kubeconfig"), "--nodes", fmt.Sprint(o.Nodes),
		"--times", fmt.Sprint(o.Times), "--lease-every", leaseEvery(o.Nodes).String()}
	if o.Strategy != "adopt" {
		args = append(args, "--target-cidr", targetCIDR)
	}
	for _, fault := range o.Faults {
		args = append(args, "--fault", fault)
	}
	about, err := exec.CommandContext(ctx, o.Nodal, "--about").Output()
	if err != nil {
		return c, fmt.Errorf("ask the nodes' program what is a model: %w", err)
	}
	c.say("%s", strings.TrimSpace(string(about)))
	if err := c.keep("nodes", o.Nodal, args...); err != nil {
		return c, err
	}
	return c, c.fill(ctx)
}

// Stop ends every process of the cluster.
func (c *Cluster) Stop() {
	for _, name := range slices.Backward(c.order) {
		c.runs[name].stop()
	}
}

// Restart ends a program of the control plane, and starts it again after a while.
func (c *Cluster) Restart(ctx context.Context, name string, after time.Duration) error {
	one := c.runs[name]
	one.stop()
	c.say("%s is stopped for %s", name, after)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(after):
	}
	stop, err := one.Keep()
	if err != nil {
		return err
	}
	c.runs[name] = program{one.Program, stop}
	return nil
}

// usualLease is how often a kubelet renews the lease of its node.
const usualLease = 10 * time.Second

// leaseEvery keeps the renewals of all leases at ten a second: of thousands of nodes, they would take the API server's
// processor.
func leaseEvery(nodes int) time.Duration { return max(usualLease, time.Duration(nodes)*time.Second/10) }

func (c *Cluster) file(name string) string { return filepath.Join(c.Dir, name) }

func (c *Cluster) say(format string, args ...any) {
	fmt.Fprintf(c.Out, format+"\n", args...)
}

func (c *Cluster) controlPlane(ctx context.Context) error {
	secrets, err := pki.NewLab(c.lab, time.Now())
	if err != nil {
		return err
	}
	for _, port := range []*int{&c.config.Ports.API, &c.config.Ports.Etcd, &c.config.Ports.Peer} {
		if *port, err = loopback.Port(); err != nil {
			return err
		}
	}
	if err := c.config.WritePKI(secrets); err != nil {
		return err
	}
	authority, err := secrets.Authority()
	if err != nil {
		return err
	}
	theseus, err := authority.Client(time.Now(), controlplane.Operator, "system:masters")
	if err != nil {
		return err
	}
	server := fmt.Sprintf("https://127.0.0.1:%d", c.config.Ports.API)
	for name, pair := range map[string]pki.Pair{"kubeconfig": secrets.Admin, "theseus.kubeconfig": theseus} {
		if err := os.WriteFile(c.file(name), pki.Kubeconfig(c.lab.Name, server, secrets.CA, pair), 0o600); err != nil {
			return err
		}
	}
	if c.api, err = kubeapi.New(server, secrets.CA, secrets.Admin); err != nil {
		return err
	}
	more := map[string][]string{
		"kube-apiserver":          {"--bind-address=127.0.0.1", "--profiling=true"},
		"kube-controller-manager": {"--secure-port=0", "--allocate-node-cidrs=false", "--cluster-cidr=" + sourceCIDR},
		"kube-scheduler":          {"--secure-port=0"},
	}
	if every := leaseEvery(c.Nodes); every > usualLease {
		more["kube-controller-manager"] = append(more["kube-controller-manager"],
			"--node-monitor-grace-period="+(6*every).String())
	}
	for _, argv := range c.config.Commands() {
		if argv[0] == "kube-controller-manager" {
			if err := c.api.Ready(ctx); err != nil {
				return err
			}
		}
		if err := c.keep(argv[0], c.Kube, append(argv, more[argv[0]]...)...); err != nil {
			return err
		}
	}
	return nil
}

// keep starts a program that runs until Stop, and whose output is in a log.
func (c *Cluster) keep(name, path string, args ...string) error {
	p := loopback.Program{Path: path, Args: args, Dir: c.Dir, Log: filepath.Join(c.config.Logs, name+".log"),
		Again: path == c.Kube}
	stop, err := p.Keep()
	if err != nil {
		return err
	}
	c.order, c.runs[name] = append(c.order, name), program{p, stop}
	return nil
}

// Kubectl runs kubectl as an administrator, and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Kube,
		append([]string{"kubectl", "--kubeconfig", c.file("kubeconfig")}, args...)...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &said
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(said.String()))
	}
	return out.String(), nil
}

// fill applies the network, DNS and the workloads, and waits until all pods run.
func (c *Cluster) fill(ctx context.Context) error {
	params := network.Params{PodCIDR: netip.MustParsePrefix(sourceCIDR),
		ServiceCIDR: c.lab.ServiceCIDR(), DNS: c.lab.DNSIP()}
	var all []byte
	for _, part := range []string{"flannel", "coredns"} {
		text, err := c.Manifest(part, params)
		if err != nil {
			return err
		}
		all = append(append(all, "\n---\n"...), text...)
	}
	calico, err := c.Manifest("calico", network.Params{PodCIDR: netip.MustParsePrefix(targetCIDR)})
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.file("calico.yaml"), calico, 0o644); err != nil {
		return err
	}
	work, count := workloads(c.Nodes, c.Pods)
	for _, text := range []string{string(all), work} {
		if _, err := c.Kubectl(ctx, text, "apply", "--server-side", "--validate=false", "-f", "-"); err != nil {
			return err
		}
	}
	for {
		out, err := c.Kubectl(ctx, "", "get", "pods", "--all-namespaces", "--no-headers", "-o",
			"custom-columns=P:.status.phase")
		running := strings.Count(out, "Running")
		if err == nil && running >= count && running == strings.Count(out, "\n") {
			c.say("%d nodes with %d pods run", c.Nodes, running)
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%d of at least %d pods run", running, count), err, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
