package web_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/web"
	"github.com/theseus-cni/theseus/internal/run/web/webtest"
	"github.com/theseus-cni/theseus/internal/step"
)

// opened is what the page is told of a node.
func opened(t *testing.T, page *web.Server, name string) web.NodeDetail {
	t.Helper()
	code, body, _ := answer(page, request(page, http.MethodGet, "/node?name="+name, ""))
	var node web.NodeDetail
	if err := json.Unmarshal([]byte(body), &node); err != nil || code != http.StatusOK {
		t.Fatalf("%d %v %s", code, err, body)
	}
	return node
}

// pod is what is said of a pod of the namespace shop.
func pod(t *testing.T, node web.NodeDetail, name string) web.PodDetail {
	t.Helper()
	for _, one := range node.Pods {
		if one.Name == name {
			return one
		}
	}
	t.Fatalf("no pod %s: %+v", name, node.Pods)
	return web.PodDetail{}
}

// TestNodeOpened: a node has its pods with what became of each, its paths, its agent's tasks and its records.
func TestNodeOpened(t *testing.T) {
	r := webtest.New(t, 5)
	last := r.Plan.Waves[len(r.Plan.Waves)-1].Name // it has worker-005, and not worker-002
	r.Plan.Workloads = append(r.Plan.Workloads, kind.Workload{Kind: "Deployment", Namespace: "shop", Name: "pay",
		Treatment: "move", Pods: map[string][]string{last: {"pay-worker-004", "pay-worker-005"}}})
	r.Losses = []webtest.Loss{{Node: "worker-002", Class: "pod-pod", From: r.Begin.Add(10 * time.Second),
		Lasts: 4 * time.Second}}
	feed := web.NewFeed(r.Plan)
	page := web.NewServer(feed, address, nil, nil)
	page.Live = r
	before := opened(t, page, "worker-003")
	if before.List != nil || before.Tasks != nil || before.Lines != nil || before.Paths != 0 {
		t.Errorf("before the run: %+v", before)
	}
	i := slices.IndexFunc(r.Plan.Steps, func(one step.Step) bool { return one.Wave == last })
	moved := r.Began(r.Plan.Steps[i].ID)
	r.Show(feed, r.Show(feed, 0, moved.Add(-time.Second)), moved)
	node := opened(t, page, "worker-002")
	web1 := pod(t, node, "web-worker-002")
	if web1.State != "evicted" || !strings.Contains(web1.Note, "delayed it by 1.2 s") {
		t.Errorf("evicted: %+v", web1)
	}
	if !web1.Unread { // it runs there no more, so nothing says whether it has restarted
		t.Errorf("restarts of a pod that is gone: %+v", web1)
	}
	if logs := pod(t, node, "logs-worker-002"); logs.State != "evicted" || logs.Restarts != 3 || !logs.Bad ||
		logs.Unread {
		t.Errorf("restarted: %+v", logs)
	}
	if node.Pods[0].Name != "logs-worker-002" {
		t.Errorf("what restarted does not come first: %+v", node.Pods)
	}
	if proxy := pod(t, node, "kube-proxy-worker-002"); proxy.State != "hostNetwork: it does not move" || proxy.Bad {
		t.Errorf("host network: %+v", proxy)
	}
	if cart := pod(t, node, "cart-worker-002"); cart.State != "made during the change" {
		t.Errorf("new: %+v", cart)
	}
	if later := pod(t, opened(t, page, "worker-005"), "pay-worker-005"); later.State != "to be evicted" {
		t.Errorf("to move: %+v", later)
	}
	if len(node.List) == 0 || node.List[0].Lost == 0 || node.List[0].Longest != 4000 {
		t.Errorf("paths: %+v", node.List[:min(len(node.List), 1)])
	}
	quick := 0
	for _, one := range node.List {
		if one.Now > 0 {
			quick++
		}
		if one.Denied && one.Now > 0 {
			t.Errorf("a denied path has a round trip: %+v", one)
		}
	}
	if quick == 0 {
		t.Error("no path has a round trip")
	}
	if len(node.Tasks) == 0 || node.Tasks[len(node.Tasks)-1].State != engine.ResultDone {
		t.Errorf("tasks: %+v", node.Tasks)
	}
	if len(node.Lines) < 3 || node.Lines[0].At.Before(node.Lines[1].At) {
		t.Errorf("records: %+v", node.Lines)
	}
	for _, line := range node.Lines {
		if strings.Contains(line.Text, "worker-001") || strings.Contains(line.Text, "worker-003") {
			t.Errorf("a record of another node: %+v", line)
		}
	}
}

// TestNodeNamesBegin: the records of a node whose name is the beginning of another's are told apart by what their
// actions are about. One that names no node is about all of its step.
func TestNodeNamesBegin(t *testing.T) {
	const short, long = "kind-worker", "kind-worker2"
	r := webtest.New(t, 2)
	gone, shown := joint.ProbePod(long, "new"), map[string][]string{
		short: {"wait for both", "create the pod of " + short, "label " + short, "join " + short},
		long: {"wait for both", "wait for " + long, "delete the pod of " + long, "create the pod of " + long,
			"label " + long, "join " + long}}
	node := func(name string) *step.Ref { return &step.Ref{APIVersion: "v1", Kind: "Node", Name: name} }
	r.Plan.Waves = []plan.Wave{{Name: "wave-1", Nodes: []string{short, long}}}
	r.Plan.Steps = []step.Step{{ID: "s", Wave: "wave-1", Group: "wave-1", Actions: []step.Action{
		{Do: step.Node{Verb: step.VerbJoin, NodeName: short}, Title: "join " + short},
		{Do: step.Node{Verb: step.VerbJoin, NodeName: long}, Title: "join " + long},
		{Do: step.Patch{Ref: *node(short)}, Title: "label " + short},
		{Do: step.Patch{Ref: *node(long)}, Title: "label " + long},
		{Do: step.Apply{Object: manifest.ProbePod("i", short, "new")}, Title: "create the pod of " + short},
		{Do: step.Apply{Object: manifest.ProbePod("i", long, "new")}, Title: "create the pod of " + long},
		{Do: step.Delete{Ref: gone}, Title: "delete the pod of " + long},
		{Do: step.Wait{Condition: step.Condition{Is: step.PodReady{Node: long}}}, Title: "wait for " + long},
		{Do: step.Probe{Paths: step.PathSet{}}, Title: "wait for both"}}}}
	records := []engine.Record{}
	for i := range r.Plan.Steps[0].Actions {
		one := &r.Plan.Steps[0].Actions[i]
		one.ID = fmt.Sprint(i)
		records = append(records, engine.Record{Seq: i + 1, At: r.Begin, Event: engine.Acted, Step: "s", Action: one.ID,
			Result: engine.ResultFailed, Error: "no"})
	}
	feed := web.NewFeed(r.Plan)
	feed.Publish(web.About{Held: true}, r.Begin, func(b *web.Board) { b.Record(engine.State{}, records...) })
	page := web.NewServer(feed, address, nil, nil)
	for name, want := range shown {
		var got []string
		for _, line := range opened(t, page, name).Lines {
			got = append(got, strings.TrimSuffix(line.Text, ": FAILED: no"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestNodeUnmeasured: a path that should be measured, and has no probe yet, is shown as silent, before those that are
// well. One that is not planned any more is not shown.
func TestNodeUnmeasured(t *testing.T) {
	r := webtest.New(t, 3)
	feed := web.NewFeed(r.Plan)
	var planned []v1alpha1.Path
	mute, gone := "", ""
	for _, one := range r.Paths {
		switch {
		case one.Source.Node != "worker-002" || one.Denied:
		case mute == "":
			mute = one.ID
		case gone == "":
			gone = one.ID
			continue
		}
		planned = append(planned, one)
	}
	for _, seconds := range []time.Duration{20, 30} {
		at := r.Begin.Add(seconds * time.Second)
		evidence := r.Evidence(at)
		evidence.Results = slices.DeleteFunc(evidence.Results, func(one v1alpha1.PathResult) bool {
			return one.ID == mute || one.ID == gone
		})
		feed.Publish(web.About{Held: true}, at, func(b *web.Board) { b.Measure(evidence, planned, at) })
	}
	page := web.NewServer(feed, address, nil, nil)
	node := opened(t, page, "worker-002")
	if len(node.List) < 2 || node.List[0].ID != mute || !node.List[0].Silent || node.List[0].Sent != 0 ||
		node.List[1].Sent == 0 {
		t.Errorf("%s is not the first: %+v", mute, node.List[:min(len(node.List), 2)])
	}
	if slices.ContainsFunc(node.List, func(p web.PathDetail) bool { return p.ID == gone }) {
		t.Errorf("%s is not measured any more", gone)
	}
}

// TestNodeNotRead: without the right to list pods, the journal's pods are shown, and nothing is said of restarts.
func TestNodeNotRead(t *testing.T) {
	r := webtest.New(t, 5)
	feed := web.NewFeed(r.Plan)
	r.Show(feed, 0, r.Records[len(r.Records)-1].At)
	page := web.NewServer(feed, address, nil, nil)
	if node := opened(t, page, "worker-002"); !strings.Contains(node.PodsNote, "does not read the cluster") {
		t.Errorf("without a client: %q", node.PodsNote)
	}
	page.Live = r
	r.Unread = errors.New("pods is forbidden")
	node := opened(t, page, "worker-002")
	if !strings.Contains(node.PodsNote,
		"does not know which pods run on it now, nor which have restarted: pods is forbidden.") {
		t.Errorf("%q", node.PodsNote)
	}
	if one := pod(t, node, "logs-worker-002"); one.State != "evicted" || one.Restarts != 0 || !one.Unread ||
		one.Note != "" {
		t.Errorf("%+v", one)
	}
	for path, want := range map[string]int{"/node": 404, "/node?name=": 404, "/node?name=worker-002%00": 404,
		"/node?name=" + strings.Repeat("x", 4000): 404, "/node?name=worker-002&name=worker-001": 200} {
		if code, body, _ := answer(page, request(page, http.MethodGet, path, "")); code != want {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// TestNodeFails: a task that failed has its error, and one without an answer is not called done.
func TestNodeFails(t *testing.T) {
	r := webtest.New(t, 3)
	feed := web.NewFeed(r.Plan)
	page := web.NewServer(feed, address, nil, nil)
	page.Live = r
	for _, one := range r.Plan.Steps {
		for _, action := range one.Actions {
			if action.Node() != "worker-002" || action.Verb() == "" {
				continue
			}
			feed.Publish(web.About{Held: true}, r.Begin, func(b *web.Board) {
				b.Record(engine.State{}, engine.Record{Seq: 1, At: r.Begin, Event: engine.Intended, Step: one.ID,
					Action: action.ID})
			})
			if node := opened(t, page, "worker-002"); len(node.Tasks) != 1 || node.Tasks[0].State != "no answer yet" {
				t.Errorf("under way: %+v", node.Tasks)
			}
			feed.Publish(web.About{Held: true}, r.Begin, func(b *web.Board) {
				b.Record(engine.State{}, engine.Record{Seq: 2, At: r.Begin, Event: engine.Acted, Step: one.ID,
					Action: action.ID, Result: engine.ResultFailed, Error: "no route"})
			})
			node := opened(t, page, "worker-002")
			if len(node.Tasks) != 1 || node.Tasks[0].State != "failed" || node.Tasks[0].Error != "no route" {
				t.Errorf("failed: %+v", node.Tasks)
			}
			if len(node.Lines) != 1 || !node.Lines[0].Bad {
				t.Errorf("its record: %+v", node.Lines)
			}
			return
		}
	}
	t.Fatal("the plan has no verb on worker-002")
}

// TestNodeAdopted: of pods that were asked to move while they run, each state that the agent can answer has words, and
// those that a person should look at come first.
func TestNodeAdopted(t *testing.T) {
	r := webtest.New(t, 3)
	i := slices.IndexFunc(r.Plan.Steps, func(one step.Step) bool { return slices.Contains(one.Nodes(), "worker-002") })
	one := &r.Plan.Steps[i]
	one.Actions = []step.Action{{ID: "adopt", Do: step.Node{Verb: step.VerbAdopt, NodeName: "worker-002"}}}
	result := step.AdoptResult{Node: "worker-002"}
	for name, state := range map[string]step.AdoptState{"a": step.AdoptMoved, "b": step.AdoptRefused,
		"c": step.AdoptUndone, "d": step.AdoptStuck, "e": step.AdoptGone, "f": step.AdoptAlready} {
		result.Pods = append(result.Pods, step.AdoptOutcome{Namespace: "shop", Name: name, State: state,
			Gap: &step.AdoptGap{Sent: 400, Lost: 1, AtFlip: step.Duration(7 * time.Millisecond)}})
	}
	data, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	feed := web.NewFeed(r.Plan)
	feed.Publish(web.About{Held: true}, r.Begin, func(b *web.Board) {
		b.Record(engine.State{}, engine.Record{Seq: 1, At: r.Begin, Event: engine.Intended, Step: one.ID,
			Action: "adopt"}, engine.Record{Seq: 2, At: r.Begin, Event: engine.Acted, Step: one.ID,
			Action: "adopt", Result: engine.ResultDone, Data: data})
	})
	page := web.NewServer(feed, address, nil, nil)
	page.Live = r
	node := opened(t, page, "worker-002")
	for name, want := range map[string]string{"a": "moved with its connections", "b": "not moved: refused",
		"c": "not moved: failed and undone", "d": "stuck: the agent tries again", "e": "ended before it was moved",
		"f": "was on the network already"} {
		if got := pod(t, node, name); got.State != want || got.Bad != strings.Contains("bcd", name) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := pod(t, node, "a").Note; got != "gap of 7.0 ms, 1 of 400 datagrams lost; it no longer runs on this node" {
		t.Errorf("note %q", got)
	}
	if !node.Pods[0].Bad || !node.Pods[2].Bad || node.Pods[3].Bad && node.Pods[3].Restarts == 0 {
		t.Errorf("order: %+v", node.Pods)
	}
}
