package guarded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/guarded/result"
	"github.com/theseus-cni/theseus/internal/step"
)

// maker makes pods that are reachable at once, unless become says otherwise.
type maker struct {
	lock    sync.Mutex
	become  func(round int, p *kube.NewPod)
	errs    []error // of the first rounds
	rounds  [][]string
	former  []int
	sets    []string
	cleared int
}

func (m *maker) Make(ctx context.Context, set string, nodes []string, former []kube.NewPod) ([]kube.NewPod, error) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(m.errs) > 0 {
		err := m.errs[0]
		m.errs = m.errs[1:]
		return nil, err
	}
	m.rounds, m.former, m.sets = append(m.rounds, nodes), append(m.former, len(former)), append(m.sets, set)
	var pods []kube.NewPod
	for _, node := range nodes {
		p := kube.NewPod{Node: node, Address: "10.0.0.1", AddressAfter: time.Second, ReachableAfter: 3 * time.Second}
		if m.become != nil {
			m.become(len(m.rounds), &p)
		}
		pods = append(pods, p)
	}
	return pods, nil
}

func (m *maker) Clear(context.Context) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.cleared++
	return nil
}

// ticking is a clock that several goroutines read, and whose sleeps take a moment.
type ticking struct {
	lock sync.Mutex
	now  time.Time
}

func (c *ticking) Now() time.Time {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.now
}

func (c *ticking) Sleep(ctx context.Context, d time.Duration) error {
	c.lock.Lock()
	c.now = c.now.Add(d)
	c.lock.Unlock()
	time.Sleep(time.Millisecond)
	return ctx.Err()
}

func makes(m *maker, nodes int, guard kind.Guard) (*Actor, *said) {
	guard.NewPods, guard.Quiet, guard.AtMost = step.Duration(30*time.Second), step.Duration(3*time.Second),
		step.Duration(time.Minute)
	a, out, _ := bench(guard)
	a.Clock, a.Maker, a.Tries = &ticking{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}, m, "tries"
	for i := range nodes {
		a.Nodes = append(a.Nodes, fmt.Sprintf("n%03d", i))
	}
	return a, out
}

// TestNewPodsEverywhere: before the change and after it, each node gets a new pod, and those of the last round are
// asked by one more. An API server that cannot be asked for a while is asked again.
func TestNewPodsEverywhere(t *testing.T) {
	for name, test := range map[string]struct {
		nodes  int
		errs   []error
		rounds []int
		former []int
	}{
		"few":    {3, nil, []int{3, 3}, []int{0, 3}},
		"outage": {3, []error{errors.New("refused"), errors.New("refused")}, []int{3, 3}, []int{0, 3}},
		"more":   {70, nil, []int{30, 30, 30, 30}, []int{0, 30, 30, 30}},
		"many":   {1000, nil, slices.Repeat([]int{100}, 11), append([]int{0}, slices.Repeat([]int{100}, 10)...)},
	} {
		m := &maker{errs: test.errs}
		a, out := makes(m, test.nodes, kind.Guard{})
		sum := do[result.NewPods](t, a, step.NewPods{})
		var rounds []int
		seen := map[string]bool{}
		for i, nodes := range m.rounds {
			rounds = append(rounds, len(nodes))
			for _, node := range nodes {
				seen[node] = true
			}
			if i > 0 && m.sets[i] == m.sets[i-1] {
				t.Errorf("%s: two rounds of the set %s", name, m.sets[i])
			}
		}
		if !slices.Equal(rounds, test.rounds) || !slices.Equal(m.former, test.former) || len(seen) != test.nodes {
			t.Errorf("%s: rounds %v, former %v, on %d nodes", name, rounds, m.former, len(seen))
		}
		if sum.Lacks != "" || sum.Ready != sum.Made || sum.Longest != 3000 || m.cleared != 1 ||
			!out.has("new pods before the change: ") {
			t.Errorf("%s: %+v, cleared %d times, said %q", name, sum, m.cleared, out.lines)
		}
	}
	a, _ := makes(&maker{errs: slices.Repeat([]error{errors.New("refused")}, 100)}, 3, kind.Guard{})
	if sum := do[result.NewPods](t, a, step.NewPods{}); !strings.Contains(sum.Lacks, "refused") || sum.Made != 0 {
		t.Errorf("without an API server: %+v", sum)
	}
}

// TestNewPodsForbidden: an error of the rounds is said at once, and not again while it lasts: before the change, while
// the command runs, and after it.
func TestNewPodsForbidden(t *testing.T) {
	for _, operation := range []step.Operation{step.NewPods{}, step.Command{}, step.Watch{}} {
		a, out := makes(&maker{errs: slices.Repeat([]error{errors.New("pods is forbidden")}, 10000)}, 3,
			kind.Guard{Command: []string{"sleep", "0.3"}})
		if _, err := a.Do(t.Context(), step.Action{Do: operation}, begun); err != nil {
			t.Fatal(err)
		}
		said := 0
		for _, line := range out.lines {
			if line == "note: new pods cannot be created; Theseus tries again: pods is forbidden" {
				said++
			}
		}
		if said != 1 {
			t.Errorf("%T: said %d times: %q", operation, said, out.lines)
		}
	}
}

// TestNewPodFailsMeanwhile: a new pod that fails while the command runs is reacted to at once, and is in its outcome;
// one on a node on which they failed before is not.
func TestNewPodFailsMeanwhile(t *testing.T) {
	fails := func(_ int, p *kube.NewPod) {
		if p.Node == "n001" {
			p.Failed = "no address within 1m0s: FailedCreatePodSandBox: plugin missing"
		}
	}
	hangs := []string{"sh", "-c", "trap 'exit 9' TERM; sleep 60 & wait"}
	a, out := makes(&maker{become: fails}, 3, kind.Guard{Command: hangs, Kill: true})
	a.Learn(engine.Record{Event: engine.Acted, Action: "tries", Data: []byte(`{"made":3,"ready":3}`)})
	got := do[result.Ran](t, a, step.Command{})
	if !got.Killed || got.NewPods == nil || got.NewPods.Failures == 0 || got.NewPods.Failed[0].Node != "n001" ||
		!out.has("NEW POD FAILED: n001") {
		t.Errorf("%+v, said %q", got, out.lines)
	}
	a, out = makes(&maker{become: fails}, 3, kind.Guard{Command: []string{"sleep", "1.5"}, Kill: true})
	a.Learn(engine.Record{Event: engine.Acted, Action: "tries",
		Data: []byte(`{"made":3,"ready":2,"failed":[{"node":"n001","why":"x"}],"failures":1,"doubtful":["n001"]}`)})
	if got := do[result.Ran](t, a, step.Command{}); got.Killed || got.NewPods.Failures == 0 ||
		out.has("NEW POD FAILED") {
		t.Errorf("failed before: %+v, said %q", got, out.lines)
	}
}

// TestNewPodsAfter: the watching does not end before each node has had a new pod, also if the network is quiet, or the
// time is over.
func TestNewPodsAfter(t *testing.T) {
	m := &maker{errs: slices.Repeat([]error{errors.New("refused")}, 30),
		become: func(round int, p *kube.NewPod) {
			if p.Node == "n002" && round == 2 {
				p.Unmeasured = "its kubelet did not run it: OutOfpods"
			}
		}}
	a, out := makes(m, 3, kind.Guard{})
	got := do[result.Watched](t, a, step.Watch{})
	if !got.Quiet || got.NewPods == nil || got.NewPods.Ready != 5 || got.NewPods.Left != 1 ||
		got.NewPods.Failures != 0 || got.NewPods.Lacks != "" || !out.has("new pods after the change: 5 made") {
		t.Errorf("%+v, %+v, said %q", got, got.NewPods, out.lines)
	}
	a, _ = makes(&maker{}, 3, kind.Guard{})
	a.Guard.NewPods = 0 // a plan of an earlier release
	if got := do[result.Watched](t, a, step.Watch{}); !got.Quiet || got.NewPods != nil {
		t.Errorf("none asked for: %+v", got)
	}
}

// TestNewPodsInterrupted: an interrupt before the change is for the run, and the trying of new pods ends at once.
func TestNewPodsInterrupted(t *testing.T) {
	m := &maker{errs: slices.Repeat([]error{errors.New("refused")}, 50)}
	a, _ := makes(m, 3, kind.Guard{})
	trying := a.Clock.(*ticking)
	taken := true
	a.Clock = &quick{now: trying.now, slept: func() { taken = a.Interrupt() }}
	sum := do[result.NewPods](t, a, step.NewPods{})
	if taken || len(m.errs) < 48 || sum.Lacks == "" || m.cleared != 1 {
		t.Errorf("taken: %t, %d rounds left, %+v", taken, len(m.errs), sum)
	}
}
