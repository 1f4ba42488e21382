// Package webtest has made-up runs of real plans, second by second, as the engine and the probers would leave them in
// the cluster.
package webtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/cluster/selector"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/step"
)

// Run is a run of a plan from flannel to Calico.
type Run struct {
	Plan    *plan.Plan
	Records []engine.Record
	Paths   []v1alpha1.Path
	Losses  []Loss
	// Events are what happens in the cluster, as the run's looks at it see.
	Events []observe.Event
	// BGP is what asks for BGP sessions; nil if nothing does. Lost are sessions that are down for a while, and Silent
	// are the times from which nodes do not report any more.
	BGP    *bgp.Input
	Lost   []Session
	Silent map[string]time.Time
	// Unread is why what runs in the cluster cannot be read; nil if it can.
	Unread error
	// Begin is the time of the first record.
	Begin time.Time
}

// Loss is an outage of all paths of a class from a node.
type Loss struct {
	Node, Class string
	From        time.Time
	Lasts       time.Duration
}

// Session is a BGP session that is down for a while, by the names of its ends.
type Session struct {
	Node, Peer string
	From       time.Time
	Lasts      time.Duration
}

// Reflect makes the first nodes route reflectors of all nodes, which say that all sessions are up, and the first one a
// peer of a router outside of the cluster.
func (r *Run) Reflect(t testing.TB, reflectors int) {
	t.Helper()
	picks, err := selector.Parse("has(rr)")
	if err != nil {
		t.Fatal(err)
	}
	r.BGP = &bgp.Input{AS: bgp.DefaultAS, Peers: []bgp.Peer{{Name: "reflectors", PeerSelector: picks},
		{Name: "router", Node: r.names()[0], IP: netip.MustParseAddr("192.0.2.254"), AS: 64999}}}
	for i, name := range r.names() {
		node := bgp.Node{Name: name, IPv4: address(i), Labels: map[string]string{}}
		if i < reflectors {
			node.ClusterID, node.Labels["rr"] = "244.0.0.1", ""
		}
		r.BGP.Nodes = append(r.BGP.Nodes, node)
	}
}

// Grow adds nodes without a role, until there are as many.
func Grow(in *bgp.Input, nodes int) {
	for i := len(in.Nodes); i < nodes; i++ {
		in.Nodes = append(in.Nodes,
			bgp.Node{Name: fmt.Sprintf("more-%04d", i), IPv4: address(i), Labels: map[string]string{}})
	}
}

func address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(i / 250), byte(i%250 + 1)})
}

// Reports are what the nodes say of their sessions at a time. They begin 4 s after the run.
func (r *Run) Reports(at time.Time) (all []v1alpha1.ProbeReport) {
	since := r.Begin.Add(4 * time.Second)
	if r.BGP == nil || !at.After(since) {
		return nil
	}
	g := bgp.Build(r.BGP, false)
	for _, i := range g.Speakers() {
		name := g.Nodes[i].Name
		said := at
		if silent, ok := r.Silent[name]; ok && silent.Before(at) {
			said = silent
		}
		one := v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.ProbeReportStatus{
			Seq: int64(said.Sub(since) / time.Second), At: said, Paths: []v1alpha1.PathResult{{ID: name}},
			BGP: &v1alpha1.BGP{}}}
		for _, j := range g.Missing(i, bgp.Seen{}) {
			if !slices.ContainsFunc(r.Lost, func(s Session) bool {
				return (s.Node == name && s.Peer == g.Nodes[j].Name || s.Peer == name && s.Node == g.Nodes[j].Name) &&
					!said.Before(s.From) && said.Before(s.From.Add(s.Lasts))
			}) {
				one.Status.BGP.Up = append(one.Status.BGP.Up, g.Nodes[j].IPv4.String())
			}
		}
		for _, router := range g.Outside(i) {
			one.Status.BGP.Up = append(one.Status.BGP.Up, router.IP.String())
		}
		all = append(all, one)
	}
	return all
}

// New is a run on many nodes, one of which is moved about every 7 s. Nothing is lost in it.
func New(t testing.TB, nodes int) *Run {
	t.Helper()
	r := &Run{Plan: planned(t, nodes), Begin: time.Date(2026, 3, 14, 2, 10, 0, 0, time.UTC)}
	r.play()
	topology := path.Topology{Old: map[string]string{}, New: map[string]string{},
		Services: map[string]string{path.Old: "198.19.0.7"}, DNS: "198.19.0.10:53",
		Query: "kubernetes.default.svc.cluster.local.", Denied: map[string]bool{path.Old: true, path.New: true},
		Ports: path.Ports{UDP: 7001, TCP: 7002, Denied: 7009, HostOffset: 100}}
	for i, name := range r.names() {
		topology.Nodes = append(topology.Nodes, path.Node{Name: name, Address: fmt.Sprintf("192.0.2.%d", i%250)})
		topology.Old[name] = fmt.Sprintf("10.%d.%d.9", i/250, i%250)
		topology.New[name] = fmt.Sprintf("11.%d.%d.9", i/250, i%250)
	}
	r.Paths = path.Build(topology)
	return r
}

func (r *Run) names() (all []string) {
	for _, wave := range r.Plan.Waves {
		all = append(all, wave.Nodes...)
	}
	return all
}

// planned is the planner's plan for the fixture's nodes. For more nodes, the steps of its first node are repeated, in
// waves of 40.
func planned(t testing.TB, nodes int) *plan.Plan {
	t.Helper()
	p, err := plan.Make(cnitest.Snapshot(t, cnitest.Fixture(t, "flannel.yaml")),
		v1alpha1.ChangeSpec{To: "calico", Manifest: "calico.yaml", PodCIDR: "10.96.0.0/16",
			AgentImage: "theseus.dev/agent:dev"}, drivers.All(), nil,
		plan.Options{Manifest: cnitest.Fixture(t, "calico-manifest.yaml"), Version: "v0.0.0-test",
			Now: time.Date(2026, 3, 14, 2, 0, 0, 0, time.UTC), Name: "flannel-to-calico-3f9c2a"})
	if err != nil {
		t.Fatal(err)
	}
	first := p.Waves[0].Nodes[0]
	var before, own, after []step.Step
	for _, one := range p.Steps {
		switch {
		case one.Wave == p.Waves[0].Name && slices.Contains(one.Nodes(), first):
			own = append(own, one)
		case one.Wave == "" && len(own) == 0:
			before = append(before, one)
		case one.Wave == "":
			after = append(after, one)
		}
	}
	was := p.Waves[0].Name
	p.Waves, p.Steps = nil, before
	for i := range nodes {
		if size := min(40, 1<<len(p.Waves)); len(p.Waves) == 0 || len(p.Waves[len(p.Waves)-1].Nodes) >= size/2+size%2 {
			p.Waves = append(p.Waves, plan.Wave{Name: fmt.Sprintf("wave-%d", len(p.Waves)+1)})
		}
		wave, name := &p.Waves[len(p.Waves)-1], fmt.Sprintf("worker-%03d", i+1)
		wave.Nodes = append(wave.Nodes, name)
		for _, one := range own {
			data, err := json.Marshal(one)
			if err != nil {
				t.Fatal(err)
			}
			data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte(first), []byte(name)), []byte(was), []byte(wave.Name))
			var next step.Step
			if err := json.Unmarshal(data, &next); err != nil {
				t.Fatal(err)
			}
			for _, list := range [][]step.Action{next.Actions, next.Undo} {
				for k := range list {
					if list[k].Op() == step.OpProbe { // it is about all nodes of the wave
						list[k].Title = strings.ReplaceAll(list[k].Title, name, wave.Name)
					}
				}
			}
			p.Steps = join(p.Steps, next, name)
		}
	}
	p.Steps = append(p.Steps, after...)
	return p
}

// join adds a step. One that has all nodes of a wave is there already, and gets the actions of one more.
func join(steps []step.Step, next step.Step, node string) []step.Step {
	i := slices.IndexFunc(steps, func(one step.Step) bool { return one.ID == next.ID })
	if i < 0 {
		return append(steps, next)
	}
	for _, list := range [][]step.Action{next.Actions, next.Undo} {
		for k := range list {
			list[k].ID += "-" + node
		}
	}
	steps[i].Actions, steps[i].Undo = append(steps[i].Actions, next.Actions...), append(steps[i].Undo, next.Undo...)
	return steps
}

// play writes the journal.
func (r *Run) play() {
	at := r.Begin
	add := func(after time.Duration, one engine.Record) {
		at = at.Add(after)
		one.Seq, one.At = len(r.Records)+1, at
		r.Records = append(r.Records, one)
	}
	start, _ := json.Marshal(engine.Start{Plan: r.Plan.Hash, Theseus: "v0.0.0-test", Steps: len(r.Plan.Steps)})
	add(0, engine.Record{Event: engine.Started, Data: start, By: "ada@bastion-1"})
	for i := range r.Plan.Steps {
		one := &r.Plan.Steps[i]
		add(100*time.Millisecond, engine.Record{Event: engine.StepBegan, Step: one.ID})
		for _, action := range one.Actions {
			add(20*time.Millisecond, engine.Record{Event: engine.Intended, Step: one.ID, Action: action.ID})
			add(2*time.Second/time.Duration(len(one.Actions)), engine.Record{Event: engine.Acted, Step: one.ID,
				Action: action.ID, Result: "done", Data: moved(action, at)})
		}
		if one.Gate != nil {
			add(0, engine.Record{Event: engine.GateAsked, Step: one.ID})
			add(1500*time.Millisecond, engine.Record{Event: engine.GateAnswer, Step: one.ID, Verdict: &engine.Verdict{
				Pass: true, Paths: 96, Sent: 18_200, Reason: "96 paths, 18,200 probes, none lost"}})
		}
		add(10*time.Millisecond, engine.Record{Event: engine.StepDone, Step: one.ID})
	}
	add(time.Second, engine.Record{Event: engine.Finished, Result: engine.ResultDone})
}

// moved is the answer of an action that moves pods: of each node, one is of the Deployment shop/web, and one of the
// DaemonSet shop/logs.
func moved(action step.Action, at time.Time) json.RawMessage {
	var answer any
	switch {
	case action.Op() == step.OpEvict:
		answer = kube.Evicted{Pods: []kube.EvictedPod{
			{Namespace: "shop", Name: "web-" + action.Node(), Workload: "Deployment/shop/web", HeldMillis: 1200},
			{Namespace: "shop", Name: "logs-" + action.Node(), Workload: "DaemonSet/shop/logs"}}}
	case action.Verb() == step.VerbAdopt:
		result := step.AdoptResult{Node: action.Node()}
		for _, name := range []string{"web-", "logs-"} {
			result.Pods = append(result.Pods, step.AdoptOutcome{Namespace: "shop", Name: name + action.Node(),
				State: step.AdoptMoved, Marks: []step.AdoptMark{{Phase: "flip", At: at}},
				Gap: &step.AdoptGap{Sent: 400, AtFlip: step.Duration(7 * time.Millisecond)}})
		}
		answer = result
	default:
		return nil
	}
	data, err := json.Marshal(answer)
	if err != nil {
		panic(err)
	}
	return data
}

// PodsOn implements web.Live: the user's pods on a node, one of which has restarted on every tenth node.
func (r *Run) PodsOn(_ context.Context, node string, since time.Time) ([]run.RunningPod, error) {
	if r.Unread != nil {
		return nil, r.Unread
	}
	restarts := 0
	if strings.HasSuffix(node, "2") && !since.IsZero() {
		restarts = 3
	}
	return []run.RunningPod{{Namespace: "kube-system", Name: "kube-proxy-" + node, HostNetwork: true},
		{Namespace: "shop", Name: "logs-" + node, Restarts: restarts},
		{Namespace: "shop", Name: "cart-" + node, Made: r.Begin.Add(time.Minute)},
		{Namespace: "shop", Name: "pay-" + node}}, nil
}

// Workloads implements web.Live: shop/cart has restarted, and so has shop/logs.
func (r *Run) Workloads(context.Context, time.Time) ([]report.WorkloadOutcome, error) {
	if r.Unread != nil {
		return nil, r.Unread
	}
	return []report.WorkloadOutcome{{Kind: "Deployment", Namespace: "shop", Name: "web", Pods: 5},
		{Kind: "DaemonSet", Namespace: "shop", Name: "logs", Pods: 5, RestartsAfter: 3},
		{Kind: "Deployment", Namespace: "shop", Name: "cart", Pods: 4, RestartsAfter: 7},
		{Kind: "Deployment", Namespace: "shop", Name: "idle", Pods: 4}}, nil
}

// Began is when a step began.
func (r *Run) Began(id string) time.Time {
	for _, one := range r.Records {
		if one.Event == engine.StepBegan && one.Step == id {
			return one.At
		}
	}
	return time.Time{}
}

// Journal is what the journal holds at a time.
func (r *Run) Journal(at time.Time) []engine.Record {
	n, _ := slices.BinarySearchFunc(r.Records, at, func(one engine.Record, at time.Time) int {
		return one.At.Compare(at)
	})
	return r.Records[:n]
}

// Evidence is what the probes have found at a time. They begin 4 s after the run.
func (r *Run) Evidence(at time.Time) kube.Collected {
	since := r.Begin.Add(4 * time.Second)
	document := kube.Collected{}
	if !at.After(since) {
		return document
	}
	document.Paths, document.Looks = r.Paths, []kube.Looks{{From: since, To: at}}
	for _, event := range r.Events {
		if !event.At.After(at) {
			document.Events = append(document.Events, event)
		}
	}
	ranges := spread(since, at)
	for i, one := range r.Paths {
		sent := at.Sub(since).Milliseconds() / int64(max(one.IntervalMillis, 1))
		result := v1alpha1.PathResult{ID: one.ID, Sent: sent, Answered: sent, Since: since, Last: at,
			RTTMicros: [3]int64{180 + int64(i%7)*12, 900, 4200}, RTTCounts: ranges}
		if one.Denied {
			result.Answered, result.RTTCounts = 0, nil
		}
		for _, loss := range r.Losses {
			if loss.Node == one.Source.Node && loss.Class == one.Class && loss.From.Before(at) &&
				(!one.Denied || loss.Class == path.ClassDenied) {
				lose(&result, loss, at, one)
			}
		}
		document.Results = append(document.Results, result)
	}
	return document
}

func lose(result *v1alpha1.PathResult, loss Loss, at time.Time, one v1alpha1.Path) {
	lasts, open := loss.Lasts, at.Before(loss.From.Add(loss.Lasts))
	if open {
		lasts = at.Sub(loss.From)
	}
	gap := v1alpha1.Gap{From: loss.From, Millis: float64(lasts.Milliseconds()),
		Probes: max(1, lasts.Milliseconds()/int64(max(one.IntervalMillis, 1)))}
	if result.Answered -= gap.Probes; one.Denied {
		result.Answered = gap.Probes
	}
	if open {
		result.Open = &gap
	} else {
		result.Gaps = append(result.Gaps, gap)
	}
}

// spread is a histogram of round trips that are slower now and then, in the form of PathResult.RTTCounts.
func spread(since, at time.Time) []int64 {
	counts := make([]int64, 12)
	for s := range int64(at.Sub(since).Seconds()) {
		shift := int(1.4 + 1.4*math.Sin(float64(s)/17))
		counts[3+shift] += 600
		counts[4+shift] += 300
		counts[7+shift/2] += 20
	}
	return counts
}

// Show brings a feed to a time of the run. It returns how many records the feed has, for the next call.
func (r *Run) Show(feed *web.Feed, shown int, at time.Time) int {
	records := r.Journal(at)
	state, err := engine.Replay(records)
	if err != nil {
		panic(err)
	}
	about := web.About{Held: !state.Over(), Final: state.Over()}
	if about.Held {
		about.Runner = "ada@bastion-1 runs it"
	}
	feed.Publish(about, at, func(b *web.Board) {
		if len(records) > shown {
			b.Record(state, records[shown:]...)
		}
		if evidence := r.Evidence(at); len(evidence.Paths) > 0 {
			b.Measure(evidence, r.Paths, at)
		}
		if r.BGP != nil && len(records) > 0 {
			b.Graph(r.BGP, "")
			b.Hear(r.Reports(at), at)
		}
	})
	return len(records)
}
