package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// crowd is a cluster of many nodes that measure the next one each, and their agents, which report at the interval of
// their cluster or as they are asked to.
type crowd struct {
	*world
	nodes  int
	begun  time.Time
	deaf   bool                 // no agent sees what is asked
	silent map[string]bool      // who never reports
	lost   map[string]int64     // probes that a node has lost
	seq    map[string]int64     // of the last report
	at     map[string]time.Time // of the last report
	asked  map[string]bool      // who was told when not all were
	often  map[string]time.Time // until when who was told reports every second, without answers
	all    int                  // how often all were told
	// answer is how long after its time each agent answers questions; nil if they do not know of any.
	answer   func(i int) time.Duration
	number   int64 // of the last question
	measure  time.Duration
	seen     map[string]time.Time // when each node saw it
	answered map[string]bool
}

func newCrowd(t *testing.T, nodes int) *crowd {
	c := &crowd{world: newWorld(t, nil), nodes: nodes, silent: map[string]bool{}, lost: map[string]int64{},
		seq: map[string]int64{}, at: map[string]time.Time{}, asked: map[string]bool{}, often: map[string]time.Time{},
		seen: map[string]time.Time{}, answered: map[string]bool{}}
	c.begun = c.now.Add(-time.Minute)
	for i := range nodes {
		c.put("ProbePlan", &v1alpha1.ProbePlan{ObjectMeta: metav1.ObjectMeta{Name: c.name(i)},
			Spec: v1alpha1.ProbePlanSpec{Generation: 1, Paths: []v1alpha1.Path{{ID: c.name(i) + "/host>" +
				c.name((i+1)%nodes) + "/host", Source: v1alpha1.Endpoint{Node: c.name(i)},
				Target: v1alpha1.Endpoint{Node: c.name((i + 1) % nodes)}, IntervalMillis: 100}}}})
		c.report(i)
	}
	c.dynamic.PrependReactor("patch", "probeplans", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if name := action.(clienttesting.PatchAction).GetName(); name != v1alpha1.PlanOfAll {
			t.Errorf("a gate writes to the plan of %s", name)
		}
		c.question(action.(clienttesting.PatchAction))
		return false, nil, nil
	})
	c.slept = func(int) { c.work() }
	return c
}

// question lets agents see the question in a patch.
func (c *crowd) question(patch clienttesting.PatchAction) {
	var plan v1alpha1.ProbePlan
	if err := json.Unmarshal(patch.GetPatch(), &plan); err != nil || plan.Spec.Asked == nil {
		c.t.Errorf("%s: %v", patch.GetPatch(), err)
		return
	}
	asked := plan.Spec.Asked
	if asked.Number != c.number {
		c.number, c.measure = asked.Number, time.Duration(asked.MeasureMillis)*time.Millisecond
		clear(c.seen)
		clear(c.answered)
	}
	of := asked.Of
	if of == "" {
		c.all++
	}
	for i := range c.nodes {
		if name := c.name(i); loss.Asks(of, name) {
			c.seen[name] = c.now
			c.often[name] = c.now.Add(time.Duration(asked.ForMillis) * time.Millisecond)
			if of != "" {
				c.asked[name] = true
			}
		}
	}
}

// paths are all that are measured.
func (c *crowd) paths() []v1alpha1.Path {
	plans, err := c.probePlans(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	return pathsOf(plans)
}

func (c *crowd) name(i int) string { return fmt.Sprintf("node-%d", i%c.nodes) }

// work lets every agent report that is due.
func (c *crowd) work() {
	for i := range c.nodes {
		name, every := c.name(i), path.ReportEvery(c.nodes)
		often := c.now.Before(c.often[name]) && !c.deaf && (c.answer == nil || c.measure == 0)
		// those that are not asked report at different times
		due := c.at[name].Add(every)
		if c.seq[name] == 1 {
			due = c.at[name].Add(time.Duration(i%10) * every / 10)
		}
		if often {
			due = c.at[name].Add(time.Second)
		}
		seen, sees := c.seen[name]
		answers := c.answer != nil && sees && c.measure > 0 && !c.answered[name] &&
			!c.now.Before(seen.Add(c.measure+c.answer(i)))
		if !c.silent[name] && (answers || !c.now.Before(due)) {
			c.answered[name] = c.answered[name] || answers
			c.report(i)
		}
	}
}

func (c *crowd) report(i int) {
	name := c.name(i)
	c.seq[name]++
	c.at[name] = c.now
	sent := int64(c.now.Sub(c.begun) / (100 * time.Millisecond))
	head := metav1.ObjectMeta{Name: name}
	if seen, sees := c.seen[name]; sees && c.answer != nil {
		head.Annotations = map[string]string{v1alpha1.AnnotationAnswer: loss.AnswersText(c.seq[name],
			[]loss.Answer{{Number: c.number, Seen: seen, Measured: c.now.Sub(seen)}})}
	}
	c.put("ProbeReport", &v1alpha1.ProbeReport{ObjectMeta: head,
		Status: v1alpha1.ProbeReportStatus{Generation: 1, Seq: c.seq[name], At: c.now,
			Paths: []v1alpha1.PathResult{{ID: name + "/host>" + c.name((i+1)%c.nodes) + "/host", Sent: sent,
				Answered: sent - c.lost[name], Since: c.begun, Last: c.now}}}})
}

// ask asks a gate of node-5, and says how long that took.
func (c *crowd) ask(gate *Gate, near bool) (verdict string, pass bool, took time.Duration) {
	begun := c.Now()
	got, err := gate.Ask(context.Background(), step.Gate{Title: "t", Near: near, About: []string{"node-5"}, Step: "s"},
		goOn)
	if err != nil {
		c.t.Fatal(err)
	}
	return got.Reason, got.Pass, c.Now().Sub(begun)
}

// wait lets the agents work for a while, in which the run looks at their reports now and then.
func (c *crowd) wait(lasts time.Duration) {
	for end := c.now.Add(lasts); c.now.Before(end); {
		_ = c.Sleep(context.Background(), time.Second)
		if _, err := c.probeReports(context.Background()); err != nil {
			c.t.Fatal(err)
		}
	}
}

// others are those that a gate of node-5 does not ask.
func (c *crowd) other() string {
	for i := range c.nodes {
		if !c.asked[c.name(i)] {
			return c.name(i)
		}
	}
	c.t.Fatal("all nodes are asked")
	return ""
}

// TestGateAsks: a gate that asks some nodes is quick, and what the others lose fails it, or the next.
func TestGateAsks(t *testing.T) {
	const nodes = 500
	c := newCrowd(t, nodes)
	gate := &Gate{Actor: c.Actor, Since: []v1alpha1.ProbeReport{}}

	// The first gate of a run has not heard of any node yet: it asks all.
	if why, pass, took := c.ask(gate, true); !pass || took > 6*time.Second || c.all != 1 || len(c.asked) > 0 {
		t.Errorf("the first gate: %t after %s, all are asked %d times: %s", pass, took, c.all, why)
	}
	if why, pass, took := c.ask(gate, true); !pass || took > 7*time.Second {
		t.Errorf("the second gate: %t after %s: %s", pass, took, why)
	}
	for _, node := range []string{"node-4", "node-5", "node-6"} {
		if !c.asked[node] {
			t.Errorf("%s is not told", node)
		}
	}
	if n := len(c.asked); n != 3+32 || c.all > 1 {
		t.Errorf("%d nodes are told on their own, and all %d times", n, c.all)
	}
	c.wait(20 * time.Second) // no agent reports often any more

	other := c.other()
	c.lost[other] = 2
	if why, pass, _ := c.ask(gate, true); !pass { // its report comes later
		t.Errorf("what nobody knows fails a gate: %s", why)
	}
	for c.at[other].Before(c.Now().Add(-time.Second)) {
		_ = c.Sleep(context.Background(), 250*time.Millisecond)
	}
	if why, pass, took := c.ask(gate, true); pass || took > 5*time.Second || !strings.Contains(why, "2 of") {
		t.Errorf("a loss elsewhere: %t after %s: %s", pass, took, why)
	}
}

// TestGateAnswered: one report of each asked node is enough if it answers the gate's question, and none is that was
// counted before the node had seen it and measured.
func TestGateAnswered(t *testing.T) {
	for _, near := range []bool{true, false} {
		c := newCrowd(t, 500)
		within := time.Second / 2 // over which 35 nodes spread their answers
		if !near {
			within = 2500 * time.Millisecond
		}
		c.answer = func(i int) time.Duration { return time.Duration(i%4+1) * within / 4 }
		gate := &Gate{Actor: c.Actor, Since: []v1alpha1.ProbeReport{}}
		c.ask(gate, near) // of nodes that it has not heard of yet
		before := maps.Clone(c.seq)
		why, pass, took := c.ask(gate, near)
		if !pass || took < 2500*time.Millisecond || took > 3*time.Second+within {
			t.Errorf("near %t: %t after %s: %s", near, pass, took, why)
		}
		most := int64(1 + (took-time.Second)/(10*time.Second))
		if n := c.seq["node-5"] - before["node-5"]; n < 1 || n > 1+most {
			t.Errorf("near %t: node-5 wrote %d reports", near, n)
		}
		c.lost["node-5"]++
		if why, pass, _ := c.ask(gate, near); pass || !strings.Contains(why, "1 of") {
			t.Errorf("near %t: a loss on a changed node: %t: %s", near, pass, why)
		}
		c.answer = nil // an agent of an older version
		if why, pass, took := c.ask(gate, near); !pass || took < 2500*time.Millisecond {
			t.Errorf("near %t, asked of older agents: %t after %s: %s", near, pass, took, why)
		}
	}
}

// TestGateAsksOften: when an answer lacks evidence, the nodes are asked to report often.
func TestGateAsksOften(t *testing.T) {
	c := newCrowd(t, 500)
	c.answer = func(int) time.Duration { return 0 }
	c.silent["node-5"] = true
	if why, pass, _ := c.ask(&Gate{Actor: c.Actor}, true); pass || !strings.Contains(why, "node-5") {
		t.Errorf("a silent node: %t: %s", pass, why)
	}
	if c.measure != 0 {
		t.Errorf("the last question is to be answered after %s", c.measure)
	}
}

// TestGateAsksOnce: a question stands for as long as its answer takes, however long nodes must measure.
func TestGateAsksOnce(t *testing.T) {
	for _, near := range []bool{true, false} {
		c := newCrowd(t, 500)
		c.wait(path.ReportEvery(500)) // so all have been heard of
		k := (&Gate{Actor: c.Actor}).asking(step.Gate{Near: near, About: []string{"node-5"}, Step: "s"}, 500, c.paths())
		const bake = 10 * time.Minute
		within := map[bool]time.Duration{true: time.Second / 2, false: 2500 * time.Millisecond}[near]
		if k.ask(context.Background(), c.Actor, bake) == 0 {
			t.Fatal("nothing is asked")
		}
		for _, test := range []struct {
			until time.Duration
			asks  bool
		}{{bake + max(3*within, answersLate), false},
			{bake + max(3*within, answersLate) + time.Second, true}} {
			begun := c.now
			c.now = c.now.Add(test.until)
			if got := k.ask(context.Background(), c.Actor, bake) != 0; got != test.asks {
				t.Errorf("near %t: asked anew after %s: %t", near, test.until, got)
			}
			c.now = begun
		}
	}
}

// TestGateAsksAll: a gate of all nodes tells them all at once, and no node may be missing.
func TestGateAsksAll(t *testing.T) {
	c := newCrowd(t, 300)
	gate := &Gate{Actor: c.Actor, Since: []v1alpha1.ProbeReport{}}
	if why, pass, took := c.ask(gate, false); !pass || took > 6*time.Second || c.all != 1 || len(c.asked) > 0 {
		t.Errorf("%t after %s, all told %d times, %d on their own: %s", pass, took, c.all, len(c.asked), why)
	}
	c.lost["node-200"] = 1
	if why, pass, _ := c.ask(gate, false); pass || !strings.Contains(why, "1 of") {
		t.Errorf("a loss far from any change: %t: %s", pass, why)
	}
	c.silent["node-77"] = true
	if why, pass, took := c.ask(&Gate{Actor: c.Actor}, false); pass || took < gatePatience ||
		!strings.Contains(why, "node-77") {
		t.Errorf("a silent node: %t after %s: %s", pass, took, why)
	}
	if c.all < 4 {
		t.Errorf("all are told %d times, though they fall back while a gate waits", c.all)
	}
}

// TestGateAsksInVain: agents that do not see what is asked report at their own pace, and that is waited for.
func TestGateAsksInVain(t *testing.T) {
	const nodes = 500 // more report no less often
	c := newCrowd(t, nodes)
	c.deaf = true
	c.dynamic.PrependReactor("patch", "probeplans", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("refused")
	})
	gate := &Gate{Actor: c.Actor, Since: []v1alpha1.ProbeReport{}}
	for _, near := range []bool{true, false} {
		if why, pass, took := c.ask(gate, near); !pass || took < 10*time.Second || took > 3*path.ReportEvery(nodes) {
			t.Errorf("near %t: %t after %s: %s", near, pass, took, why)
		}
	}
}

// TestGateMissesAnother: a node that the gate does not ask, and that has been silent for long, is missing evidence.
func TestGateMissesAnother(t *testing.T) {
	c := newCrowd(t, 500)
	gate := &Gate{Actor: c.Actor, Since: []v1alpha1.ProbeReport{}}
	c.ask(gate, true)
	other := c.other()
	c.silent[other] = true
	if why, pass, _ := c.ask(gate, true); !pass {
		t.Errorf("a node that is silent for a moment fails a gate: %s", why)
	}
	c.wait((askReports + 1) * path.ReportEvery(500))
	delete(c.asked, other)
	if why, pass, took := c.ask(gate, true); pass || took < gatePatience || !strings.Contains(why, other+" has ") ||
		!c.asked[other] || len(c.asked) > 2*(3+32)+1 {
		t.Errorf("a silent node: %t after %s, %d nodes are asked: %s", pass, took, len(c.asked), why)
	}
}

// TestReported: reports are samples where gates compare nodes, and so come more often in a large cluster, and in full.
func TestReported(t *testing.T) {
	a := Actor{}
	if got := a.reported(5000); got != (reports{20 * time.Second, 5 * time.Minute}) {
		t.Errorf("%+v", got)
	}
	a.Measured.Compared = true
	if got := a.reported(5000); got != (reports{every: 10 * time.Second}) {
		t.Errorf("where gates compare nodes: %+v", got)
	}
}

// TestGateAsksNobody: in a small cluster, reports come often enough.
func TestGateAsksNobody(t *testing.T) {
	for _, nodes := range []int{10, 49} {
		g := Gate{}
		if got := g.asking(step.Gate{}, nodes, nil); got.every > 0 {
			t.Errorf("%d nodes are told: %+v", nodes, got)
		}
	}
}

// TestAllIsNoNode: the plan of all nodes is none of a node.
func TestAllIsNoNode(t *testing.T) {
	c := newCrowd(t, 3)
	k := asking{every: time.Second}
	k.ask(context.Background(), c.Actor, 0)
	plans, err := c.probePlans(context.Background())
	if err != nil || c.all != 1 || len(plans) != 3 {
		t.Errorf("told %d times, %d plans, %v", c.all, len(plans), err)
	}
	k.ask(context.Background(), c.Actor, 0)
	if c.all != 1 {
		t.Error("they are told again at once")
	}
}

// TestGateAsksByOlderPlans: in a cluster whose plans do not say who is asked, all nodes are, over as long as that
// takes.
func TestGateAsksByOlderPlans(t *testing.T) {
	for name, refuses := range map[string]bool{"it refuses the field": true, "it drops the field": false} {
		c := newCrowd(t, 500)
		var every []int64
		c.dynamic.PrependReactor("patch", "probeplans", func(action clienttesting.Action) (bool, runtime.Object,
			error) {
			var plan v1alpha1.ProbePlan
			if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &plan); err != nil {
				t.Fatal(err)
			}
			if plan.Spec.Asked.Of == "" {
				every = append(every, plan.Spec.Asked.ReportMillis)
				return false, nil, nil
			}
			if refuses {
				return true, nil, errors.New("failed to create typed patch object: " +
					".spec.asked.of: field not declared in schema")
			}
			return true, &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}, nil
		})
		c.answer = func(int) time.Duration { return 0 }
		gate := &Gate{Actor: c.Actor, Since: []v1alpha1.ProbeReport{}}
		c.ask(gate, true)
		all := c.all
		why, pass, _ := c.ask(gate, true)
		if !pass || c.all != all+1 || every[len(every)-1] != 2500 || len(c.asked) != 0 {
			t.Errorf("%s: %t, all told %d times, over %v ms: %s", name, pass, c.all, every, why)
		}
	}
}
