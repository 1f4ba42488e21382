package migration

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
	"github.com/theseus-cni/theseus/lab/internal/scenario"
)

// kills are ten moments, in order, at which the tool is killed: each is a line that it prints just then.
var kills = []string{
	"Install Theseus' agent on every node",
	"measure the paths between all nodes over flannel",
	"Install Calico without starting it on any node",
	"Start Calico next to flannel",
	"add the rules that join both networks on",
	"activate 10-calico.conflist as the CNI configuration of",
	"Move the pods of",
	"ready", // in the middle of an eviction: a workload is waited for
	"Remove flannel",
	"remove the residue of flannel",
}

// TestKilledAndResumed moves a cluster under traffic with a tool that is killed ten times, each time
// resumed on another machine, once while the API server is away for 30 s. Nothing may be lost.
func TestKilledAndResumed(t *testing.T) {
	rigtest.Full(t, "a recreation killed ten times, and resumed to its end: six minutes")
	rig := newRig(t, "mig", 3)
	rig.WorldRate = 25
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	plan, err := rig.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var away sync.Once
	for i, text := range kills {
		args := []string{"resume"}
		if i == 0 {
			args = []string{"apply", plan, "--yes"}
		}
		killAt(t, rig, "machine-"+strconv.Itoa(i), text, func(line string) {
			if strings.Contains(line, "both networks are up on every node") {
				away.Do(func() { rigtest.HoldAPIServer(t, rig, 30*time.Second) })
			}
		}, args...)
	}
	code, out := theseus(t, rig, "machine-last", "resume")
	if code != 0 {
		t.Fatalf("the last resume ended with %d:\n%s", code, out)
	}
	mustLoseNothing(t, rig, "after the migration")
	rigtest.NothingOn(t, rig, "flannel", rigtest.FlannelTraces)
	mustServeCalico(t, rig, "machine-last")

	code, out = theseus(t, rig, "machine-last", "apply", plan, "--yes")
	if code != 1 || !strings.Contains(out, "hint:") {
		t.Errorf("a plan that is done was applied again: exit %d\n%s", code, out)
	}
	code, out = theseus(t, rig, "machine-last", "rollback")
	if code == 0 {
		t.Errorf("a migration that is over was rolled back:\n%s", out)
	}
	rigtest.NothingLeft(t, rig, regexp.MustCompile("flannel|kube-router"))
}

// mustServeCalico demands that Calico is as its user's manifest has it, and that the report of the machine on which the
// change ended says so: it is done, was measured, nothing that policy denies got through, and nothing is left of the
// source. A probe that a busy machine lost, and so the verdict, are not demanded.
func mustServeCalico(t *testing.T, rig *scenario.Rig, machine string) {
	t.Helper()
	out, err := rig.Kubectl(t.Context(), nil, "-n", "kube-system", "get", "daemonset", "calico-node", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "theseus.dev/target") || strings.Contains(out, ".theseus") {
		t.Errorf("calico-node still has its joint form:\n%s", out)
	}
	out, err = rig.Kubectl(t.Context(), nil, "get", "nodes", "-o",
		"jsonpath={range .items[*]}{.metadata.labels} {.metadata.annotations} {.spec.taints}{end}")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"theseus.dev/", "flannel.alpha.coreos.com"} {
		if strings.Contains(out, key) {
			t.Errorf("nodes still carry %s:\n%s", key, out)
		}
	}
	code, report := theseus(t, rig, machine, "report", "-o", "json")
	var model struct {
		Verdict struct {
			Level, Line string
			Missing     []string
		}
		Run     struct{ Outcome string }
		Totals  struct{ Sent, DeniedSent, Leaked int64 }
		Residue struct {
			After, NodesAfter int
			NodesWithout      []string
		}
	}
	if err := json.Unmarshal([]byte(report), &model); code != 0 || err != nil {
		t.Fatalf("report: exit %d, %v", code, err)
	}
	t.Logf("verdict: %+v", model.Verdict)
	left := model.Residue
	if model.Run.Outcome != "done" || model.Totals.Sent == 0 || model.Totals.DeniedSent == 0 ||
		model.Totals.Leaked > 0 || left.After > 0 || left.NodesAfter == 0 || len(left.NodesWithout) > 0 {
		t.Errorf("the report says: %+v", model)
	}
}

// moving is the heading of a step that moves a node's pods.
const moving = "Move the pods of rb-node-"

// stops are the moments at which the tool is stopped and taken back: the two that change most, and the others.
var stops, moreStops = []string{
	"both networks are up on every node",
	moving,
}, []string{
	"Measure the network before the change",
	"Install Calico without starting it on any node",
	"measure the paths of",
}

// TestRollback takes a migration back from the middle, by a kill and then `theseus rollback` elsewhere. On the last way
// back the command line, the API server, an agent and containerd are killed too. The cluster is as before each time,
// and the clients notice nothing.
func TestRollback(t *testing.T) {
	rigtest.Full(t, "a migration by recreate that is killed and taken back from the middle: five minutes")
	takeBack(t, stops)
}

// TestRollbackEarly does the same from the steps that change little.
func TestRollbackEarly(t *testing.T) {
	rigtest.Full(t, "a migration by recreate that is taken back from its first steps")
	takeBack(t, moreStops)
}

func takeBack(t *testing.T, stops []string) {
	t.Helper()
	rig := newRig(t, "rb", 2)
	rig.WorldRate = 25
	if err := rig.Traffic(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, text := range stops {
		plan, err := rig.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		killAt(t, rig, "here", text, nil, "apply", plan, "--yes")
		there := "there-" + strconv.Itoa(i)
		if text == moving {
			killAt(t, rig, there, "delete Pod theseus-system/theseus-probe-new-rb-node-", nil, "rollback")
			resumeThroughKills(t, rig)
		} else {
			rigtest.Start(t, rig, there, "rollback").Ends(rolledBack)
		}
		mustLoseNothing(t, rig, "after the rollback from "+text)
		rigtest.NothingOn(t, rig, "Calico", rigtest.CalicoTraces)
	}
	rigtest.NothingLeft(t, rig, regexp.MustCompile("calico|tigera|theseus-agent"), rigtest.BackOnFlannel...)
}

// rolledBack is the exit code of a command that took a migration back as it was asked to.
const rolledBack = 5

// resumeThroughKills ends a way back on a third machine, while parts of the cluster are killed one after the other.
func resumeThroughKills(t *testing.T, rig *scenario.Rig) {
	t.Helper()
	back := rigtest.Start(t, rig, "third", "resume")
	for _, kill := range []struct {
		at string // a line that the command prints
		do func(*testing.T, *scenario.Rig)
	}{
		{"stop Calico on rb-node-2", rigtest.KillAPIServer},
		{"remove the residue of Calico from rb-node-2", deleteAgent("rb-node-2")},
		{"stop Calico on rb-node-1", killComponents("rb-node-1", "containerd")},
	} {
		back.Until(kill.at)
		kill.do(t, rig)
	}
	back.Ends(rolledBack)
}
