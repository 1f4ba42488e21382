// Package controlplane runs etcd, the API server, the controller manager and the scheduler of a lab
// in namespaces of their own (net, mount, uts, ipc, pid). It is not a node: no kubelet, no pods.
package controlplane

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/lab/internal/fabric"
	"github.com/theseus-cni/theseus/lab/internal/pki"
	"github.com/theseus-cni/theseus/lab/internal/spec"
	"github.com/theseus-cni/theseus/lab/internal/supervise"
	"github.com/theseus-cni/theseus/lab/internal/workload/serve"
)

// Stage is the first argument of the program when it is to become the control plane.
const Stage = "_control-plane"

// Config is the control plane's configuration, which it reads from descriptor 3 at its start.
type Config struct {
	Lab   spec.Lab
	PKI   string // directory with the files of WritePKI
	Data  string // etcd's directory
	Logs  string
	Ports Ports // zero: those in a namespace of its own
	// Audited are users whose requests are in the audit log, besides those of operators.
	Audited []string
	Routes  []fabric.Route // to the pods, where the network does not masquerade them
}

// Run is process 1 of the control plane. It only returns if it could not start.
func Run() error {
	in := os.NewFile(3, "configuration")
	var c Config
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	in.Close()
	if err := unix.Sethostname([]byte(c.Lab.Name + "-controlplane")); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	routes := append([]fabric.Route{{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: c.Lab.GatewayIP()}},
		c.Routes...)
	if err := fabric.Configure(netip.PrefixFrom(c.Lab.ControlPlaneIP(), spec.FabricBits), routes); err != nil {
		return err
	}
	return c.supervise()
}

func (c Config) supervise() error {
	log, err := os.OpenFile(filepath.Join(c.Logs, "init.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	ctx := context.Background()
	s := supervise.New(c.Logs, c.Data)
	var all sync.WaitGroup
	keep := func(argv []string) {
		p := supervise.Program{Name: argv[0], Argv: append([]string{c.Lab.KubeBinary}, argv...)}
		all.Go(func() { s.Keep(ctx, p, log) })
	}
	keep(c.etcd())
	keep(c.apiserver())
	// Clients of the API server would only fail and back off while it starts.
	if err := c.waitReady(ctx); err != nil {
		return err
	}
	keep(c.controllerManager())
	keep(c.scheduler())
	all.Go(func() { c.serveWorld(ctx, log) })
	all.Go(func() { serve.AskItself(ctx, c.world(), log) })
	all.Wait()
	return nil
}

// WorldPort is where this machine answers HTTP, and echoes UDP, for clients that leave the cluster: it is not a node,
// and has no route to pods if the network masquerades them.
const WorldPort = 9180

// serveWorld plays the world outside of the cluster. The lab continues if it fails.
func (c Config) serveWorld(ctx context.Context, log io.Writer) {
	at := c.world()
	if err := serve.Run(ctx, serve.Config{Name: "world", HTTP: at, UDP: at, Log: log}); err != nil {
		fmt.Fprintf(log, "serve the world outside: %v\n", err)
	}
}

// world is the address and port of the world outside.
func (c Config) world() string { return netip.AddrPortFrom(c.Lab.ControlPlaneIP(), WorldPort).String() }

// waitReady waits until the API server lets its clients in. It asks for the roles that the clients
// need, not for /readyz, which waits for more.
func (c Config) waitReady(ctx context.Context) error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // only a health check on loopback
	}}
	defer client.CloseIdleConnections()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := client.Get("https://127.0.0.1:6443/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// WritePKI writes what the control plane reads into c.PKI.
func (c Config) WritePKI(p *pki.Lab) error {
	local := fmt.Sprintf("https://127.0.0.1:%d", c.ports().API)
	files := map[string][]byte{
		"ca.crt": p.CA, "ca.key": p.CAKey, "front-proxy-ca.crt": p.FrontProxyCA,
		"apiserver.crt": p.APIServer.Cert, "apiserver.key": p.APIServer.Key,
		"kubelet-client.crt": p.KubeletClient.Cert, "kubelet-client.key": p.KubeletClient.Key,
		"front-proxy-client.crt": p.FrontProxyClient.Cert, "front-proxy-client.key": p.FrontProxyClient.Key,
		"sa.pub": p.ServiceAccount.Cert, "sa.key": p.ServiceAccount.Key,
		"controller-manager.conf": pki.Kubeconfig(c.Lab.Name, local, p.CA, p.ControllerManager),
		"scheduler.conf":          pki.Kubeconfig(c.Lab.Name, local, p.CA, p.Scheduler),
		"audit.yaml":              []byte(c.audit()),
	}
	if err := os.MkdirAll(c.PKI, 0o700); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(c.pki(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
