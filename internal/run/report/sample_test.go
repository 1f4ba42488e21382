package report

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// epoch is when every sample run begins.
var epoch = time.Date(2026, 3, 14, 9, 30, 0, 0, time.UTC)

// sample describes a made-up run; input makes what the engine and the probers would have left of it.
type sample struct {
	nodes int
	// gaps is how many gaps to spread over the run, each of up to longest ms.
	gaps    int
	longest float64
	// failAt is a step whose gate does not pass, so that the run goes back; pauseAt one before which it waits.
	failAt, pauseAt string
	// leaks is how many denied probes were answered.
	leaks int64
	// bare leaves out measurements, workloads, traffic and inventories.
	bare bool
	// adopt has each node's pods moved while they run.
	adopt bool
	// left is residue that the clean-up did not find.
	left bool
}

func (s sample) names() []string {
	var names []string
	for i := range s.nodes {
		if s.nodes < 10 {
			names = append(names, fmt.Sprintf("a-node-%d", i+1))
			continue
		}
		names = append(names, fmt.Sprintf("worker-%03d", i+1))
	}
	return names
}

// waves grow: 1, 2, 4, ... with an upper bound of 40.
func (s sample) waves() []plan.Wave {
	var waves []plan.Wave
	names := s.names()
	for size := 1; len(names) > 0; size = min(40, size*2) {
		n := min(size, len(names))
		waves = append(waves, plan.Wave{Name: fmt.Sprintf("wave-%d", len(waves)+1), Nodes: names[:n]})
		names = names[n:]
	}
	return waves
}

func (s sample) plan() *plan.Plan {
	p := &plan.Plan{
		APIVersion: v1alpha1.APIVersion, Kind: plan.Kind, Name: "flannel-to-calico-3f9c2a", Theseus: "v0.1.0",
		Cluster: plan.Cluster{UID: "0b9c7a52-7f0e-4c5e-9d43-6c0e2f6a1b77", Kubernetes: "v1.36.3", Nodes: s.names()},
		Change:  v1alpha1.ChangeSpec{To: "calico", PodCIDR: "198.19.0.0/16", MaxGapMillis: 50},
		Source:  cni.Installation{CNI: "flannel", Version: "v0.28.4"},
		Target:  cni.Installation{CNI: "calico", Version: "v3.31.0"}, Strategy: "recreate",
		Reason: "calico cannot take over flannel's addresses, so pods are recreated",
		Waves:  s.waves(), Estimate: step.Duration(time.Duration(4+s.nodes) * 45 * time.Second),
		Hash: "sha256:5c1f0e6bb4f7d0a97e1bb0a8d7c8a0b56e7b7dc4a7d9a3c06f0f0a4a0d6b1e21",
		Findings: []finding.Finding{{ID: "workload/single-replica", Severity: finding.Warn,
			Message:  "Deployment shop/mailer has one replica: it is away while its pod is recreated.",
			Accepted: "mail is queued by its clients"}},
		Workloads: []plan.Workload{{Kind: "Deployment", Namespace: "shop", Name: "web",
			Pods: map[string][]string{"wave-1": {"web-1"}}}},
	}
	gate := func(title string) *step.Gate {
		return &step.Gate{Title: title, MaxGap: step.Duration(50 * time.Millisecond),
			Bake: step.Duration(20 * time.Second)}
	}
	add := func(id, title, why string, g *step.Gate, actions ...string) *step.Step {
		group, does, _ := strings.Cut(id, "/")
		st := step.Step{ID: id, Group: group, Does: does, Title: title, Why: why, Gate: g}
		for i, text := range actions {
			st.Actions = append(st.Actions, step.Action{ID: fmt.Sprintf("%s/%d", id, i+1), Title: text,
				Do: step.Apply{}})
		}
		p.Steps = append(p.Steps, st)
		return &p.Steps[len(p.Steps)-1]
	}
	baseline := gate("every path answers before anything changes")
	baseline.Baseline = true
	add("prepare/own", "Install Theseus' own objects", "Agents measure and act on every node.", nil,
		"create Namespace theseus-system", "create CustomResourceDefinition nodetasks.theseus.dev",
		"create DaemonSet theseus-system/theseus-agent", "wait for DaemonSet theseus-system/theseus-agent")
	add("prepare/probes", "Start the probes on the old network",
		"What is not measured before cannot be compared.", baseline, "create the old probe pods", "measure every path")
	add("joint/routes", "Join the two networks on every node",
		"An old pod and a new pod must reach each other throughout.",
		nil, "join 198.18.0.0/16 and 198.19.0.0/16 on every node", "loosen rp_filter on every node")
	add("joint/target", "Bring calico up beside flannel",
		"Both agents must be ready everywhere before the first pod moves.", gate("nothing noticed the second network"),
		"create CustomResourceDefinition ippools.crd.projectcalico.org", "create DaemonSet kube-system/calico-node",
		"label the nodes one by one", "wait for calico-node on every node")
	for _, wave := range p.Waves {
		for _, node := range wave.Nodes {
			s.nodeSteps(add, gate, wave.Name, node)
			for i := len(p.Steps) - 2; i < len(p.Steps); i++ {
				p.Steps[i].Wave, p.Steps[i].Node = wave.Name, node
			}
		}
	}
	add("verify/bake", "Watch the new network", "The last moment at which everything can be taken back.",
		gate("the new network carries everything"), "wait until no pod has an old address")
	source := add("clean/source", "Remove flannel", "Nothing uses it any more.", nil,
		"delete the old probe pods", "delete DaemonSet kube-flannel/kube-flannel-ds",
		"delete ConfigMap kube-flannel/kube-flannel-cfg")
	source.NoReturn = true
	add("clean/nodes", "Clean every node of flannel's residue", "A rule left behind is the fault of next year.",
		gate("nothing needed what was removed"), "take an inventory of every node", "clean every node",
		"take an inventory of every node again")
	add("finish/target", "Give calico its final form", "It ends as its own manifest says.",
		gate("the final form serves"), "patch DaemonSet kube-system/calico-node", "delete IPPool theseus-old-range")
	add("finish/own", "Remove Theseus", "It leaves only the journal.", nil, "part the two networks on every node",
		"delete Namespace theseus-system")
	return p
}

type adder func(id, title, why string, g *step.Gate, actions ...string) *step.Step

func (s sample) nodeSteps(add adder, gate func(string) *step.Gate, wave, node string) {
	at := wave + "/" + node
	st := add(at+"/switch", "Let calico serve new pods on "+node,
		"From here on, a pod made on this node is on the new network.", gate("the new network works on "+node),
		"remove the taint theseus.dev/pending from "+node, "activate 10-calico.conflist on "+node,
		"create Pod theseus-system/theseus-probe-new-"+node, "measure every path that exists now")
	st.Undo = []step.Action{{ID: at + "/switch/undo/1", Title: "delete Pod theseus-system/theseus-probe-new-" + node},
		{ID: at + "/switch/undo/2", Title: "deactivate 10-calico.conflist on " + node}}
	st = add(at+"/move", "Move the pods of "+node,
		"One by one, within their budgets, each whole again before the next goes.",
		gate("nothing was lost while the pods of "+node+" moved"), "evict the pods of "+node+" on 198.18.0.0/16")
	st.Undo = []step.Action{{ID: at + "/move/undo/1", Title: "evict the pods of " + node + " on 198.19.0.0/16"}}
	if s.adopt {
		adopt := step.Node{NodeName: node, Verb: step.VerbAdopt}
		st.Actions[0].Do, st.Undo[0].Do = adopt, adopt
	}
}

// took is how long a step lasts.
func took(id string) time.Duration {
	switch {
	case len(id) > 5 && id[len(id)-5:] == "/move":
		return 34 * time.Second
	case len(id) > 7 && id[len(id)-7:] == "/switch":
		return 14 * time.Second
	}
	return 21 * time.Second
}

// records plays the plan as the engine would write it.
func (s sample) records(p *plan.Plan) []engine.Record {
	w := &writer{at: epoch}
	start, _ := json.Marshal(engine.Start{Plan: p.Hash, Theseus: "v0.1.0"})
	w.add(0, engine.Record{Event: engine.Started, Data: start, By: "ada@bastion-1"})
	for i := range p.Steps {
		st := &p.Steps[i]
		if st.ID == s.pauseAt {
			w.add(time.Second,
				engine.Record{Event: engine.Paused, Error: "the operator requested it", By: "ada@bastion-1"})
			w.add(90*time.Second, engine.Record{Event: engine.Resumed, By: "grace@bastion-2"})
		}
		if pass := w.step(st, st.ID != s.failAt); !pass {
			w.back(p.Steps[:i+1])
			return w.records
		}
	}
	w.add(time.Second, engine.Record{Event: engine.Finished, Result: "done"})
	return w.records
}

type writer struct {
	at      time.Time
	records []engine.Record
}

func (w *writer) add(after time.Duration, r engine.Record) {
	w.at = w.at.Add(after)
	r.Seq, r.At = len(w.records)+1, w.at
	w.records = append(w.records, r)
}

func (w *writer) step(st *step.Step, pass bool) bool {
	total := took(st.ID)
	w.add(100*time.Millisecond, engine.Record{Event: engine.StepBegan, Step: st.ID})
	for _, action := range st.Actions {
		w.add(50*time.Millisecond, engine.Record{Event: engine.Intended, Step: st.ID, Action: action.ID,
			Before: json.RawMessage(`{"secret":"not for readers"}`)})
		w.add(total/2/time.Duration(len(st.Actions)),
			engine.Record{Event: engine.Acted, Step: st.ID, Action: action.ID, Result: "done", Data: w.moved(action)})
	}
	if st.Gate != nil {
		verdict := &engine.Verdict{Pass: pass, Paths: 96, Sent: 182_000,
			Reason: "96 paths, 182,000 probes, none lost, no gap"}
		if !pass {
			verdict.Lost, verdict.LongestGapMillis = 38, 380
			verdict.Reason = "2 of 96 paths had a gap of more than 50 ms; the longest was 380 ms"
			verdict.Bad = []string{"a-node-1/old>a-node-2/new/udp", "a-node-2/new>a-node-1/old/udp"}
		}
		w.add(0, engine.Record{Event: engine.GateAsked, Step: st.ID})
		w.add(total/2, engine.Record{Event: engine.GateAnswer, Step: st.ID, Verdict: verdict})
		if !pass {
			return false
		}
	}
	w.add(10*time.Millisecond, engine.Record{Event: engine.StepDone, Step: st.ID})
	return true
}

// moved is what an agent answers that has moved two pods, found a third moved, and could measure all but one.
func (w *writer) moved(action step.Action) json.RawMessage {
	if action.Verb() != step.VerbAdopt {
		return nil
	}
	millis := func(ms float64) step.Duration { return step.Duration(ms * float64(time.Millisecond)) }
	pod := func(name string, state step.AdoptState, micros time.Duration) step.AdoptOutcome {
		return step.AdoptOutcome{Namespace: "shop", Name: name, State: state, Network: "k8s-pod-network",
			Flip:  step.Duration(micros * time.Microsecond),
			Marks: []step.AdoptMark{{Phase: "adding", At: w.at}, {Phase: "flip", At: w.at.Add(time.Second)}}}
	}
	result := step.AdoptResult{Node: action.Node(), Pods: []step.AdoptOutcome{
		pod("web-1", step.AdoptMoved, 41), pod("ledger-0", step.AdoptMoved, 1260),
		pod("mailer-7", step.AdoptAlready, 0)}}
	result.Pods[0].Gap = &step.AdoptGap{Interval: millis(1), Sent: 640, Lost: 2, Longest: millis(9.75),
		AtFlip: millis(2.5), Control: millis(3.25)}
	text, _ := json.Marshal(result)
	return text
}

func (w *writer) back(steps []step.Step) {
	last := steps[len(steps)-1].ID
	w.add(time.Second, engine.Record{Event: engine.RollingBack, Step: last, Result: "failed",
		Error: "the gate of " + last + " failed: 2 of 96 paths had a gap of more than 50 ms; the longest was 380 ms"})
	for i := len(steps) - 1; i >= 0; i-- {
		for _, action := range steps[i].Undo {
			w.add(time.Second, engine.Record{Event: engine.Intended, Step: steps[i].ID, Action: action.ID, Undo: true})
			w.add(9*time.Second, engine.Record{Event: engine.Acted, Step: steps[i].ID, Action: action.ID, Undo: true,
				Result: "done", Data: w.moved(action)})
		}
		w.add(2*time.Second, engine.Record{Event: engine.StepUndone, Step: steps[i].ID})
	}
	w.add(time.Second, engine.Record{Event: engine.Finished, Result: "rolled-back",
		Error: "the gate of " + last + " failed: 2 of 96 paths had a gap of more than 50 ms; the longest was 380 ms"})
}

// paths is a fixed-degree set: every node to itself and the next two, on both networks, and to what is no node's.
func (s sample) paths() []v1alpha1.Path {
	var paths []v1alpha1.Path
	names := s.names()
	add := func(class string, source, target v1alpha1.Endpoint, protocol v1alpha1.Protocol, denied bool) {
		id := fmt.Sprintf("%s>%s/%s", endName(source), endName(target), protocol)
		switch class {
		case "denied":
			id += "/denied"
		case "pod-service":
			id = fmt.Sprintf("%s>service/%s/%s", endName(source), target.Network, protocol)
		case "dns":
			id = endName(source) + ">dns"
		case "outside":
			id = endName(source) + ">outside/tcp:192.0.2.1:443"
		}
		paths = append(paths, v1alpha1.Path{ID: id, Class: class, Source: source, Target: target, Protocol: protocol,
			Size: 64, IntervalMillis: 10, Denied: denied})
	}
	for i, name := range names {
		end := func(node, network string) v1alpha1.Endpoint { return v1alpha1.Endpoint{Node: node, Network: network} }
		for d := 0; d < min(3, len(names)); d++ {
			other := names[(i+d*(1+len(names)/7))%len(names)]
			for _, pair := range [][2]string{{"old", "old"}, {"old", "new"}, {"new", "old"}, {"new", "new"}} {
				add("pod-pod", end(name, pair[0]), end(other, pair[1]), v1alpha1.UDP, false)
				add("pod-pod", end(name, pair[0]), end(other, pair[1]), v1alpha1.TCPNew, false)
			}
			add("host-pod", end(name, "host"), end(other, "new"), v1alpha1.TCP, false)
			add("pod-host", end(name, "new"), end(other, "host"), v1alpha1.TCP, false)
		}
		for _, network := range []string{"old", "new"} {
			add("pod-service", end(name, network), v1alpha1.Endpoint{Network: network, Address: "198.19.128.7:7002"},
				v1alpha1.TCPNew, false)
			add("outside", end(name, network), v1alpha1.Endpoint{Address: "192.0.2.1:443"}, v1alpha1.TCPConnect, false)
			add("dns", end(name, network), v1alpha1.Endpoint{Address: "198.19.128.10:53"}, v1alpha1.DNS, false)
			add("denied", end(name, network), end(names[(i+1)%len(names)], network), v1alpha1.UDP, true)
		}
	}
	return paths
}

// reports spreads the gaps over paths and time, by arithmetic, so that every run of the tests sees the same.
func (s sample) reports(paths []v1alpha1.Path, begin, end time.Time) []v1alpha1.ProbeReport {
	results := make([]v1alpha1.PathResult, len(paths))
	for i, path := range paths {
		sent := end.Sub(begin).Milliseconds() / int64(path.IntervalMillis)
		results[i] = v1alpha1.PathResult{ID: path.ID, Sent: sent, Answered: sent, Since: begin, Last: end,
			RTTMicros: [3]int64{180 + int64(i%7)*12, 900 + int64(i%11)*70, 4200 + int64(i%13)*150}}
		if path.Denied {
			results[i].Answered = 0
		}
	}
	for i := range s.gaps {
		at := begin.Add(time.Duration(float64(end.Sub(begin)) * float64((i*7919)%10007) / 10007))
		s.lose(paths, results, (i*104729)%len(paths), at, 10+float64((i*31)%97)/97*(s.longest-10))
	}
	for i := range paths {
		if paths[i].Denied && s.leaks > 0 {
			results[i].Answered = s.leaks
			results[i].Gaps = []v1alpha1.Gap{{From: begin.Add(end.Sub(begin) / 2),
				Millis: float64(s.leaks) * 10, Probes: s.leaks}}
			break
		}
	}
	return byNode(paths, results, end)
}

func (s sample) lose(paths []v1alpha1.Path, results []v1alpha1.PathResult, i int, at time.Time, ms float64) {
	if paths[i].Denied {
		return
	}
	probes := max(1, int64(ms)/int64(paths[i].IntervalMillis))
	results[i].Answered -= probes
	results[i].Gaps = append(results[i].Gaps, v1alpha1.Gap{From: at, Millis: ms, Probes: probes})
}

func byNode(paths []v1alpha1.Path, results []v1alpha1.PathResult, at time.Time) []v1alpha1.ProbeReport {
	index := map[string]int{}
	var reports []v1alpha1.ProbeReport
	for i, path := range paths {
		n, ok := index[path.Source.Node]
		if !ok {
			n = len(reports)
			index[path.Source.Node] = n
			reports = append(reports, v1alpha1.ProbeReport{ObjectMeta: metav1.ObjectMeta{Name: path.Source.Node},
				Status: v1alpha1.ProbeReportStatus{Generation: 4, Seq: 400, At: at}})
		}
		reports[n].Status.Paths = append(reports[n].Status.Paths, results[i])
	}
	return reports
}

func (s sample) inventories() (before, after map[string]step.Inventory) {
	before, after = map[string]step.Inventory{}, map[string]step.Inventory{}
	for i, name := range s.names() {
		before[name] = step.Inventory{Node: name, Found: step.Residue{
			Links:  []string{"flannel.1", "cni0"},
			Chains: []string{"FLANNEL-FWD", "FLANNEL-POSTRTG", "KUBE-ROUTER-FORWARD", "KUBE-ROUTER-INPUT"},
			IPSets: []string{"kube-router-local-pods"}, Routes: []string{fmt.Sprintf("198.18.%d.0/24", i)},
			ConfFiles: []string{"10-flannel.conflist"}, Binaries: []string{"flannel"},
			Paths:       []string{"/run/flannel/subnet.env"},
			Annotations: []string{"flannel.alpha.coreos.com/backend-data", "flannel.alpha.coreos.com/public-ip"}}}
		after[name] = step.Inventory{Node: name}
		if s.left && i == 1 {
			after[name] = step.Inventory{Node: name, Found: step.Residue{Chains: []string{"FLANNEL-POSTRTG"}}}
		}
	}
	return before, after
}

func (s sample) workloads() []WorkloadOutcome {
	list := []WorkloadOutcome{
		{Kind: "Deployment", Namespace: "shop", Name: "web", Pods: 6, RestartsBefore: 1, RestartsAfter: 1, Evicted: 6},
		{Kind: "StatefulSet", Namespace: "shop", Name: "ledger", Pods: 3, Evicted: 3},
		{Kind: "Deployment", Namespace: "shop", Name: "mailer", Pods: 1, Evicted: 1, NotReadyMillis: 2140},
		{Kind: "Deployment", Namespace: "kube-system", Name: "coredns", Pods: 2, Evicted: 2},
		{Kind: "DaemonSet", Namespace: "shop", Name: "log-shipper", Pods: s.nodes, Evicted: s.nodes},
		{Kind: "DaemonSet", Namespace: "kube-system", Name: "kube-proxy", Pods: s.nodes},
	}
	for i := 0; i < s.nodes/4; i++ {
		list = append(list, WorkloadOutcome{Kind: "Deployment", Namespace: fmt.Sprintf("team-%02d", i%9),
			Name: fmt.Sprintf("service-%02d", i), Pods: 4 + i%13, Evicted: 4 + i%13})
	}
	return list
}

// input is the whole sample.
func (s sample) input() Input {
	p := s.plan()
	records := s.records(p)
	in := Input{Plan: p, Records: records, At: records[len(records)-1].At.Add(12 * time.Second)}
	if s.bare {
		return in
	}
	in.Paths = s.paths()
	in.Reports = s.reports(in.Paths, epoch.Add(24*time.Second), records[len(records)-1].At.Add(-16*time.Second))
	in.Workloads = s.workloads()
	if s.failAt == "" {
		in.InventoriesBefore, in.InventoriesAfter = s.inventories()
	}
	in.Traffic = []Traffic{
		{Name: "http to shop/web", Requests: 421_880, LongestGapMillis: 6.2, P99GapMillis: 3.1},
		{Name: "tcp stream to shop/ledger", Requests: 59_323, LongestGapMillis: 4.8, P99GapMillis: 2.4},
	}
	return in
}

// samples are the runs that every output is tested on, by name.
func samples() map[string]sample {
	return map[string]sample{
		"good":        {nodes: 3},
		"gaps":        {nodes: 3, gaps: 14, longest: 380, pauseAt: "wave-2/a-node-3/switch", leaks: 2, left: true},
		"small-gaps":  {nodes: 3, gaps: 5, longest: 30},
		"rolled-back": {nodes: 3, gaps: 4, longest: 380, failAt: "wave-2/a-node-2/move"},
		"no-data":     {nodes: 3, bare: true},
		"adopted":     {nodes: 3, adopt: true},
		"half-back":   {nodes: 2, adopt: true, failAt: "wave-2/a-node-2/move"},
		"large":       {nodes: 212, gaps: 10_000, longest: 70},
		"large-good":  {nodes: 212},
	}
}
