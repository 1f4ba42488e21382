package node

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/adoption"
)

// victimMark marks a process that is an agent to be killed; its value is a victim.
const victimMark = "THESEUS_TEST_VICTIM"

// victim is what such an agent is told, and the change before which it is killed, counted from 1, or the point; never
// for 0 and "".
type victim struct {
	Root   string
	Args   step.AdoptArgs
	Change int
	Point  string
}

// isVictim carries out what the victim is told where this process is one.
func isVictim(t *testing.T) bool {
	t.Helper()
	text := os.Getenv(victimMark)
	if text == "" {
		return false
	}
	var v victim
	must(t, json.Unmarshal([]byte(text), &v))
	n := nodeAt(v.Root)
	n.hasty = true
	var count atomic.Int64 // several pods may move side by side
	n.hook = func(at string) {
		if count.Add(1) == int64(v.Change) || at == v.Point {
			fmt.Println("killed before", at)
			must(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
		}
	}
	do(t, n, step.VerbAdopt, v.Args)
	return true
}

// moveUntil lets an agent move one pod and kills it before the given change; it says whether there was that one.
func moveUntil(t *testing.T, w *site, p *testPod, args step.AdoptArgs, change int) (reached bool, point string) {
	t.Helper()
	return victim{Root: w.Root, Args: args, Change: change}.move(t, p)
}

// move lets the victim move a pod, or all where there is none, and says whether it was killed, and where.
func (v victim) move(t *testing.T, p *testPod) (reached bool, point string) {
	t.Helper()
	if p != nil {
		v.Args.Pods = []string{"test/" + p.name}
	}
	order, err := json.Marshal(v)
	must(t, err)
	agent := exec.CommandContext(t.Context(), "/proc/self/exe",
		"-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	agent.Env = append(os.Environ(), victimMark+"="+string(order))
	out, err := agent.Output()
	status := agent.ProcessState.Sys().(syscall.WaitStatus)
	if err != nil && (!status.Signaled() || status.Signal() != syscall.SIGKILL) {
		t.Fatalf("the agent: %v\n%s", err, out)
	}
	_, point, _ = strings.Cut(strings.TrimSpace(string(out)), "killed before ")
	return err != nil, point
}

// TestAdoptAgentDiesSideBySide kills the agent while four pods are in the middle of their moves, at points all over
// them. The next one leaves each pod whole on one network, and what was sent meanwhile arrives.
func TestAdoptAgentDiesSideBySide(t *testing.T) {
	if isVictim(t) || !alone(t) {
		return
	}
	t.Setenv("GOMAXPROCS", "4") // of the agent: it moves no more pods at a time than it has processors
	w := newSite(t)
	w.hasty = true
	var pods []*testPod
	for i := range 4 {
		pods = append(pods, w.pod(fmt.Sprintf("p%d", i), bridgeList, nil))
	}
	end := flows(t, w, pods...)
	argument := forth
	argument.Parallel = len(pods)
	ends, together := map[string]int{}, map[int]int{}
	for change := 10; ; change += 29 {
		reached, point := victim{Root: w.Root, Args: argument, Change: change}.move(t, nil)
		records, err := w.records()
		must(t, err)
		halfway := 0
		for _, record := range records {
			if record.Phase != adoption.Moved {
				halfway++
			}
		}
		together[halfway]++
		next := nodeAt(w.Root)
		next.hasty = true
		if _, err := next.Resume(t.Context()); err != nil {
			t.Fatalf("after change %d, %q: %v", change, point, err)
		}
		for _, p := range pods {
			ends[p.whole()]++
		}
		t.Logf("killed before change %d, %q: %d pods halfway; so far %v", change, point, halfway, ends)
		if t.Failed() {
			break
		}
		do(t, next, step.VerbAdopt, back)
		if !reached {
			break
		}
	}
	end()
	if together[4] == 0 || ends["bridged"] < 4 || ends["routed"] < 4 || together[0] > 3 {
		t.Errorf("pods halfway at a time: %v; they ended on %v", together, ends)
	}
}

// TestAdoptAgentDiesInPlugin kills the agent while it waits for a plugin, before that has done anything and when it has
// done all. The plugin, which would go on, ends with it, and the next agent leaves the pod where it was.
func TestAdoptAgentDiesInPlugin(t *testing.T) { bothWays(t, testAdoptAgentDiesInPlugin) }

func testAdoptAgentDiesInPlugin(t *testing.T) {
	if isVictim(t) || !alone(t) {
		return
	}
	w := newSite(t)
	a := w.pod("a", bridgeList, nil)
	before, hostBefore := a.state(), hostState(t)
	end := flows(t, w, a)
	const dies = `echo $$ > /etc/child; kill -9 $PPID; exec sleep 3217`
	for name, script := range map[string]string{
		"before": `[ "$CNI_COMMAND" = ADD ] || exec /opt/cni/bin/ptp.real; ` + dies,
		"after":  `[ "$CNI_COMMAND" = ADD ] || exec /opt/cni/bin/ptp.real; /opt/cni/bin/ptp.real; ` + dies,
	} {
		restore := w.plugin("ptp", script)
		if killed, _ := moveUntil(t, w, a, forth, 0); !killed {
			t.Fatalf("%s: the agent lives on", name)
		}
		child, err := os.ReadFile(filepath.Join(w.Root, "etc/child"))
		must(t, err)
		mustEnd(t, strings.TrimSpace(string(child)))
		next := nodeAt(w.Root)
		next.hasty = true
		ended, err := next.Resume(t.Context())
		if err != nil || len(ended) != 1 || ended[0].State != step.AdoptUndone {
			t.Errorf("%s: %v, %+v", name, err, ended)
		}
		restore()
		must(t, next.tidyHost())
		if after := a.state() + hostState(t); after != before+hostBefore || a.whole() != "bridged" {
			t.Errorf("%s: it was\n%s\nand is\n%s", name, before+hostBefore, after)
		}
		if left, _ := names(filepath.Join(w.Root, routed.Reservations)); slices.Contains(left, a.address) {
			t.Errorf("%s: the target still holds the address", name)
		}
	}
	do(t, w.Node, step.VerbAdopt, forth)
	end()
	if a.whole() != "routed" {
		t.Error("it did not move then")
	}
}

// mustEnd waits until a process has ended.
func mustEnd(t *testing.T, pid string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("what the plugin started lives on")
		}
	}
}
