// Package swarm tests changes of many nodes whose agents are real and whose nodes are a model.
package swarm

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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
			if after := pods(ctx, t, cluster); after != before {
				t.Errorf("pods before:\n%s\nafter:\n%s", before, after)
			}
			left, err := cluster.Kubectl(ctx, "", "-n", "kube-system", "get", "daemonsets", "-o", "name")
			if err != nil || strings.Contains(left, "calico") {
				t.Errorf("the new network is left: %s (%v)", left, err)
			}
		})
	}
}

// start starts a swarm until the test ends.
func start(ctx context.Context, t *testing.T, o swarm.Options) *swarm.Cluster {
	t.Helper()
	programs, err := filepath.Abs(bin)
	if err != nil {
		t.Fatal(err)
	}
	o.Theseus, o.Dir, o.Out = filepath.Join(programs, "theseus"), t.TempDir(), os.Stdout
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
