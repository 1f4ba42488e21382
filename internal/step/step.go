package step

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Ref names an object of the API.
type Ref struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// RefOf names an object that is at hand.
func RefOf(object *unstructured.Unstructured) Ref {
	return Ref{object.GetAPIVersion(), object.GetKind(), object.GetNamespace(), object.GetName()}
}

// String is how people name it: kind/namespace/name.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + "/" + r.Name
	}
	return r.Kind + "/" + r.Namespace + "/" + r.Name
}

// SideBySide is how many pods may be missing at once by the evictions of a step on up to so many nodes, of different
// workloads: enough that one slow start does not hold up a node, and few enough that starting pods leave the others on
// the node their time. On more nodes it is one pod for each node.
const SideBySide = 5

// MostAtOnce is how many independent actions of a step are carried out at once, and so the most nodes that a plan may
// change at once.
const MostAtOnce = 64

// FewAtOnce is how many nodes a plan changes at once in a cluster of up to 80 nodes, unless the user asks for another
// number.
const FewAtOnce = 4

// EndsFirst says that workloads of a kind recreate a pod only when the old one has ended, which takes longest.
func EndsFirst(kind string) bool { return kind == "StatefulSet" || kind == "DaemonSet" }

// PodSet selects the pods of one node whose address lies in a network: pods of the host network,
// mirror pods and Theseus' own are never among them.
type PodSet struct {
	Node string `json:"node"`
	// CIDRs are the address ranges; a pod counts when its address lies in one of them.
	CIDRs []string `json:"cidrs"`
	// Namespace limits the set where it is not empty.
	Namespace string `json:"namespace,omitempty"`
	// Names limits the set to these pods, as namespace/name, where it is not empty.
	Names []string `json:"names,omitempty"`
	// LeaveEnding does not count terminating pods, so that the step does not wait for their grace periods.
	LeaveEnding bool `json:"leaveEnding,omitempty"`
	// LeaveDaemons does not count pods of DaemonSets, which belong to their node and end with it.
	LeaveDaemons bool `json:"leaveDaemons,omitempty"`
}

// EveryNode in a PathSet stands for every node that has such a probe pod when the action runs. A plan for
// thousands of nodes would otherwise repeat all their names in the step of each.
const EveryNode = "*"

// PathSet says which probe networks exist on which nodes, so that an action can make the plan of paths.
type PathSet struct {
	Old []string `json:"old,omitempty"` // nodes with a probe pod on the old network, or EveryNode
	New []string `json:"new,omitempty"` // nodes with a probe pod on the new one, or EveryNode
	// WithoutNew names nodes that do not count as New, as their probe pod is about to go.
	WithoutNew []string `json:"withoutNew,omitempty"`
	// Leaving are nodes that are about to go: nothing is measured from or to them, nor by the old network's Service,
	// behind which their probe pods are.
	Leaving []string `json:"leaving,omitempty"`
}

// Resolve turns a set into node names, given the nodes on which probe pods of each network are Ready now.
func (p PathSet) Resolve(readyOld, readyNew []string) (oldNodes, newNodes []string) {
	leaving := func(name string) bool { return slices.Contains(p.Leaving, name) }
	without := func(name string) bool { return slices.Contains(p.WithoutNew, name) || leaving(name) }
	return slices.DeleteFunc(resolve(p.Old, readyOld), leaving), slices.DeleteFunc(resolve(p.New, readyNew), without)
}

func resolve(wanted, ready []string) []string {
	if len(wanted) == 1 && wanted[0] == EveryNode {
		return slices.Clone(ready)
	}
	return slices.Clone(wanted)
}

// Gate is a demand on the measured paths; it holds only on evidence gathered after it was asked.
type Gate struct {
	Title string `json:"title"`
	// MaxGap is the longest gap allowed on any path that is expected to answer.
	MaxGap Duration `json:"maxGap"`
	// MaxLost is how many probes may be lost over all paths since the gate before; 0 is none. An answer on a denied
	// path is never allowed.
	MaxLost int64 `json:"maxLost,omitempty"`
	// Bake is how long the paths are watched. At least two fresh reports per node are demanded in any case.
	Bake Duration `json:"bake"`
	// Baseline is true for the gate that only makes sure that measuring works before anything changes.
	Baseline bool `json:"baseline,omitempty"`
	// Args are for gates that measure something other than paths.
	Args json.RawMessage `json:"args,omitempty"`
	// Compare says that the nodes of this step and of those before it have the change by now. Then single losses do not
	// decide, but whether changed nodes lose more than the others (loss.Process); MaxGap holds for every path, and
	// MaxLost where it is not 0.
	Compare bool `json:"compare,omitempty"`
	// Changed are the names of these nodes, for the gate. Where Compare is set, a plan leaves them to the
	// engine, as it would grow with the square of the nodes; plans of older versions name them, without Compare.
	Changed []string `json:"changed,omitempty"`
	// Sessions is set where Calico's BGP carries routes, which must be whole too.
	Sessions *Sessions `json:"sessions,omitempty"`
	// Result makes the answer the result of the plan: the steps go on, whatever it is. Then every path must have been
	// measured without a break since the gate before.
	Result bool `json:"result,omitempty"`
	// Near says that fresh reports are demanded only of the nodes that the step concerns and of a sample of the others
	// (loss.Concerned); of the rest, the latest reports count, and none may be silent. A plan has such gates only in
	// steps that act on their own nodes alone (Local), and a gate that asks all nodes whenever the nodes that steps of
	// a kind have changed have doubled.
	Near bool `json:"near,omitempty"`
	// Step is the ID of the step that the gate is of, and About are the nodes of a step whose gate is Near. The engine
	// fills them in when it asks.
	Step  string   `json:"-"`
	About []string `json:"-"`
}

// Compares says whether changed nodes are compared with the others.
func (g *Gate) Compares() bool { return g.Compare || len(g.Changed) > 0 }

// Sessions demands of every measured node that its BGP daemon answers, has every session that the cluster's objects
// make, and one at least, and that the kernel has the routes that come by them.
type Sessions struct {
	// Unreached is how many ordered pairs of nodes lack a route by those objects when the plan is made, IPv4 and IPv6
	// together. More are a failure.
	Unreached int `json:"unreached"`
}

// Step is an ordered unit of a plan.
type Step struct {
	// ID is unique in its plan and reads like a path: "wave-1/a-node-1/switch".
	ID string `json:"id"`
	// Group is the run of steps that it is of, such as "prepare" or "wave-1": a chapter of the runbook, a row of the
	// timeline.
	Group string `json:"group,omitempty"`
	// Does says what kind of step it is: steps of a group and of a kind do the same on other nodes.
	Does  string `json:"does,omitempty"`
	Title string `json:"title"`
	// Why says in a sentence what the step is for.
	Why  string `json:"why,omitempty"`
	Wave string `json:"wave,omitempty"`
	// Part is the part of the wave, as in part-3, where the step changes some of its nodes side by side.
	Part string `json:"part,omitempty"`
	Node string `json:"node,omitempty"`
	// Before must hold, observed, or the step does not run.
	Before  []Condition `json:"before,omitempty"`
	Actions []Action    `json:"actions"`
	// After must hold when the actions are done.
	After []Condition `json:"after,omitempty"`
	// Gate is evaluated at the end of the step, when it is not nil.
	Gate *Gate `json:"gate,omitempty"`
	// Undo takes the step back, in the order given. Where it is empty, the inverses of the actions as
	// observed before each was done are walked backwards.
	Undo []Action `json:"undo,omitempty"`
	// Alone marks a step whose failure takes back nothing but the step itself, after the point of no return too; a
	// person is asked then.
	Alone bool `json:"alone,omitempty"`
	// NoReturn marks the first step after which there is no way back.
	NoReturn bool `json:"noReturn,omitempty"`
	// Stop makes the run pause before the step until a person, or the next window, continues it. The step only checks
	// that the cluster is as the run left it.
	Stop     bool     `json:"stop,omitempty"`
	Estimate Duration `json:"estimate,omitempty"`
}

// Awaits reports whether the step must not begin before the user says so.
func (s *Step) Awaits() bool {
	return slices.ContainsFunc(s.Actions, func(a Action) bool { return a.Op() == OpAwait })
}

// Identify gives a step without an ID the one that follows from what it is.
func (s *Step) Identify() {
	if s.ID == "" {
		s.ID = s.Group + "/" + s.Does
	}
}

// Number gives a step without an ID its own (Identify), and its actions and those of its undo IDs that count them.
func (s *Step) Number() {
	s.Identify()
	for i := range s.Actions {
		s.Actions[i].ID = s.ID + "/" + strconv.Itoa(i+1)
	}
	for i := range s.Undo {
		s.Undo[i].ID = s.ID + "/undo-" + strconv.Itoa(i+1)
	}
}

// Alike is the same for steps that do the same on other nodes, in this wave or another. A step of no wave is like no
// other.
func (s *Step) Alike() string {
	switch s.Wave {
	case "":
		return s.ID
	case s.Group:
		return s.Does
	}
	return s.Group + "/" + s.Does
}

// Nodes are those that a step is about in particular: its own, those whose pods it moves, or those on which a step of a
// wave acts.
func (s *Step) Nodes() []string {
	if s.Node != "" {
		return []string{s.Node}
	}
	var nodes []string
	for i := range s.Actions {
		if do, is := s.Actions[i].Do.(Evict); is && do.Pods.LeaveEnding && len(do.Pods.Names) == 0 {
			nodes = append(nodes, do.Pods.Node)
		}
	}
	if len(nodes) > 0 || s.Wave == "" || s.Group != s.Wave {
		return nodes
	}
	for i := range s.Actions {
		if node := s.Actions[i].Node(); node != "" && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Local reports whether everything that a step does is done to its own nodes, or to pods of theirs.
func (s *Step) Local() bool {
	nodes := map[string]bool{}
	for _, node := range s.Nodes() {
		nodes[node] = true
	}
	if len(nodes) == 0 || s.Wave == "" || s.Group != s.Wave || s.NoReturn || s.Stop {
		return false
	}
	for i := range s.Actions {
		if a := &s.Actions[i]; a.Op() != OpProbe && !nodes[a.on()] {
			return false
		}
	}
	return true
}

// on is the one node that an action is done to; empty if it is done to none in particular.
func (a *Action) on() string {
	switch do := a.Do.(type) {
	case Evict, Restart, Node, Taint, Untaint:
		return a.Node()
	case Patch:
		if do.Ref.Kind == "Node" {
			return do.Ref.Name
		}
	case Apply:
		if do.Object.GetKind() == "Pod" {
			node, _, _ := unstructured.NestedString(do.Object.Object, "spec", "nodeName")
			return node
		}
	case Wait:
		switch is := do.Condition.Is.(type) {
		case PodReady:
			return is.Node
		case NodeReady:
			return is.Node
		}
	}
	return ""
}

// Duration is a time.Duration that reads and writes as "1m30s".
type Duration time.Duration

// About is a duration as a person says it, no finer than an estimate is known: "9 h", "1 h 40 min", "25 min", "1 min 30
// s", "4 s".
func (d Duration) About() string {
	all := max(time.Duration(d), time.Second)
	finest := time.Second
	switch {
	case all >= 5*time.Hour:
		finest = time.Hour
	case all >= time.Hour:
		finest = 10 * time.Minute
	case all >= 10*time.Minute:
		finest = time.Minute
	case all >= time.Minute:
		finest = 10 * time.Second
	}
	all = all.Round(finest)
	var parts []string
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if n := all / unit.of; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, unit.name))
			all -= n * unit.of
		}
	}
	return strings.Join(parts, " ")
}

// MarshalJSON writes the text form.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads the text form.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}
