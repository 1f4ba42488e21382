package migration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"os/user"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/scenario"
	"github.com/theseus-cni/theseus/lab/internal/workload"
)

// guests are two pods on two nodes, and what is hard to bear for those who lose a packet: one is restarted by its first
// probe that fails, and is reached through a port of its node; a PostgreSQL server in it has a transaction open with
// a client in the other.
type guests struct {
	t      *testing.T
	rig    *scenario.Rig
	client *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	knocks strings.Builder
	served sync.WaitGroup
	pid    string
	ready  string
}

const (
	guestPort = "18080"
	guestFlag = "/run/guest-knocks" // the knocking goes on while it is there
)

// guestPods are made on a node each.
const guestPods = `
apiVersion: v1
kind: Pod
metadata: {name: guest-%[1]d, namespace: shop, labels: {app: guest}}
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
      ports: [{containerPort: 8080, hostPort: %[3]s, protocol: TCP}]
      readinessProbe: &probe
        httpGet: {path: /, port: 8080}
        periodSeconds: 1
        timeoutSeconds: 5
        failureThreshold: 1
      livenessProbe: *probe
`

// invite makes the pods and begins all that is to go on while the network changes.
func invite(t *testing.T, rig *scenario.Rig) *guests {
	t.Helper()
	g := &guests{t: t, rig: rig}
	nodes := rig.NodeNames()
	for i, node := range nodes[:2] {
		if _, err := rig.Kubectl(t.Context(), strings.NewReader(fmt.Sprintf(guestPods, i+1, node, guestPort)), "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	g.kubectl("wait", "--for=condition=Ready", "pod/guest-1", "pod/guest-2", "--timeout=60s")
	g.ready = g.readiness()
	g.serve(nodes[0], g.kubectl("get", "pod", "guest-1", "-o", "jsonpath={.status.podIP}"))
	g.connect(nodes[1], g.kubectl("get", "pod", "guest-2", "-o", "jsonpath={.status.podIP}"), g.kubectl("get", "pod", "guest-1", "-o", "jsonpath={.status.podIP}"))
	g.pid = g.ask("BEGIN; CREATE TABLE diary (line text); INSERT INTO diary VALUES ('before'); SELECT pg_backend_pid();")
	g.knock(nodes[1], g.kubectl("get", "pod", "guest-1", "-o", "jsonpath={.status.hostIP}"))
	return g
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
			`for n in /run/netns/*; do nsenter --net=$n ip -4 -o address | grep -qF " `+address+`/" && echo $n; done; true`)
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
		stop := fmt.Sprintf("setpriv --reuid=%s --regid=%s --clear-groups /usr/lib/postgresql/15/bin/pg_ctl -D /run/guest-db/data -m immediate stop", account.Uid, account.Gid)
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

// knock asks for the first pod again and again through its node's port, each time by a new connection.
func (g *guests) knock(node, host string) {
	g.t.Helper()
	c := g.on(node, "", "sh", "-c", `touch `+guestFlag+`; while [ -e `+guestFlag+` ]; do
		curl -s -m 5 -o /dev/null http://`+host+`:`+guestPort+`/ && echo fine || echo failed; sleep 0.1; done`)
	c.Stdout = &g.knocks
	if err := c.Start(); err != nil {
		g.t.Fatal(err)
	}
	g.served.Go(func() { c.Wait() }) //nolint:errcheck // what it printed tells
}

// leave ends all, and demands that nobody noticed anything.
func (g *guests) leave() {
	g.t.Helper()
	if _, err := g.rig.OnNode(g.t.Context(), g.rig.NodeNames()[1], "rm", "-f", guestFlag); err != nil {
		g.t.Fatal(err)
	}
	g.served.Wait()
	fine, failed := strings.Count(g.knocks.String(), "fine"), strings.Count(g.knocks.String(), "failed")
	g.t.Logf("through the port of a node: %d fine, %d failed", fine, failed)
	if fine < 100 || failed > 0 {
		g.t.Errorf("through the port of a node: %d fine, %d failed", fine, failed)
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
