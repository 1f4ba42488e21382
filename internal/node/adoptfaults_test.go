package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step"
)

// TestAdoptAgentOfTarget: between ADD and flip the target's agent, whose chains let a pod's packets through, is
// away, and the pod stays where it is; when it is there again, the pod moves.
func TestAdoptAgentOfTarget(t *testing.T) { bothWays(t, testAdoptAgentOfTarget) }

func testAdoptAgentOfTarget(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	w.hasty = true
	a := w.pod("a", bridgeList, nil)
	before, hostBefore := a.state(), hostState(t)
	end := flows(t, w, a)
	wanted := forth
	wanted.To.Ready = []string{"cali-tw-{link}"}
	ctx, cancel := context.WithCancel(t.Context())
	w.hook = func(at string) {
		if at == "added" {
			cancel() // instead of half a minute
		}
	}
	got, err := w.Do(ctx, step.VerbAdopt, args(t, wanted))
	if err == nil || !strings.Contains(err.Error(), "has made no chain") ||
		outcomes(t, got)["a"].State != step.AdoptUndone {
		t.Errorf("without the agent: %v", err)
	}
	if after := a.state() + hostState(t); after != before+hostBefore || a.whole() != "bridged" {
		t.Errorf("without the agent, it was\n%s\nand is\n%s", before+hostBefore, after)
	}
	w.hook = func(at string) {
		if at != "added" {
			return
		}
		for line := range strings.Lines(sh(t, "", "ip", "-o", "link", "show", "type", "veth")) {
			if name, _, _ := strings.Cut(strings.Fields(line)[1], "@"); !strings.Contains(line, "master cni0") {
				sh(t, "add table ip calico\nadd chain ip calico filter-cali-tw-"+name+"\n", "nft", "-f", "-")
			}
		}
	}
	do(t, w.Node, step.VerbAdopt, wanted)
	end()
	if a.whole() != "routed" {
		t.Error("with the agent, it did not move")
	}
}

// TestAdoptTargetAway: the target can neither give an address nor take one back, as a plugin whose API server is
// away. The pod works, the agent says that it is stuck, and ends the move when the target answers again.
func TestAdoptTargetAway(t *testing.T) { bothWays(t, testAdoptTargetAway) }

func testAdoptTargetAway(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	w.hasty = true
	a := w.pod("a", bridgeList, nil)
	before := a.state()
	end := flows(t, w, a)
	restore := w.plugin("ptp",
		`/opt/cni/bin/ptp.real > /dev/null; echo '{"cniVersion":"0.4.0","code":11,"msg":"connection refused"}'; exit 1`)
	got, err := w.Do(t.Context(), step.VerbAdopt, args(t, forth))
	if o := outcomes(t, got)["a"]; err == nil || o.State != step.AdoptStuck || o.Network != "cbr0" ||
		!strings.Contains(o.Reason, "connection refused") {
		t.Errorf("while it is away: %v, %+v", err, o)
	}
	restore()
	next := nodeAt(w.Root)
	next.hasty = true
	ended, err := next.Resume(t.Context())
	if err != nil || len(ended) != 1 || ended[0].State != step.AdoptUndone {
		t.Errorf("when it is back: %v, %+v", err, ended)
	}
	if after := a.state(); after != before || a.whole() != "bridged" {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	do(t, next, step.VerbAdopt, forth)
	end()
	if a.whole() != "routed" {
		t.Error("it did not move then")
	}
}

// TestAdoptTwoAgents: of two agents that are told the same at once, one moves the pods, and the other finds them moved.
func TestAdoptTwoAgents(t *testing.T) { bothWays(t, testAdoptTwoAgents) }

func testAdoptTwoAgents(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	end := flows(t, w, a, b)
	for _, way := range []struct {
		args step.AdoptArgs
		to   string
	}{{forth, "routed"}, {back, "bridged"}} {
		var working sync.WaitGroup
		var states [2]map[string]step.AdoptOutcome
		for i := range states {
			working.Go(func() {
				n := nodeAt(w.Root)
				n.hasty = true
				got, err := n.Do(t.Context(), step.VerbAdopt, args(t, way.args))
				if err != nil {
					t.Errorf("to %s: %v", way.to, err)
					return
				}
				states[i] = outcomes(t, got)
			})
		}
		working.Wait()
		for _, p := range []*testPod{a, b} {
			if one, other := states[0][p.name].State, states[1][p.name].State; one == other ||
				one != step.AdoptMoved && other != step.AdoptMoved {
				t.Errorf("%s to %s: %s and %s", p.name, way.to, one, other)
			}
			if p.whole() != way.to {
				t.Errorf("%s is not %s", p.name, way.to)
			}
		}
	}
	end()

	root, err := os.Open(w.Root) // another agent that does not end
	must(t, err)
	defer root.Close()
	must(t, unix.Flock(int(root.Fd()), unix.LOCK_EX))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Do(ctx, step.VerbAdopt, args(t, forth)); err == nil ||
		!strings.Contains(err.Error(), "another agent") {
		t.Errorf("beside another agent: %v", err)
	}
}

// TestAdoptOldKernel: where the kernel renames no interface in use, the node parks the pod. Where it cannot be found
// out, the node says so and touches nothing.
func TestAdoptOldKernel(t *testing.T) {
	if !alone(t) {
		return
	}
	if err := renames(); err != nil {
		t.Fatalf("this kernel, of which the other tests are: %v", err)
	}
	defer func(former func() error) { renames = former }(renames)
	renames = func() error { return unix.EPERM }
	w := newSite(t)
	a := w.pod("a", bridgeList, nil)
	before := a.state() + hostState(t)
	if got := do(t, w.Node, step.VerbAdoptable, forth); !strings.Contains(got.Message, "this node cannot move pods") {
		t.Errorf("asked: %s", got.Message)
	}
	got, err := w.Do(t.Context(), step.VerbAdopt, args(t, forth))
	if err == nil || !strings.Contains(err.Error(), "this node cannot move pods") || len(outcomes(t, got)) > 0 {
		t.Errorf("told: %v, %s", err, got.Result)
	}
	if after := a.state() + hostState(t); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}

	renames = func() error { return errBusy }
	parks := 0
	w.hook = func(at string) {
		if at == "parked" {
			parks++
		}
	}
	if got := do(t, w.Node, step.VerbAdoptable, forth); !strings.HasPrefix(got.Message, "1 pods can be moved") {
		t.Errorf("asked: %s", got.Message)
	}
	do(t, w.Node, step.VerbAdopt, forth)
	if parks != 1 || a.whole() != "routed" {
		t.Errorf("it was parked %d times, and is on %s", parks, a.whole())
	}
}

// TestPluginsAtATime: of many plugins that are asked for, only so many run at a time, and an order that is given up
// meanwhile waits no longer.
func TestPluginsAtATime(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"slow": "#!/bin/sh\ncd " + dir +
		"; echo + >> log; until [ -e go ]; do sleep 0.01; done; echo - >> log\n"})
	slow := filepath.Join(dir, "slow")
	must(t, os.Chmod(slow, 0o755))
	p := &plugins{root: "/", slots: make(chan struct{}, maxPlugins)}
	var working sync.WaitGroup
	for range 3 * maxPlugins {
		working.Go(func() {
			if _, err := p.ExecPlugin(t.Context(), slow, nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	log := func() string {
		text, _ := os.ReadFile(filepath.Join(dir, "log"))
		return strings.ReplaceAll(string(text), "\n", "")
	}
	for deadline := time.Now().Add(time.Minute); len(log()) < maxPlugins; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q", log())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.ExecPlugin(ctx, slow, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("given up, it is %v", err)
	}
	write(t, dir, map[string]string{"go": ""})
	working.Wait()
	now, most := 0, 0
	for _, sign := range log() {
		if now--; sign == '+' {
			now += 2
		}
		most = max(most, now)
	}
	if most != maxPlugins || len(log()) != 6*maxPlugins {
		t.Errorf("%d ran at a time: %s", most, log())
	}
}

// TestAdoptPodEnds: the target refuses a pod, as it knows none whose object is deleted, before its sandbox has ended.
// That is no failure.
func TestAdoptPodEnds(t *testing.T) { bothWays(t, testAdoptPodEnds) }

func testAdoptPodEnds(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	a, b := w.pod("a", bridgeList, nil), w.pod("b", bridgeList, nil)
	restore := w.plugin("ptp", `[ "$CNI_CONTAINERID" = `+a.id+
		` ] && [ "$CNI_COMMAND" = ADD ] || exec /opt/cni/bin/ptp.real
		echo '{"cniVersion":"0.4.0","code":999,"msg":"pods \"a\" not found"}'; exit 1`)
	defer restore()
	var ended sync.WaitGroup
	w.hook = func(at string) {
		if at == "forget" { // b is moved and keeps its record
			ended.Go(func() { a.del(bridgeList) })
		}
	}
	got, err := w.Do(t.Context(), step.VerbAdopt, args(t, forth))
	ended.Wait()
	if all := outcomes(t, got); err != nil || all["a"].State != step.AdoptGone || all["a"].Reason != "" ||
		all["b"].State != step.AdoptMoved || b.whole() != "routed" {
		t.Errorf("%v: %+v", err, all)
	}
}

// TestAdoptConfChanges: somebody changes the target's configuration, or removes it, in the middle of a move. What was
// begun with one configuration is ended, or taken back, with that one.
func TestAdoptConfChanges(t *testing.T) { bothWays(t, testAdoptConfChanges) }

func testAdoptConfChanges(t *testing.T) {
	if !alone(t) {
		return
	}
	w := newSite(t)
	w.hasty = true
	file := filepath.Join(w.Root, confDir, routed.Conf[0])
	a := w.pod("a", bridgeList, nil)
	end := flows(t, w, a)
	for name, change := range map[string]func() error{
		"garbage": func() error { return os.WriteFile(file, []byte(`{"plugins": [`), 0o644) },
		"another": func() error {
			return os.WriteFile(file, []byte(strings.ReplaceAll(routedList, "198.19.5.0/24", "198.19.77.0/24")), 0o644)
		},
		"none": func() error { return os.Remove(file) },
	} {
		for _, point := range []string{"add", "added", "flip", "remove the old interface"} {
			w.hook = func(at string) {
				if at == point {
					must(t, change())
				}
			}
			do(t, w.Node, step.VerbAdopt, forth)
			w.hook = nil
			if a.whole() != "routed" {
				t.Errorf("%s at %q: it did not move", name, point)
			}
			if _, err := w.Do(t.Context(), step.VerbAdopt, args(t, back)); (err == nil) != (name == "another") {
				t.Errorf("%s at %q: the way back without it: %v", name, point, err)
			}
			must(t, os.WriteFile(file, []byte(routedList), 0o644))
			do(t, w.Node, step.VerbAdopt, back)
			if a.whole() != "bridged" {
				t.Errorf("%s at %q: it did not come back", name, point)
			}
			if _, err := os.Stat(filepath.Join(w.Root, routed.Reservations, a.address)); err == nil {
				t.Errorf("%s at %q: the target still holds its address", name, point)
			}
		}
	}
	end()
}
