package web

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/loss"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/report"
	"github.com/theseus-cni/theseus/internal/step"
)

// Live reads from the cluster what the page shows only when a person asks for it.
type Live interface {
	// PodsOn are the pods on a node, without Theseus' own.
	PodsOn(ctx context.Context, node string, since time.Time) ([]run.RunningPod, error)
	// Workloads counts the pods and the restarts of all workloads of the cluster.
	Workloads(ctx context.Context, since time.Time) ([]report.WorkloadOutcome, error)
}

// NodeDetail is what the page shows of one node.
type NodeDetail struct {
	Node
	Begin time.Time `json:"begin,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Reports is the time of the last results from it, by the clock of this machine.
	Reports time.Time  `json:"reports,omitzero"`
	Paths   int        `json:"paths"`
	Sent    int64      `json:"sent"`
	Lost    int64      `json:"lost"`
	Leaked  int64      `json:"leaked"`
	Longest float64    `json:"longestMillis"`
	Steps   []NodeStep `json:"steps"`
	// List are its paths: those with the longest gaps first, then those without new results, and then the slowest. At
	// most maxNodePaths.
	List []PathDetail `json:"list,omitempty"`
	// Pods are those that run on it or that something happened to, and PodsNote says what is not known of them.
	Pods     []PodDetail `json:"pods,omitempty"`
	MorePods int         `json:"morePods,omitempty"`
	PodsNote string      `json:"podsNote,omitempty"`
	// Tasks are what its agent was asked for, newest first.
	Tasks     []TaskDetail `json:"tasks,omitempty"`
	MoreTasks int          `json:"moreTasks,omitempty"`
	// Lines are the records of the journal about it, newest first.
	Lines     []Line `json:"lines,omitempty"`
	MoreLines int    `json:"moreLines,omitempty"`
}

// NodeStep is a step that works on the node.
type NodeStep struct {
	I       int    `json:"i"`
	Title   string `json:"title"`
	Mark    Mark   `json:"mark"`
	Failure string `json:"failure,omitempty"`
}

// PathDetail is a path that begins or ends on the node.
type PathDetail struct {
	ID      string  `json:"id"`
	Denied  bool    `json:"denied,omitempty"`
	Sent    int64   `json:"sent"`
	Lost    int64   `json:"lost"`
	Leaked  int64   `json:"leaked"`
	Longest float64 `json:"longestMillis"`
	Cause   string  `json:"cause,omitempty"`
	// Now is the median round trip between the last two results, in microseconds; 0 if none is known.
	Now int64 `json:"now,omitempty"`
	// Silent is true if it should be measured now, and has no new results, or none yet.
	Silent bool `json:"silent,omitempty"`
}

// PodDetail is a pod of the node, and what happened to it.
type PodDetail struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is a few words, and Note what else is known.
	State string `json:"state"`
	Note  string `json:"note,omitempty"`
	// Bad is true if a person should look at it.
	Bad      bool `json:"bad,omitempty"`
	Restarts int  `json:"restarts,omitempty"`
	// Unread is true if its restarts were not read, since it does not run on this node now, as far as is known.
	Unread bool `json:"unread,omitempty"`

	rank int
}

// The order in which pods are shown.
const (
	rankBad = iota
	rankRestarted
	rankEvicted
	rankMoved
	rankToMove
	rankOther
)

// TaskDetail is one verb that the node's agent was asked for, by the journal.
type TaskDetail struct {
	Verb  string `json:"verb"`
	Title string `json:"title"`
	// State is "done", "already", "failed", or "no answer yet".
	State string    `json:"state"`
	Error string    `json:"error,omitempty"`
	Undo  bool      `json:"undo,omitempty"`
	At    time.Time `json:"at"`

	action string
}

// unanswered is the state of a task that the journal has no result of.
const unanswered = "no answer yet"

// How much of a node is shown.
const (
	maxNodePaths = 60
	maxNodePods  = 250
	maxNodeTasks = 100
	maxNodeLines = 100
)

// Node is the detail of a node, as far as plan, journal and measurements tell.
func (b *Board) Node(name string) (NodeDetail, bool) {
	i, known := b.nodes[name]
	if !known {
		return NodeDetail{}, false
	}
	d := NodeDetail{Node: b.cells[i]}
	for _, node := range b.model.Nodes {
		if node.Name == name {
			d.Begin, d.End = node.Begin, node.End
		}
	}
	for i := range b.plan.Steps {
		if one := &b.model.Steps[i]; one.Group == d.Wave && slices.Contains(one.Nodes, name) {
			d.Steps = append(d.Steps, NodeStep{i, one.Title, markOf(one.State), one.Failure})
		}
	}
	b.nodePaths(&d)
	b.nodeTasks(&d)
	return d, true
}

func (b *Board) nodePaths(d *NodeDetail) {
	quiet := b.quiet(b.at)
	for _, p := range b.account {
		at := b.progress[p.ID]
		if p.Source.Node == d.Name && at.grew.After(d.Reports) {
			d.Reports = at.grew
		}
		if p.Source.Node != d.Name && p.Target.Node != d.Name ||
			p.Sent == 0 && !quiet[at] { // it is not measured now, or has just begun
			continue
		}
		d.Paths++
		d.Sent, d.Lost, d.Leaked = d.Sent+p.Sent, d.Lost+p.Lost, d.Leaked+p.Leaked
		one := PathDetail{ID: p.ID, Denied: p.Denied, Sent: p.Sent, Lost: p.Lost, Leaked: p.Leaked, Silent: quiet[at]}
		if !p.Denied && b.fresh(at, b.at) {
			one.Now = loss.RoundTrips(at.counts).Since(at.before).Quantile(0.5)
		}
		if p.Lost+p.Leaked > 0 {
			for _, gap := range p.Gaps {
				one.Longest, one.Cause = max(one.Longest, gap.Millis), cmp.Or(gap.Cause, one.Cause)
			}
		}
		d.Longest = max(d.Longest, one.Longest)
		d.List = append(d.List, one)
	}
	slices.SortFunc(d.List, func(a, b PathDetail) int {
		return cmp.Or(-cmp.Compare(min(a.Lost+a.Leaked, 1), min(b.Lost+b.Leaked, 1)),
			-cmp.Compare(a.Longest, b.Longest), compareBool(b.Silent, a.Silent), -cmp.Compare(a.Now, b.Now),
			cmp.Compare(a.ID, b.ID))
	})
	d.List = d.List[:min(len(d.List), maxNodePaths)]
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// nodeTasks reads the journal for what concerns one node.
func (b *Board) nodeTasks(d *NodeDetail) {
	for _, r := range b.records {
		action := b.script.Find(r.Action)
		if !b.concerns(d.Name, r, action) {
			continue
		}
		if line, ok := b.lineOf(r); ok {
			d.Lines = append(d.Lines, line)
		}
		if action == nil || action.Op() != step.OpNode {
			continue
		}
		last := slices.IndexFunc(d.Tasks, func(t TaskDetail) bool {
			return t.action == r.Action && t.Undo == r.Undo && t.State == unanswered
		})
		switch {
		case r.Event == engine.Intended && last < 0:
			d.Tasks = append(d.Tasks, TaskDetail{Verb: action.Verb(), Title: action.Title, State: unanswered, At: r.At,
				Undo: r.Undo, action: r.Action})
		case r.Event == engine.Acted && last >= 0:
			d.Tasks[last].State, d.Tasks[last].Error, d.Tasks[last].At = r.Result, r.Error, r.At
		}
	}
	slices.Reverse(d.Lines)
	slices.Reverse(d.Tasks)
	d.MoreLines, d.MoreTasks = max(len(d.Lines)-maxNodeLines, 0), max(len(d.Tasks)-maxNodeTasks, 0)
	d.Lines, d.Tasks = d.Lines[:len(d.Lines)-d.MoreLines], d.Tasks[:len(d.Tasks)-d.MoreTasks]
}

// concerns says whether a record is about a node: its action names it, or names none, and its step is about it.
func (b *Board) concerns(name string, r engine.Record, action *step.Action) bool {
	if action != nil {
		if node := nodeOf(action); node != "" {
			return node == name
		}
	}
	i := b.index(r.Step)
	return i >= 0 && slices.Contains(b.model.Steps[i].Nodes, name)
}

// nodeOf is the node of an action, or else that of the object or the condition that it names; empty if these name none,
// or several. A title is not looked at: the name of one node may be the beginning of another's.
func nodeOf(action *step.Action) string {
	if node := action.Node(); node != "" {
		return node
	}
	ref := action.Ref()
	switch do := action.Do.(type) {
	case step.Wait:
		if node := do.Condition.Node(); node != "" {
			return node
		}
		ref = do.Condition.Ref()
	case step.Apply:
		if do.Object == nil {
			break
		}
		if node, _, _ := unstructured.NestedString(do.Object.Object, "spec", "nodeName"); node != "" {
			return node
		}
	}
	switch {
	case ref.Kind == "Node":
		return ref.Name
	case ref.Kind == "Pod" && ref.Namespace == v1alpha1.Namespace:
		for _, network := range []string{"old", "new"} {
			if node, ok := strings.CutPrefix(ref.Name, manifest.ProbePodName("", network)); ok {
				return node
			}
		}
	}
	return ""
}

// begun is when the run began; zero if it has not.
func (b *Board) begun() time.Time {
	if len(b.records) == 0 {
		return time.Time{}
	}
	return b.records[0].At
}

// pods says what happened to the pods of a node, by namespace/name. More than the journal tells is known of those that
// run there now.
func (b *Board) pods(d *NodeDetail, running []run.RunningPod, unread error) {
	known := b.journalPods(d.Name)
	planned := b.plannedPods(d.Wave)
	var all []PodDetail
	for _, pod := range running {
		name := pod.Namespace + "/" + pod.Name
		one, told := known[name]
		delete(known, name)
		if !told {
			one = PodDetail{Namespace: pod.Namespace, Name: pod.Name, State: "not in the plan", rank: rankOther}
			switch treatment := planned[name]; {
			case pod.HostNetwork:
				one.State = "hostNetwork: it does not move"
			case treatment == "adopt" && d.Mark != Done:
				one.State, one.rank = "to move, with its connections", rankToMove
			case treatment == "move" && d.Mark != Done:
				one.State, one.rank = "to be evicted", rankToMove
			case treatment != "":
				one.State = "in the plan; the journal has no result for it"
			case !b.begun().IsZero() && pod.Made.After(b.begun()):
				one.State = "made during the change"
			}
		}
		if pod.Ended {
			one.Note = strings.TrimPrefix(one.Note+"; its containers have ended", "; ")
		}
		if one.Restarts = pod.Restarts; pod.Restarts > 0 {
			one.rank, one.Bad = min(one.rank, rankRestarted), true
		}
		all = append(all, one)
	}
	for _, one := range known { // they run there no more, as far as is known
		one.Unread = true
		if unread == nil && one.rank != rankEvicted {
			one.Note = strings.TrimPrefix(one.Note+"; it no longer runs on this node", "; ")
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b PodDetail) int {
		return cmp.Or(a.rank-b.rank, cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	d.MorePods = max(len(all)-maxNodePods, 0)
	d.Pods = all[:len(all)-d.MorePods]
	if unread != nil {
		d.PodsNote = "Theseus does not know which pods run on it now, nor which have restarted: " + unread.Error() + "."
		if len(planned) > 0 {
			d.PodsNote += fmt.Sprintf(" The plan has %d pods on the nodes of %s.", len(planned), d.Wave)
		}
	}
}

// plannedPods are the treatments of the pods of a wave.
func (b *Board) plannedPods(wave string) map[string]string {
	all := map[string]string{}
	for _, w := range b.plan.Workloads {
		for _, name := range w.Pods[wave] {
			all[w.Namespace+"/"+name] = w.Treatment
		}
	}
	return all
}

// journalPods are the pods of a node that an action moved, evicted, or failed to move: what was said last counts.
func (b *Board) journalPods(node string) map[string]PodDetail {
	moves := map[string]report.Move{} // the last one of each pod
	for _, m := range b.model.Moves {
		if m.Node == node {
			moves[m.Namespace+"/"+m.Name] = m
		}
	}
	all := map[string]PodDetail{}
	put := func(one PodDetail) {
		if one.Name != "" && one.Namespace != v1alpha1.Namespace {
			all[one.Namespace+"/"+one.Name] = one
		}
	}
	var told run.Evictions
	for _, r := range b.records {
		action := b.script.Find(r.Action)
		if r.Event != engine.Acted || action == nil || nodeOf(action) != node {
			continue
		}
		switch {
		case action.Op() == step.OpEvict:
			for _, pod := range told.Of(r) {
				one := PodDetail{Namespace: pod.Namespace, Name: pod.Name, State: "evicted", rank: rankEvicted}
				if pod.HeldMillis > 0 {
					one.Note = fmt.Sprintf("a PodDisruptionBudget delayed it by %.1f s", float64(pod.HeldMillis)/1000)
				}
				put(one)
			}
		case action.Verb() == step.VerbAdopt:
			var result step.AdoptResult
			if json.Unmarshal(r.Data, &result) != nil {
				continue
			}
			for _, pod := range result.Pods {
				move, moved := moves[pod.Namespace+"/"+pod.Name]
				put(adopted(pod, move, moved))
			}
		}
	}
	return all
}

func adopted(pod step.AdoptOutcome, move report.Move, moved bool) PodDetail {
	one := PodDetail{Namespace: pod.Namespace, Name: pod.Name, rank: rankMoved, Note: pod.Reason}
	switch pod.State {
	case step.AdoptMoved, step.AdoptAlready:
		one.State = "was on the network already"
		if moved {
			one.State = "moved with its connections"
			if move.Back {
				one.State = "moved back with its connections"
			}
			one.Note = movedNote(move)
		}
	case step.AdoptRefused:
		one.State, one.Bad, one.rank = "not moved: refused", true, rankBad
	case step.AdoptUndone:
		one.State, one.Bad, one.rank = "not moved: failed and undone", true, rankBad
	case step.AdoptStuck:
		one.State, one.Bad, one.rank = "stuck: the agent tries again", true, rankBad
	case step.AdoptGone:
		one.State = "ended before it was moved"
	default:
		one.State = string(pod.State)
	}
	return one
}

func movedNote(m report.Move) string {
	if m.Sent == 0 {
		return "its gap was not measured"
	}
	return fmt.Sprintf("gap of %.1f ms, %d of %d datagrams lost", m.FlipGapMillis, m.Lost, m.Sent)
}

// node serves what is known of one node. Its pods are read from the cluster when it is asked for.
func (s *Server) node(v *View, w http.ResponseWriter, r *http.Request) {
	name := r.FormValue("name")
	var one NodeDetail
	var begun time.Time
	known := false
	v.Feed.On(func(b *Board) { one, known = b.Node(name); begun = b.begun() })
	if !known {
		http.Error(w, "the plan has no such node", http.StatusNotFound)
		return
	}
	running, err := []run.RunningPod(nil), errNoLive
	if live := s.live(v); live != nil {
		ctx, cancel := context.WithTimeout(r.Context(), checkWithin)
		running, err = live.PodsOn(ctx, name, begun)
		cancel()
	}
	v.Feed.On(func(b *Board) { b.pods(&one, running, err) })
	reply(w, one)
}
