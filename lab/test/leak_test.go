package test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

// TestDownLeavesNothing brings two labs up side by side, one of them with pods, and takes them down.
func TestDownLeavesNothing(t *testing.T) {
	l := newLab(t)
	before := lookAround(t)
	t.Log(l.do("up", "--name", "t1", "--nodes", "2", "--network", "flannel"))
	t.Log(l.do("up", "--name", "t2", "--nodes", "1", "--network", "none"))
	comesAndGoes(t, l)
	during := lookAround(t)
	for _, kind := range []string{"process", "namespace", "cgroup"} {
		if during.count(before, kind) == 0 {
			t.Errorf("a running lab shows no new %s: the comparison is blind", kind)
		}
	}
	for _, kind := range []string{"mount", "link", "sysctl"} {
		if n := during.count(before, kind); n != 0 {
			t.Errorf("%d of the running lab's traces of kind %s are on the host", n, kind)
		}
	}
	l.do("exec", "--name", "t1", "--", "bash", "-c", "echo > /dev/tcp/198.18.8.10/6443") // the other lab's API server
	l.do("down", "--name", "t1")
	l.do("--name", "t2", "kubectl", "get", "--raw", "/readyz") // the neighbour lives on
	l.do("down", "--name", "t2")
	compare(t, before, lookAround(t))
	left, err := filepath.Glob(filepath.Join(l.state, "labs", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("the state directory still holds %q (%v)", left, err)
	}
}

// comesAndGoes adds two nodes to a running lab and removes one of them again: the one that stays is for down to end.
func comesAndGoes(t *testing.T, l *lab) {
	t.Helper()
	before := lookAround(t)
	if got := l.do("node", "add", "--name", "t1", "--taint", "test/new=true:NoSchedule"); got != "t1-node-3\n" {
		t.Errorf("node add printed %q", got)
	}
	with := lookAround(t)
	for _, kind := range []string{"process", "namespace", "cgroup"} {
		if with.count(before, kind) == 0 {
			t.Errorf("a new node shows no new %s: the comparison is blind", kind)
		}
	}
	l.do("node", "add", "--name", "t1")
	if out := l.do("node", "exec", "--name", "t1", "4", "--", "hostname"); out != "t1-node-4\n" {
		t.Errorf("the new node's name: %q", out)
	}
	l.do("node", "remove", "--name", "t1", "t1-node-3")
	left, err := filepath.Glob(filepath.Join(l.state, "labs", "t1", "nodes", "*"))
	if err != nil || len(left) != 3 {
		t.Errorf("disks: %q (%v)", left, err)
	}
	names := l.do("kubectl", "--name", "t1", "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
	if names != "t1-node-1 t1-node-2 t1-node-4" {
		t.Errorf("nodes: %s", names)
	}
	if out, err := l.try("node", "remove", "--name", "t1", "t1-node-3"); err == nil ||
		!strings.Contains(out, "hint: its nodes are t1-node-1, t1-node-2, t1-node-4") {
		t.Errorf("a node that is gone was removed: %v\n%s", err, out)
	}
}

// TestKillOfOneProcessEndsAll kills the outer process: everything but the cgroups and the state
// directory must be gone at once, and those after down.
func TestKillOfOneProcessEndsAll(t *testing.T) {
	l := newLab(t)
	before := lookAround(t)
	l.do("up", "--name", "t3", "--nodes", "1", "--network", "bridge")
	var labs []struct{ Pid int }
	if err := json.Unmarshal([]byte(l.do("status", "-o", "json")), &labs); err != nil || len(labs) != 1 {
		t.Fatalf("status: %v %v", err, labs)
	}
	if err := syscall.Kill(labs[0].Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	rigtest.Until(t, "the outer process has ended", func() bool {
		_, err := os.Stat("/proc/" + itoa(labs[0].Pid))
		return err != nil
	})
	after := lookAround(t)
	for _, kind := range []string{"process", "namespace", "mount", "link", "sysctl"} {
		if n := after.count(before, kind); n != 0 {
			t.Errorf("%d traces of kind %s outlived the process", n, kind)
		}
	}
	if out, err := l.try("kubeconfig", "--name", "t3"); err == nil || !strings.Contains(out, "hint: theseus-lab down") {
		t.Errorf("a dead lab answered: %v\n%s", err, out)
	}
	l.do("down", "--name", "t3")
	compare(t, before, lookAround(t))
}
