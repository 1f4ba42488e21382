// Package swarm tests changes of many nodes whose agents are real and whose nodes are a model.
package swarm

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/build"
	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/swarm"
)

// bin holds the built programs: `make build` makes them.
const bin = "../../../bin"

// TestFaults: something goes wrong on one of 20 nodes when its pods are to be adopted, while another node is slow. The
// change is taken back, the node is named, and every pod is the one it was, with its address.
func TestFaults(t *testing.T) {
	const faulty, slow = "node-4", "node-7=slow:join:10s"
	for _, test := range []struct {
		fault, said string
	}{
		{"fail:adopt", "the agent of " + faulty + " says: a fault of the swarm"},
		{"lose:adopt:50%", "gate: FAIL: .* probes lost on .* from or to " + faulty + `\b`},
	} {
		kind, _, _ := strings.Cut(test.fault, ":")
		t.Run(kind, func(t *testing.T) {
			if kind == "lose" {
				rigtest.Full(t, "a node of a swarm that loses half of its packets")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			cluster := start(ctx, t, swarm.Options{Nodes: 20, Pods: 6, Strategy: "adopt", Times: 0.1,
				Faults: []string{faulty + "=" + test.fault, slow}})
			before := pods(ctx, t, cluster)
			report, err := cluster.Change(ctx, "--bake=1s", "--waves=1,0")
			if err != nil {
				t.Fatal(err)
			}
			if err := report.Print(os.Stdout); err != nil {
				t.Error(err)
			}
			if report.Apply.Code == 0 || !regexp.MustCompile(test.said).MatchString(report.Apply.Said) {
				t.Errorf("exit %d, and %s is not said", report.Apply.Code, test.said)
			}
			back(ctx, t, cluster, before)
		})
	}
}

// TestManyFaults: a change of 200 nodes meets five faults. A node is slow, the agent of another ends in its work, the
// API server is away, Theseus is killed and resumed: the change goes on. Then one node loses 1 % of its packets: the
// gate names it, the change is taken back, and every pod is the one it was, with its address.
func TestManyFaults(t *testing.T) {
	rigtest.Full(t, "five faults in a swarm of 200 nodes")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	meets := &meets{}
	cluster := start(ctx, t, swarm.Options{Nodes: 200, Pods: 2, Strategy: "adopt", Times: 0.1, Out: meets,
		Faults: []string{"node-7=slow:join:10s", "node-9=restart:join", "node-4=lose:adopt:1%"}})
	defer meets.wait()
	meets.all = []*meeting{
		{said: regexp.MustCompile(`\] Start Calico next to flannel on node-2`), do: func() {
			if err := cluster.Restart(ctx, "kube-apiserver", 5*time.Second); err != nil {
				t.Error(err)
			}
		}},
		{said: regexp.MustCompile(`\] Adopt the pods of node-1`), do: func() {
			if err := cluster.Kill(); err != nil {
				t.Error(err)
			}
		}},
	}
	before := pods(ctx, t, cluster)
	report, err := cluster.Change(ctx, "--bake=1s", "--waves=1,8,0")
	if err != nil {
		t.Fatal(err)
	}
	if report.Apply.Code != -1 {
		t.Fatalf("theseus ended with %d before it was killed", report.Apply.Code)
	}
	resumed, err := cluster.Theseus(ctx, "resume")
	if err != nil {
		t.Fatal(err)
	}
	meets.wait()
	for _, m := range meets.all {
		if !m.met {
			t.Errorf("%s was not said, so its fault did not happen", m.said)
		}
	}
	if resumed.Code == 0 || !regexp.MustCompile(`gate: FAIL: .* probes lost on .* from or to node-4\b`).
		MatchString(resumed.Said) {
		t.Errorf("exit %d; node-4, which loses packets, is not named", resumed.Code)
	}
	back(ctx, t, cluster, before)
}

// TestRequests: a whole change of 60 nodes asks the API server for no more than what this says, of theseus and of the
// agents, for each node.
func TestRequests(t *testing.T) {
	rigtest.Full(t, "a whole change of 60 nodes of a swarm")
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	cluster := start(ctx, t, swarm.Options{Nodes: 60, Pods: 6, Strategy: "adopt", Times: 0.1})
	report, err := cluster.Change(ctx, "--bake=2s")
	if err != nil {
		t.Error(err)
	}
	if err := report.Print(os.Stdout); err != nil {
		t.Error(err)
	}
	if report.Apply.Code != 0 {
		t.Fatalf("the change ended with %d", report.Apply.Code)
	}
	for who, one := range map[string]struct {
		requests map[string]float64
		most     float64
	}{"theseus": {report.Load.Theseus, 240}, "the agents": {report.Load.Agents, 800}} {
		if each := swarm.Sum(one.requests) / float64(report.Nodes); each > one.most || each == 0 {
			t.Errorf("%.1f requests of %s for each node, want at most %.0f", each, who, one.most)
		}
	}
}

// meets calls functions when theseus says something, each once.
type meets struct {
	lock    sync.Mutex
	all     []*meeting
	said    strings.Builder
	running sync.WaitGroup
}

type meeting struct {
	said *regexp.Regexp
	do   func()
	met  bool
}

// Write implements io.Writer.
func (m *meets) Write(text []byte) (int, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.said.Write(text)
	for _, one := range m.all {
		if !one.met && one.said.MatchString(m.said.String()) {
			one.met = true
			m.running.Go(one.do)
		}
	}
	return os.Stdout.Write(text)
}

func (m *meets) wait() { m.running.Wait() }

// back demands that the change was taken back whole.
func back(ctx context.Context, t *testing.T, cluster *swarm.Cluster, before string) {
	t.Helper()
	if after := pods(ctx, t, cluster); after != before {
		t.Errorf("pods before:\n%s\nafter:\n%s", before, after)
	}
	left, err := cluster.Kubectl(ctx, "", "-n", "kube-system", "get", "daemonsets", "-o", "name")
	if err != nil || strings.Contains(left, "calico") {
		t.Errorf("the new network is left: %s (%v)", left, err)
	}
}

// start starts a swarm until the test ends.
func start(ctx context.Context, t *testing.T, o swarm.Options) *swarm.Cluster {
	t.Helper()
	programs, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	o.Theseus, o.Dir = filepath.Join(programs, "theseus"), t.TempDir()
	if o.Out == nil {
		o.Out = os.Stdout
	}
	if _, err := os.Stat(o.Theseus); err != nil {
		t.Fatalf("%v: run `make build` first", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Build(ctx, build.New(filepath.Dir(programs), filepath.Join(cache, "theseus-lab"),
		os.Stdout)); err != nil {
		t.Fatal(err)
	}
	cluster, err := swarm.Start(ctx, o)
	t.Cleanup(cluster.Stop)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// pods are the users' pods, with their UIDs and addresses.
func pods(ctx context.Context, t *testing.T, cluster *swarm.Cluster) string {
	t.Helper()
	out, err := cluster.Kubectl(ctx, "", "get", "pods", "--all-namespaces", "--no-headers", "--sort-by=.metadata.uid",
		"--field-selector=metadata.namespace!=kube-system,metadata.namespace!=kube-flannel,"+
			"metadata.namespace!=theseus-system", "-o",
		"custom-columns=NS:.metadata.namespace,N:.metadata.name,U:.metadata.uid,IP:.status.podIP,ON:.spec.nodeName")
	if err != nil {
		t.Fatal(err)
	}
	return out
}
