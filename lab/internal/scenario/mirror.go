package scenario

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/names"
	"github.com/theseus-cni/theseus/lab/internal/spec"
)

const (
	mirrorServices = 12
	mirrorOrigin   = "shop.example.org"
	mirrorPort     = 80
	// The name servers' ports on the loopback of the fabric.
	bindPort, unboundPort = 5301, 5302
)

// twins is a cluster and its mirror on one fabric, with what surrounds them.
type twins struct {
	blue, green *Rig
	labs        map[*Rig]spec.Lab
	dir         string
}

// Mirror plays the whole way by a mirror: blue, on flannel, serves a dozen names; they go to green, Theseus replaces blue's
// network while it is idle, and they come home. Clients on the fabric resolve and request without pause.
// Theseus itself runs there too, where clients are. A request that fails is a *LossError.
func Mirror(ctx context.Context, blue *Rig) error {
	green := *blue
	blue.Name, green.Name = "blue", "green"
	green.Dir = filepath.Join(blue.Dir, "green")
	dir, err := filepath.Abs(blue.Dir) // the name servers change theirs
	if err != nil {
		return err
	}
	m := &twins{blue: blue, green: &green, labs: map[*Rig]spec.Lab{}, dir: dir}
	defer green.Down() //nolint:errcheck // the story's own error counts
	blue.Say("a cluster, blue, on flannel, and its mirror, green, on Calico")
	for rig, network := range map[*Rig]string{blue: "flannel", &green: "calico"} {
		if err := rig.Up(ctx, network); err != nil {
			return err
		}
		lab, err := rig.spec(ctx)
		if err != nil {
			return err
		}
		m.labs[rig] = lab
		if err := m.fabricConfig(rig); err != nil {
			return err
		}
	}
	blue.Say("%d services on blue, each with a name and an address of its own", mirrorServices)
	if err := m.deploy(ctx); err != nil {
		return err
	}
	stop, err := m.surround(ctx)
	if err != nil {
		return err
	}
	defer stop()
	blue.Say("clients that resolve and request without pause")
	count, err := m.clients(ctx)
	if err != nil {
		return err
	}
	story := m.story(ctx)
	seen, err := count()
	if err != nil {
		return errors.Join(story, err)
	}
	blue.Say("what the clients saw")
	fmt.Fprintf(blue.Out, "%d requests, %d of them answered by the mirror, %d failed or were answered wrongly\n", seen.Requests, seen.Mirror, seen.Failed)
	for _, line := range seen.Wrong {
		fmt.Fprintln(blue.Out, line)
	}
	switch {
	case story != nil:
		return story
	case seen.Failed > 0:
		return &LossError{Failed: uint64(seen.Failed)}
	case seen.Mirror == 0:
		return errors.New("no client was ever at the mirror")
	}
	return nil
}

// story is what an operator does.
func (m *twins) story(ctx context.Context) error {
	mirror := []string{"--mirror-kubeconfig", m.config(m.green)}
	m.blue.Say("a first copy, so that the mirror's services get their addresses")
	if err := m.theseus(ctx, append([]string{"mirror", "copy", "-n", "shop"}, mirror...)...); err != nil {
		return err
	}
	if err := m.addresses(ctx, m.green); err != nil {
		return err
	}
	m.blue.Say("Theseus: plan, apply")
	change, err := m.blue.ChangeFlags(ctx)
	if err != nil {
		return err
	}
	plan := filepath.Join(m.dir, "plan.yaml")
	args := append([]string{"plan", "--strategy", "mirror", "-n", "shop", "--because", "the network of blue is being changed", "--switch-strategy", "recreate",
		"--zones", filepath.Join(m.dir, "zones.yaml"), "--ttl", "2", "--bake", "3s", "--first", "2", "--growth", "3", "--yes-really", "--max-lost", "20", "-o", plan}, append(mirror, change...)...)
	if err := m.theseus(ctx, args...); err != nil {
		return err
	}
	if err := m.theseus(ctx, "apply", plan, "--yes"); err != nil {
		return err
	}
	return m.theseus(ctx, "mirror", "status")
}

// theseus runs theseus on the fabric, in view of the reader: on a terminal with the live view.
func (m *twins) theseus(ctx context.Context, args ...string) error {
	fmt.Fprintf(m.blue.Out, "$ theseus %s\n", strings.Join(args, " "))
	args = append([]string{"exec", "--name", m.blue.Name, "--", m.blue.Theseus}, append(args, "--kubeconfig", m.config(m.blue))...)
	command := exec.CommandContext(ctx, m.blue.Lab, args...)
	command.Stdout, command.Stderr = m.blue.Out, m.blue.Out
	command.Env = append(os.Environ(), "THESEUS_STATE_DIR="+filepath.Join(m.dir, "state"))
	return command.Run()
}

// inside runs a program on the fabric.
func (m *twins) inside(ctx context.Context, out io.Writer, args ...string) (string, error) {
	return m.blue.run(ctx, nil, out, m.blue.Lab, append([]string{"exec", "--name", m.blue.Name, "--"}, args...)...)
}

// config is the kubeconfig with which a cluster is reached on the fabric.
func (m *twins) config(rig *Rig) string { return filepath.Join(rig.Dir, "fabric.kubeconfig") }

func (m *twins) fabricConfig(rig *Rig) error {
	data, err := os.ReadFile(rig.kubeconfig())
	if err != nil {
		return err
	}
	var lines []string
	for line := range strings.Lines(string(data)) {
		if head, _, ok := strings.Cut(line, "server:"); ok {
			line = head + "server: " + m.labs[rig].APIServer() + "\n"
		}
		lines = append(lines, line)
	}
	return os.WriteFile(m.config(rig), []byte(strings.Join(lines, "")), 0o600)
}

// address is that of a service's load balancer at a cluster: it lives on the first node.
func (m *twins) address(rig *Rig, service int) string {
	base := m.labs[rig].NodeIP(1).As4()
	base[3] = byte(100 + service)
	return netip.AddrFrom4(base).String()
}

// mirrorService is a service of the story: a Deployment, a Service with a load balancer, an Ingress with its name.
const mirrorService = `
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: s%[1]d, namespace: shop}
spec:
  selector: {matchLabels: {app: s%[1]d}}
  template:
    metadata: {labels: {app: s%[1]d}}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      terminationGracePeriodSeconds: 5
      containers:
      - name: web
        image: theseus.dev/workload:lab
        imagePullPolicy: IfNotPresent
        args: [serve, "--http=:8080"]
        env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        readinessProbe: {httpGet: {path: /ready, port: 8081}, periodSeconds: 1}
        resources: {requests: {cpu: 10m, memory: 16Mi}}
---
apiVersion: v1
kind: Service
metadata: {name: s%[1]d, namespace: shop}
spec: {type: LoadBalancer, selector: {app: s%[1]d}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: s%[1]d, namespace: shop}
spec: {rules: [{host: s%[1]d.%[2]s, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: s%[1]d, port: {number: 80}}}}]}}]}
`

// deploy brings the services up on blue, with addresses.
func (m *twins) deploy(ctx context.Context) error {
	text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
	for i := range mirrorServices {
		text += fmt.Sprintf(mirrorService, i, mirrorOrigin)
	}
	if _, err := m.blue.Kubectl(ctx, strings.NewReader(text), "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := m.blue.Kubectl(ctx, nil, "-n", "shop", "wait", "--for=condition=Available", "deployment", "--all", "--timeout=120s"); err != nil {
		return err
	}
	return m.addresses(ctx, m.blue)
}

// addresses does what a controller of load balancers does: every Service and Ingress gets one, which the first node answers
// for, and kube-proxy takes from there.
func (m *twins) addresses(ctx context.Context, rig *Rig) error {
	script := ""
	for i := range mirrorServices {
		address := m.address(rig, i)
		script += "ip address replace " + address + "/32 dev lo\n"
		for _, kind := range []string{"service", "ingress"} {
			patch := fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, address)
			if _, err := rig.Kubectl(ctx, nil, "-n", "shop", "patch", kind, fmt.Sprint("s", i), "--subresource=status", "--type=merge", "-p", patch); err != nil {
				return err
			}
		}
	}
	_, err := rig.OnNode(ctx, m.labs[rig].NodeName(1), "sh", "-ec", script)
	return err
}

// surround runs BIND with the services' names, and unbound in front of it, on the fabric.
func (m *twins) surround(ctx context.Context) (stop func(), err error) {
	zone := names.Zone{Dir: m.dir, Origin: mirrorOrigin, Bind: bindPort, Unbound: unboundPort}
	for i := range mirrorServices {
		zone.Records = append(zone.Records, fmt.Sprintf("s%d 2 IN A %s", i, m.address(m.blue, i)))
	}
	if err := zone.Write(mirrorPort); err != nil {
		return nil, err
	}
	var stops []func()
	stop = func() {
		for _, one := range stops {
			one()
		}
	}
	for i, server := range zone.Servers() {
		one, err := server.Start(filepath.Join(m.dir, fmt.Sprintf("nameserver-%d.log", i)), m.blue.Lab, "exec", "--name", m.blue.Name, "--")
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	return stop, nil
}

// clients starts them on the fabric, and waits until each has had an answer. What it returns ends them, and says what they
// saw since.
func (m *twins) clients(ctx context.Context) (count func() (names.Tally, error), err error) {
	clients := names.Clients{Resolver: fmt.Sprint("127.0.0.1:", unboundPort), Port: mirrorPort, Pause: 50 * time.Millisecond}
	for i := range mirrorServices {
		clients.Targets = append(clients.Targets, names.Target{Host: fmt.Sprintf("s%d.%s", i, mirrorOrigin), Original: m.address(m.blue, i), Mirror: m.address(m.green, i)})
	}
	data, err := json.Marshal(clients)
	if err != nil {
		return nil, err
	}
	run := exec.CommandContext(ctx, m.blue.Lab, "exec", "--name", m.blue.Name, "--", m.blue.Lab, "clients")
	var out bytes.Buffer
	in, err := run.StdinPipe()
	if err != nil {
		return nil, err
	}
	run.Stdout, run.Stderr = &out, m.blue.Out
	if err := run.Start(); err != nil {
		return nil, err
	}
	if _, err := in.Write(append(data, '\n')); err != nil {
		return nil, err
	}
	return func() (names.Tally, error) {
		in.Close() //nolint:errcheck // the end of its input ends it
		var seen names.Tally
		if err := run.Wait(); err != nil {
			return seen, fmt.Errorf("the clients: %w", err)
		}
		return seen, json.Unmarshal(out.Bytes(), &seen)
	}, nil
}

// NameClients runs clients that standard input describes, until it ends, and prints what they saw.
func NameClients(ctx context.Context, in io.Reader, out io.Writer) error {
	var clients names.Clients
	decoder := json.NewDecoder(in)
	if err := decoder.Decode(&clients); err != nil {
		return fmt.Errorf("what the clients are to ask: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		io.Copy(io.Discard, io.MultiReader(decoder.Buffered(), in)) //nolint:errcheck // its end is what counts
		cancel()
	}()
	if err := clients.Await(ctx); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(clients.Run(ctx))
}
