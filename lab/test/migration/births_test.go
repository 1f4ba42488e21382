package migration

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// births are pods that are made while the network changes, one after the other on the nodes in turn. Each becomes Ready
// and answers; two of three are deleted at once, and the others stay.
type births struct {
	t    *testing.T
	rig  *scenario.Rig
	from space // a pod that asks them
	stop context.CancelFunc
	done chan struct{}

	made   int
	stay   map[string]string // name to address
	failed []error
}

const nursery = "nursery"

const newborn = `
apiVersion: v1
kind: Pod
metadata: {name: newborn-%[1]d, namespace: nursery, labels: {app: newborn}}
spec:
  nodeName: %[2]s
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 0
  containers:
    - name: newborn
      image: theseus.dev/workload:lab
      imagePullPolicy: IfNotPresent
      resources: {requests: {cpu: 5m, memory: 8Mi}}
      args: [serve, "--http=:8080"]
      readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 5}
`

// give begins to make them.
func give(t *testing.T, rig *scenario.Rig, from space) *births {
	t.Helper()
	if _, err := rig.Kubectl(t.Context(), nil, "create", "namespace", nursery); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	b := &births{t: t, rig: rig, from: from, stop: stop, done: make(chan struct{}), stay: map[string]string{}}
	t.Cleanup(stop)
	go func() {
		defer close(b.done)
		for ctx.Err() == nil && len(b.failed) < 3 {
			b.made++
			if err := b.one(b.made); err != nil {
				b.failed = append(b.failed,
					fmt.Errorf("at %s, newborn-%d: %w", time.Now().Format(time.TimeOnly), b.made, err))
			}
		}
	}()
	return b
}

// one makes one.
func (b *births) one(number int) error {
	ctx, name := b.t.Context(), fmt.Sprintf("newborn-%d", number)
	nodes := b.rig.NodeNames()
	if _, err := b.rig.Kubectl(ctx, strings.NewReader(fmt.Sprintf(newborn, number, nodes[number%len(nodes)])),
		"apply", "-f", "-"); err != nil {
		return err
	}
	if _, err := b.rig.Kubectl(ctx, nil, "-n", nursery, "wait", "--for=condition=Ready", "pod/"+name,
		"--timeout=90s"); err != nil {
		return err
	}
	address, err := b.rig.Kubectl(ctx, nil, "-n", nursery, "get", "pod", name, "-o", "jsonpath={.status.podIP}")
	if err == nil {
		err = b.asks(address)
	}
	if err == nil && number%3 != 0 {
		_, err = b.rig.Kubectl(ctx, nil, "-n", nursery, "delete", "pod", name)
	} else {
		b.stay[name] = address
	}
	return err
}

// asks connects to one.
func (b *births) asks(address string) error {
	conn, err := b.from.dial("tcp4", net.JoinHostPort(address, "8080"), answerLimit)
	if err != nil {
		return err
	}
	return conn.Close()
}

// end makes no more. Those that stayed were never restarted, have the addresses that they had, each its own, and
// answer; then they go as well.
func (b *births) end() {
	b.t.Helper()
	b.stop()
	<-b.done
	b.t.Logf("%d pods were made meanwhile, %d of them stayed", b.made, len(b.stay))
	if len(b.failed) > 0 || len(b.stay) < len(b.rig.NodeNames()) {
		b.t.Errorf("of %d pods that were made meanwhile: %v", b.made, b.failed)
	}
	var want []string
	for name, address := range b.stay {
		want = append(want, name+" "+address+" 0 True")
		if err := b.asks(address); err != nil {
			b.t.Errorf("%s: %v", name, err)
		}
	}
	out, err := b.rig.Kubectl(b.t.Context(), nil, "-n", nursery, "get", "pods", "-l", "app=newborn", "-o",
		`jsonpath={range .items[*]}{.metadata.name} `+
			`{.status.podIP} {.status.containerStatuses[0].restartCount} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	if err != nil {
		b.t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		b.t.Errorf("those that stayed (name, address, restarts, ready) were\n%s\nand are\n%s",
			strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	if _, err := b.rig.Kubectl(b.t.Context(), nil, "delete", "namespace", nursery); err != nil {
		b.t.Fatal(err)
	}
}
