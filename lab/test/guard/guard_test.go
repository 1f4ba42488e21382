// Package guard runs theseus guard around commands on a real cluster under traffic.
package guard

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// bin holds the built programs: `make build` makes them.
const bin = "../../../bin"

// cut stops forwarding on a node for three seconds, and with it every packet of its pods.
const cut = "iptables -w -I FORWARD 1 -j DROP && sleep 3; " + mend

// mend lets a node forward again.
const mend = "iptables -w -D FORWARD -j DROP"

// TestGuard: a harmless command is good; one that cuts off a node's pods for three seconds is a proven loss, which is named. Both
// leave nothing behind but the journal.
func TestGuard(t *testing.T) {
	rig := rigtest.New(t, bin, "gd", 2, "flannel")
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	guard := func(code int, texts []string, report string, command ...string) {
		t.Helper()
		args := append([]string{"guard", "--agent-image", scenario.AgentImage, "--probe-interval", "60ms", "--max-lost", "3",
			"--baseline", "5s", "--quiet", "6s", "--watch-at-most", "1m", "-o", report, "--"}, command...)
		rigtest.Run(t, rig, "here", code, texts, args...)
		nothingLeft(t, rig)
	}
	report := filepath.Join(rig.Dir, "harmless.html")
	guard(0, []string{"good: the command succeeded", "the report is " + report}, report,
		rig.Lab, "kubectl", "--name", rig.Name, "annotate", "namespace", "default", "guarded=true", "--overwrite")
	rigtest.NothingLost(t, rig, time.Minute, "after the harmless command")

	node := rig.NodeNames()[1]
	t.Cleanup(func() {
		if out, err := rig.OnNode(context.Background(), node, "sh", "-c", mend+" 2>/dev/null || true"); err != nil {
			t.Logf("%v: %s", err, out)
		}
	})
	report = filepath.Join(rig.Dir, "cut.json")
	guard(7, []string{"LOSS: ", "error: a loss is proven: ", "the worst: ", node + "/old"}, report,
		rig.Lab, "node", "exec", "--name", rig.Name, node, "--", "sh", "-c", cut)
	text, err := os.ReadFile(report)
	if err != nil || !strings.Contains(string(text), `"strategy": "guard"`) && !strings.Contains(string(text), `"strategy":"guard"`) {
		t.Errorf("the report: %v, %d bytes", err, len(text))
	}
}

// nothingLeft waits until no pod, DaemonSet or Service of the probes is left. Pods of a deleted DaemonSet take some seconds to end.
func nothingLeft(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		left, err := rig.Kubectl(t.Context(), nil, "-n", "theseus-system", "get", "pods,daemonsets,services,networkpolicies", "-o", "name")
		if err != nil {
			t.Fatal(err)
		}
		if left = strings.TrimSpace(left); left == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("left behind: %s", left)
		}
	}
}
