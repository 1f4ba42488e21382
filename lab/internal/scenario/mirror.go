package scenario

import (
	"bytes"
	"cmp"
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
	loadBalancers  = 28 // prefix length of a cluster's range of load balancers
	// The name servers' ports on the loopback of the fabric.
	bindPort, unboundPort = 5301, 5302
)

// Twins are a cluster and its mirror on one fabric, with their surroundings: blue, on flannel, serves a dozen names.
// Theseus itself runs on the fabric, like the clients.
type Twins struct {
	blue, green *Rig
	labs        map[*Rig]spec.Lab
	dir         string
	stop        func() // ends the name servers
}

// Mirror runs the whole change with a mirror: the names move to green, Theseus replaces the network of the idle blue,
// by the strategy of the rig, and the names move back.
func Mirror(ctx context.Context, blue *Rig) error {
	m, err := NewTwins(ctx, blue)
	defer m.Down()
	if err != nil {
		return err
	}
	seen, err := m.Under(ctx, func() error {
		if err := m.Rehearse(ctx); err != nil {
			return err
		}
		plan, err := m.Plan(ctx)
		if err != nil {
			return err
		}
		if err := m.Run(ctx, "apply", plan, "--yes"); err != nil {
			return err
		}
		return m.Run(ctx, "mirror", "status")
	})
	if err != nil {
		return err
	}
	if err := blue.keep([]traffic{{Name: "clients of the names", Requests: uint64(seen.Requests),
		Failed:           uint64(seen.Failed),
		LongestGapMillis: float64(seen.Gap.Microseconds()) / 1000}}); err != nil {
		return err
	}
	if err := m.Run(ctx, "report", "--traffic", blue.traffic(), "-o", filepath.Join(m.dir, "report.html")); err != nil {
		return err
	}
	return Unnoticed(seen)
}

// Unnoticed is a *LossError if a client's request failed or got a wrong answer.
func Unnoticed(seen names.Tally) error {
	switch {
	case seen.Failed > 0:
		return &LossError{Failed: uint64(seen.Failed)}
	case seen.Mirror == 0:
		return errors.New("no request reached the mirror")
	}
	return nil
}

// NewTwins starts the clusters and their surroundings. Call Down even if it fails.
func NewTwins(ctx context.Context, blue *Rig) (m *Twins, err error) {
	green := *blue
	blue.Name, green.Name, green.Nodes = "blue", "green", 1
	green.Dir = filepath.Join(blue.Dir, "green")
	m = &Twins{blue: blue, green: &green, labs: map[*Rig]spec.Lab{}, stop: func() {}}
	if m.dir, err = filepath.Abs(blue.Dir); err != nil { // the name servers change their working directory
		return m, err
	}
	blue.Say("a cluster, blue, on flannel, and its mirror, green, on Calico")
	for rig, network := range map[*Rig]string{blue: "flannel", &green: "calico"} {
		if err := rig.Up(ctx, network); err != nil {
			return m, err
		}
		if m.labs[rig], err = rig.Spec(ctx); err != nil {
			return m, err
		}
		if err := m.fabricConfig(rig); err != nil {
			return m, err
		}
	}
	blue.Say("%d services on blue, each with a name and an address of its own", mirrorServices)
	if err := m.deploy(ctx); err != nil {
		return m, err
	}
	stop, err := m.surround(ctx)
	if err == nil {
		m.stop = stop
	}
	return m, err
}

// Down stops everything that NewTwins started, except blue, which belongs to the caller.
func (m *Twins) Down() {
	m.stop()
	m.green.Down() //nolint:errcheck // the story's own error counts
}

// Under calls a function while clients on the fabric resolve names and send requests without pause, and returns their
// results.
func (m *Twins) Under(ctx context.Context, do func() error) (names.Tally, error) {
	m.blue.Say("clients that resolve names and send requests without pause")
	count, err := m.clients(ctx)
	if err != nil {
		return names.Tally{}, err
	}
	done := do()
	seen, err := count()
	if err != nil {
		return seen, errors.Join(done, err)
	}
	m.blue.Say("results of the clients")
	fmt.Fprintf(m.blue.Out, "%d requests, %d of them answered by the mirror, %d failed or got a wrong answer; at "+
		"most %d ms between two right answers for one name\n",
		seen.Requests, seen.Mirror, seen.Failed, seen.Gap.Milliseconds())
	for _, line := range seen.Wrong {
		fmt.Fprintln(m.blue.Out, line)
	}
	return seen, done
}

// Rehearse copies once, so that the mirror's services have addresses.
func (m *Twins) Rehearse(ctx context.Context) error {
	m.blue.Say("a first copy, so that the mirror's services get their addresses")
	if err := m.Run(ctx, "mirror", "copy", "-n", "shop", "--mirror-kubeconfig", m.config(m.green)); err != nil {
		return err
	}
	return m.addresses(ctx, m.green)
}

// Plan makes the plan of the whole change, and returns its file.
func (m *Twins) Plan(ctx context.Context) (string, error) {
	m.blue.Say("Theseus: plan, apply")
	change, err := m.blue.ChangeFlags(ctx)
	if err != nil {
		return "", err
	}
	plan := filepath.Join(m.dir, "plan.yaml")
	args := append(append([]string{"plan"}, change...), "--strategy", "mirror", "--switch-strategy",
		cmp.Or(m.blue.Strategy, "recreate"), "--mirror-kubeconfig", m.config(m.green), "-n", "shop", "--because",
		"the network of blue is being changed", "--zones", filepath.Join(m.dir, "zones.yaml"), "--ttl", "2", "--bake",
		"3s", "--first", "2", "--growth", "3", "--yes-really", "--max-lost", "20", "-o", plan)
	if m.blue.Strategy == "surge" { // the hooks leave the fabric, and the load balancers follow the nodes
		node := fmt.Sprintf("nsenter --net=/proc/%d/ns/net %s node --name %s", os.Getpid(), m.blue.Lab, m.blue.Name)
		args = append(args,
			hooks(node, node+" remove $THESEUS_NODE && "+strings.Join(m.route(m.blue, m.blue.Nodes+1), " "))...)
	}
	return plan, m.Run(ctx, args...)
}

// Lose breaks the mirror's load balancer of a service, or repairs it.
func (m *Twins) Lose(ctx context.Context, service int, lost bool) error {
	verb := map[bool]string{true: "add", false: "delete"}[lost]
	_, err := m.inside(ctx, nil, "ip", "route", verb, "unreachable", m.address(m.green, service).String())
	return err
}

// Run runs theseus on the fabric, like the clients, and shows its output: on a terminal with the live view.
func (m *Twins) Run(ctx context.Context, args ...string) error {
	fmt.Fprintf(m.blue.Out, "$ theseus %s\n", strings.Join(args, " "))
	command := m.Command(ctx, args...)
	command.Stdout, command.Stderr = m.blue.Out, m.blue.Out
	return command.Run()
}

// Command is theseus on the fabric.
func (m *Twins) Command(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"exec", "--network", "--name", m.blue.Name, "--", m.blue.Theseus},
		append(args, "--kubeconfig", m.config(m.blue))...)
	command := exec.CommandContext(ctx, m.blue.Lab, args...)
	command.Env = append(os.Environ(), "THESEUS_STATE_DIR="+filepath.Join(m.dir, "state"))
	return command
}

// inside runs a program on the fabric.
func (m *Twins) inside(ctx context.Context, out io.Writer, args ...string) (string, error) {
	return m.blue.run(ctx, nil, out, m.blue.Lab, append([]string{"exec", "--name", m.blue.Name, "--"}, args...)...)
}

// config is the kubeconfig with which a cluster is reached on the fabric.
func (m *Twins) config(rig *Rig) string { return filepath.Join(rig.Dir, "fabric.kubeconfig") }

func (m *Twins) fabricConfig(rig *Rig) error {
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

// address is that of a service's load balancer at a cluster.
func (m *Twins) address(rig *Rig, service int) netip.Addr {
	base := m.labs[rig].NodeIP(1).As4()
	base[3] = byte(96 + service)
	return netip.AddrFrom4(base)
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
func (m *Twins) deploy(ctx context.Context) error {
	text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
	for i := range mirrorServices {
		text += fmt.Sprintf(mirrorService, i, mirrorOrigin)
	}
	if _, err := m.blue.Kubectl(ctx, strings.NewReader(text), "apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := m.blue.Kubectl(ctx, nil, "-n", "shop", "wait", "--for=condition=Available", "deployment", "--all",
		"--timeout=120s"); err != nil {
		return err
	}
	return m.addresses(ctx, m.blue)
}

// addresses acts as a load-balancer controller: every Service and Ingress gets an address that leads to the first node,
// where kube-proxy forwards it.
func (m *Twins) addresses(ctx context.Context, rig *Rig) error {
	for i := range mirrorServices {
		patch := fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, m.address(rig, i))
		for _, kind := range []string{"service", "ingress"} {
			if _, err := rig.Kubectl(ctx, nil, "-n", "shop", "patch", kind, fmt.Sprint("s", i), "--subresource=status",
				"--type=merge", "-p", patch); err != nil {
				return err
			}
		}
	}
	_, err := m.inside(ctx, nil, m.route(rig, 1)...)
	return err
}

// route leads from the fabric to a cluster's load balancers, by one of its nodes.
func (m *Twins) route(rig *Rig, node int) []string {
	addresses := netip.PrefixFrom(m.address(rig, 0), loadBalancers)
	return []string{"ip", "route", "replace", addresses.String(), "via", m.labs[rig].NodeIP(node).String()}
}

// surround runs BIND with the services' names, and unbound in front of it, on the fabric.
func (m *Twins) surround(ctx context.Context) (stop func(), err error) {
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
		one, err := server.Start(filepath.Join(m.dir, fmt.Sprintf("nameserver-%d.log", i)), m.blue.Lab,
			"exec", "--name", m.blue.Name, "--")
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	return stop, nil
}

// clients starts clients on the fabric, and waits until each has had an answer. The returned function stops them, and
// returns their results since.
func (m *Twins) clients(ctx context.Context) (count func() (names.Tally, error), err error) {
	clients := names.Clients{Resolver: fmt.Sprint("127.0.0.1:", unboundPort), Port: mirrorPort,
		Pause: 50 * time.Millisecond}
	for i := range mirrorServices {
		clients.Targets = append(clients.Targets, names.Target{Host: fmt.Sprintf("s%d.%s", i, mirrorOrigin),
			Original: m.address(m.blue, i).String(), Mirror: m.address(m.green, i).String()})
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

// NameClients runs the clients that standard input describes, until it ends, and prints their results.
func NameClients(ctx context.Context, in io.Reader, out io.Writer) error {
	var clients names.Clients
	decoder := json.NewDecoder(in)
	if err := decoder.Decode(&clients); err != nil {
		return fmt.Errorf("the clients' requests: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		io.Copy(io.Discard, io.MultiReader(decoder.Buffered(), in)) //nolint:errcheck // only its end matters
		cancel()
	}()
	if err := clients.Await(ctx); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(clients.Run(ctx))
}
