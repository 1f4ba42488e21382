package migration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// guests are two pods on two nodes, and what is hard to bear for those who lose a packet: one is restarted by its first
// probe that fails; a PostgreSQL server in it has a transaction open with a client in the other; and flows of all
// kinds lead to it and from it.
type guests struct {
	t      *testing.T
	rig    *scenario.Rig
	client *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	flows  []sourced
	denied *flow
	local  func() error // asks from the pod's own node for what others are denied
	second space        // the network of the second pod
	spaces []space
	pid    string
	ready  string
}

// sourced is a flow with the address that its other end must see; empty for any, but one.
type sourced struct {
	*flow
	source string
}

// Ports of the guests: those of their nodes, those where the first one answers and where policy lets nobody, and its
// Services'.
const (
	answersPort  = "18081"
	guestPorts   = "18080|" + answersPort // of nodes
	answers      = "9100"
	denied       = "9101"
	nodePort     = "30100"
	nodePortHere = "30101" // of the node that the pod is on alone
)

// guestPods are made on a node each.
const guestPods = `
apiVersion: v1
kind: Pod
metadata: {name: guest-%[1]d, namespace: shop, labels: {app: guest, guest: "%[1]d"}}
spec:
  nodeName: %[2]s
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 5
  containers:
    - name: guest
      image: theseus.dev/workload:lab
      imagePullPolicy: IfNotPresent
      resources: {requests: {cpu: 50m, memory: 16Mi}}
      args: [serve, "--http=:8080"]
      env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
      ports:
        - {containerPort: 8080, hostPort: 18080, protocol: TCP}
        - {containerPort: 9100, hostPort: 18081, protocol: TCP}
        - {containerPort: 9100, hostPort: 18081, protocol: UDP}
      readinessProbe: &probe
        httpGet: {path: /, port: 8080}
        periodSeconds: 1
        timeoutSeconds: 5
        failureThreshold: 1
      livenessProbe: *probe
`

// guestWays are the ways to the first of them, and the policy that leaves out one of its ports.
const guestWays = `
apiVersion: v1
kind: Service
metadata: {name: guest, namespace: shop}
spec:
  type: NodePort
  selector: {guest: "1"}
  ports: [{name: tcp, port: 9100, nodePort: 30100, protocol: TCP}, {name: udp, port: 9100, nodePort: 30100, protocol: UDP}]
---
apiVersion: v1
kind: Service
metadata: {name: guest-here, namespace: shop}
spec:
  type: NodePort
  externalTrafficPolicy: Local
  selector: {guest: "1"}
  ports: [{name: tcp, port: 9100, nodePort: 30101, protocol: TCP}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: guest, namespace: shop}
spec:
  podSelector: {matchLabels: {guest: "1"}}
  policyTypes: [Ingress]
  ingress: [{ports: [{protocol: TCP, port: 8080}, {protocol: TCP, port: 9100}, {protocol: UDP, port: 9100}, {protocol: TCP, port: 5432}]}]
`

// invite makes the pods and begins all that is to go on while the network changes.
func invite(t *testing.T, rig *scenario.Rig) *guests {
	t.Helper()
	g := &guests{t: t, rig: rig}
	nodes := rig.NodeNames()
	for i, node := range nodes[:2] {
		g.apply(fmt.Sprintf(guestPods, i+1, node))
	}
	g.apply(guestWays)
	g.kubectl("wait", "--for=condition=Ready", "pod/guest-1", "pod/guest-2", "--timeout=60s")
	g.ready = g.readiness()
	first, second := g.address("guest-1"), g.address("guest-2")
	g.serve(nodes[0], first)
	g.connect(nodes[1], second, first)
	g.pid = g.ask("BEGIN; CREATE TABLE diary (line text); INSERT INTO diary VALUES " +
		"('before'); SELECT pg_backend_pid();")
	g.talk(first, second)
	return g
}

// talk begins the flows: between the guests, from the nodes and from a machine that is none of them, and to that
// machine.
func (g *guests) talk(first, second string) {
	g.t.Helper()
	t, nodes := g.t, g.rig.NodeNames()
	one, two, far := g.space(nodes[0], first), g.space(nodes[1], second), g.space(nodes[len(nodes)-1], "")
	here, outside := g.space(nodes[0], ""), spaceOf(t, rigtest.OutsideSpace(t, g.rig))
	g.second, g.spaces = two, append(g.spaces, outside)
	for _, port := range []string{answers, denied} {
		one.answer(t, port)
	}
	outside.answer(t, answers)

	service := g.kubectl("get", "service", "guest", "-o", "jsonpath={.spec.clusterIP}")
	host1, host2 := g.kubectl("get", "pod", "guest-1", "-o", "jsonpath={.status.hostIP}"),
		g.kubectl("get", "pod", "guest-2", "-o", "jsonpath={.status.hostIP}")
	client := g.kubectl("get", "endpoints", "-n", "default", "kubernetes", "-o",
		"jsonpath={.subsets[0].addresses[0].ip}")
	leaves := host1 // with the address of its node
	if g.rig.Network == "bridge" {
		leaves = first
	}
	for _, f := range []struct {
		name     string
		from     space
		to, port string
		networks string
		source   string
	}{
		{"pod to pod", two, first, answers, "tcp udp new", second},
		{"pod to Service", two, service, answers, "tcp udp new", second},
		{"pod to itself by its Service", one, service, answers, "tcp", ""},
		{"pod to outside", one, client, answers, "tcp udp new", leaves},
		{"host to pod", far, first, answers, "tcp udp", ""},
		{"host to NodePort", far, host2, nodePort, "tcp udp", ""},
		{"outside to NodePort", outside, host2, nodePort, "tcp udp", ""},
		{"outside to NodePort of its node", outside, host1, nodePortHere, "tcp new", client},
		{"outside to hostPort", outside, host1, answersPort, "tcp udp new", client},
	} {
		for _, network := range strings.Fields(f.networks) {
			to := net.JoinHostPort(f.to, f.port)
			var made *flow
			if network == "new" {
				made = f.from.renew(f.name, to)
			} else {
				made = f.from.keep(t, f.name, network, to)
			}
			g.flows = append(g.flows, sourced{made, f.source})
		}
	}
	shut := net.JoinHostPort(first, denied)
	g.local = func() error {
		conn, err := here.dial("tcp4", shut, answerLimit)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	g.denied = two.denied(t, "pod to pod", shut)
}

// space is the network namespace of a node, or of its pod that has an address.
func (g *guests) space(node, address string) space {
	g.t.Helper()
	out, err := g.on(node, address, "stat", "-L", "-c", "%i", "/proc/self/ns/net").Output()
	if err != nil {
		g.t.Fatalf("the network namespace of %s on %s: %v", address, node, err)
	}
	s := spaceOf(g.t, string(out))
	g.spaces = append(g.spaces, s)
	return s
}

func (g *guests) address(pod string) string {
	g.t.Helper()
	return g.kubectl("get", "pod", pod, "-o", "jsonpath={.status.podIP}")
}

func (g *guests) apply(manifest string) {
	g.t.Helper()
	if _, err := g.rig.Kubectl(g.t.Context(), strings.NewReader(manifest), "apply", "-f", "-"); err != nil {
		g.t.Fatal(err)
	}
}

func (g *guests) kubectl(args ...string) string {
	g.t.Helper()
	out, err := g.rig.Kubectl(g.t.Context(), nil, append([]string{"-n", workload.Namespace}, args...)...)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// readiness is since when each guest has been ready, and how often it was restarted.
func (g *guests) readiness() string {
	g.t.Helper()
	return g.kubectl("get", "pods", "-l", "app=guest", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].lastTransitionTime} {.status.containerStatuses[0].restartCount}{"\n"}{end}`)
}

// on prepares a command in the namespaces of a node, and in those of one of its pods where an address is given.
func (g *guests) on(node, address string, command ...string) *exec.Cmd {
	g.t.Helper()
	args := []string{"node", "exec", "--name", g.rig.Name, node, "--"}
	if address != "" {
		space, err := g.rig.OnNode(g.t.Context(), node, "sh", "-c",
			`for n in /run/netns/*; do nsenter --net=$n ip -4 -o address | grep -qF " `+
				address+`/" && echo $n; done; true`)
		if err != nil || len(strings.Fields(space)) != 1 {
			g.t.Fatalf("the network namespace of %s on %s: %q, %v", address, node, space, err)
		}
		args = append(args, "nsenter", "--net="+strings.TrimSpace(space), "--")
	}
	return exec.CommandContext(context.WithoutCancel(g.t.Context()), g.rig.Lab, append(args, command...)...)
}

// serve starts the database in the first pod's network.
func (g *guests) serve(node, address string) {
	g.t.Helper()
	account, err := user.Lookup("postgres")
	if err != nil {
		g.t.Fatalf("%v: install Debian's postgresql-15 (make setup)", err)
	}
	script := fmt.Sprintf(`set -e; d=/run/guest-db; rm -rf $d; mkdir $d; chown %[1]s:%[2]s $d; cd $d
		as="setpriv --reuid=%[1]s --regid=%[2]s --clear-groups /usr/lib/postgresql/15/bin"
		$as/initdb -D $d/data -A trust -U theseus -E UTF8 --locale=C -N > /dev/null
		echo 'host all all 0.0.0.0/0 trust' >> $d/data/pg_hba.conf
		$as/pg_ctl -D $d/data -w -l $d/log -o "-k $d -h %[3]s -F" start > /dev/null 2>&1 < /dev/null || { cat $d/log; exit 1; }`, account.Uid, account.Gid, address)
	if out, err := g.on(node, address, "sh", "-c", script).CombinedOutput(); err != nil {
		g.t.Fatalf("the database does not start: %v\n%s", err, out)
	}
	g.t.Cleanup(func() {
		stop := fmt.Sprintf("setpriv --reuid=%s --regid=%s --clear-groups /usr/lib/postgresql/15/bin/pg_ctl -D "+
			"/run/guest-db/data -m immediate stop", account.Uid, account.Gid)
		if out, err := g.on(node, "", "sh", "-c", stop).CombinedOutput(); err != nil {
			g.t.Logf("the database does not stop: %v\n%s", err, out)
		}
	})
}

// connect opens the one session.
func (g *guests) connect(node, from, to string) {
	g.t.Helper()
	g.client = g.on(node, from, "psql", "-h", to, "-U", "theseus", "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1")
	var err error
	if g.in, err = g.client.StdinPipe(); err != nil {
		g.t.Fatal(err)
	}
	out, err := g.client.StdoutPipe()
	if err != nil {
		g.t.Fatal(err)
	}
	g.out, g.client.Stderr = bufio.NewReaderSize(out, 1<<20), g.client.Stdout
	if err := g.client.Start(); err != nil {
		g.t.Fatal(err)
	}
}

// ask sends statements of which the last one answers with one line.
func (g *guests) ask(statements string) string {
	g.t.Helper()
	late := time.AfterFunc(time.Minute, func() { _ = g.client.Process.Kill() })
	defer late.Stop()
	if _, err := io.WriteString(g.in, statements+"\n"); err != nil {
		g.t.Fatal(err)
	}
	line, err := g.out.ReadString('\n')
	if err != nil {
		g.t.Fatalf("the session has ended: %q, %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// leave ends all, and demands that nobody noticed anything.
func (g *guests) leave() {
	g.t.Helper()
	for _, f := range g.flows {
		f.end(g.t, f.source)
	}
	g.denied.endDenied(g.t)
	if err := g.local(); err != nil { // else what is denied would not be there at all
		g.t.Errorf("the pod's own node is not answered either: %v", err)
	}
	for _, s := range g.spaces {
		s.Close()
	}
	if pid := g.ask("INSERT INTO diary VALUES ('after'); COMMIT; SELECT pg_backend_pid();"); pid != g.pid {
		g.t.Errorf("another session answers: %s, it was %s", pid, g.pid)
	}
	if got := g.ask("SELECT string_agg(line, ' ' ORDER BY line) FROM diary;"); got != "after before" {
		g.t.Errorf("the transaction wrote %q", got)
	}
	const large = 20_000_000
	if got := g.ask(fmt.Sprintf("SELECT repeat('x', %d);", large)); len(got) != large {
		g.t.Errorf("of a large answer came %d bytes", len(got))
	}
	_ = g.in.Close()
	if err := g.client.Wait(); err != nil {
		g.t.Errorf("the session ended with %v", err)
	}
	if ready := g.readiness(); ready != g.ready {
		g.t.Errorf("ready since, and restarts, were\n%sand are\n%s", g.ready, ready)
	}
}
