package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// maxPodEvents is how many pods get an event by one process of a run, for each reason. A change of 5,000 nodes moves
// 100,000 pods or more, and the API server keeps its events for an hour in the same etcd as everything else. So a pod
// that was moved while it ran gets none: nothing has happened to it that its owner would notice. The event of its node
// counts it. Only pods that were evicted, or that could not be moved, get events of their own, as far as this number
// goes.
const maxPodEvents = 500

// The reasons of events of nodes and pods.
const (
	reasonChangeBegan  = "ChangeBegan"
	reasonChangeDone   = "ChangeDone"
	reasonChangeFailed = "ChangeFailed"
	reasonChangeUndone = "ChangeUndone"
	reasonEvicted      = "EvictedByChange"
	reasonNotMoved     = "NotMoved"
)

// herald tells the nodes and pods that a run is about what it does to them, as events. Each node gets one when its
// change begins and one when it has ended. A process that takes a run over does not tell again what another one has
// told; an event that the other one has not sent is lost, as is usual for events.
type herald struct {
	script *run.Script
	// tell records an event; it does not wait.
	tell  func(about corev1.ObjectReference, kind, reason, message string)
	nodes map[string]*passage // by name
	// first and last are the nodes whose change begins and ends with a step, by its ID; within are all that it changes.
	first, last, within map[string][]string
	said                map[string]int // how many pods got an event, by its reason
	evictions           run.Evictions
	cause               string // of the rollback
}

// passage is how far a node is.
type passage struct {
	begun, done                        bool
	moved, movedBack, evicted, renewed int
}

func newHerald(p *plan.Plan, script *run.Script,
	tell func(about corev1.ObjectReference, kind, reason, message string)) *herald {
	h := &herald{script: script, tell: tell, nodes: map[string]*passage{}, first: map[string][]string{},
		last: map[string][]string{}, within: map[string][]string{}, said: map[string]int{}}
	// Most changes have steps that prepare a wave's nodes, and steps that change them. Only the latter have the name
	// of the wave as their group; changes whose steps have other groups have no others.
	named := slices.ContainsFunc(p.Steps, func(s step.Step) bool { return s.Wave != "" && s.Group == s.Wave })
	ends := map[string]string{}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Wave == "" || named && s.Group != s.Wave {
			continue
		}
		for _, node := range nodesOf(s) {
			if h.nodes[node] == nil {
				h.nodes[node] = &passage{}
				h.first[s.ID] = append(h.first[s.ID], node)
			}
			h.within[s.ID] = append(h.within[s.ID], node)
			ends[node] = s.ID
		}
	}
	for i := range p.Steps {
		for _, node := range h.within[p.Steps[i].ID] {
			if ends[node] == p.Steps[i].ID {
				h.last[p.Steps[i].ID] = append(h.last[p.Steps[i].ID], node)
			}
		}
	}
	return h
}

// nodesOf are the nodes on which a step acts.
func nodesOf(s *step.Step) []string {
	if s.Node != "" {
		return []string{s.Node}
	}
	seen := map[string]bool{}
	var nodes []string
	for i := range s.Actions {
		if node := s.Actions[i].Node(); node != "" && !seen[node] {
			seen[node] = true
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// hear follows a record. Those of the past are not told.
func (h *herald) hear(r engine.Record, past bool) {
	tell := h.tell
	if past {
		h.tell = func(corev1.ObjectReference, string, string, string) {}
		defer func() { h.tell = tell }()
	}
	switch r.Event {
	case engine.StepBegan:
		for _, node := range h.first[r.Step] {
			if one := h.nodes[node]; !one.begun {
				one.begun = true
				h.node(node, corev1.EventTypeNormal, reasonChangeBegan, "begins to change this node: "+
					h.script.Place(r.Step))
			}
		}
	case engine.Acted:
		h.acted(r, past)
	case engine.StepDone:
		for _, node := range h.last[r.Step] {
			h.nodes[node].done = true
			h.node(node, corev1.EventTypeNormal, reasonChangeDone, "has changed this node"+h.nodes[node].counts())
		}
	case engine.RollingBack:
		h.cause = r.Error
		if r.Result != engine.ResultAsked {
			h.failed(r.Step, r.Error)
		}
	case engine.TakingBack:
		h.cause = r.Error
		h.failed(r.Step, r.Error)
	case engine.StepUndone:
		for _, node := range h.first[r.Step] {
			if one := h.nodes[node]; one.begun {
				h.node(node, corev1.EventTypeWarning, reasonChangeUndone,
					"has undone the change of this node"+one.counts()+": "+h.cause)
				*one = passage{}
			}
		}
	case engine.Finished:
		if r.Result == engine.ResultNeedsPerson {
			h.failed(r.Step, r.Error)
		}
	}
}

// failed tells the nodes of a step, whose change had begun, that it failed.
func (h *herald) failed(id, cause string) {
	for _, node := range h.within[id] {
		if h.nodes[node].begun {
			h.node(node, corev1.EventTypeWarning, reasonChangeFailed, h.script.Place(id)+" failed: "+cause)
		}
	}
}

// acted counts the pods of an action's answer, and tells those that were evicted or not moved.
func (h *herald) acted(r engine.Record, past bool) {
	action := h.script.Find(r.Action)
	if action == nil {
		return
	}
	node := h.nodes[action.Node()]
	if node == nil {
		node = &passage{}
	}
	switch {
	case action.Op() == step.OpEvict:
		for _, pod := range h.evictions.Of(r) {
			if pod.Again {
				continue
			}
			node.evicted++
			h.pod(pod.Namespace, pod.Name, "", corev1.EventTypeNormal, reasonEvicted,
				"evicted this pod of "+pod.Workload+" from "+action.Node(), past)
		}
	case action.Op() == step.OpRestart && r.Result == engine.ResultDone:
		node.renewed++
	case action.Verb() == step.VerbAdopt || action.Verb() == step.VerbAdoptable:
		var answer step.AdoptResult
		if json.Unmarshal(r.Data, &answer) != nil {
			return
		}
		for _, pod := range answer.Pods {
			switch {
			case pod.Namespace == v1alpha1.Namespace: // the probe pods
			case pod.State == step.AdoptMoved && r.Undo:
				node.movedBack++
			case pod.State == step.AdoptMoved:
				node.moved++
			case slices.Contains([]step.AdoptState{step.AdoptRefused, step.AdoptUndone, step.AdoptStuck}, pod.State):
				h.pod(pod.Namespace, pod.Name, pod.UID, corev1.EventTypeWarning, reasonNotMoved,
					"cannot move this pod, which is on the network "+pod.Network+": "+pod.Reason, past)
			}
		}
	}
}

// counts are what happened to the pods of a node, in words.
func (p *passage) counts() string {
	var parts []string
	for _, one := range []struct {
		n    int
		what string
	}{{p.moved, "moved while they ran"}, {p.movedBack, "moved back while they ran"}, {p.evicted, "evicted"},
		{p.renewed, "of the network restarted"}} {
		if one.n > 0 {
			parts = append(parts, cluster.Count(one.n, "pod")+" "+one.what)
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// node tells a node. Its UID is its name, as in the events of kubelets: `kubectl describe node` shows them.
func (h *herald) node(name, kind, reason, message string) {
	h.tell(corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}, kind, reason,
		message)
}

// pod tells a pod, if not too many were told so. One of the past counts.
func (h *herald) pod(namespace, name, uid, kind, reason, message string, past bool) {
	if !past {
		h.said[reason]++
	}
	switch n := h.said[reason]; {
	case n > maxPodEvents:
		return
	case n == maxPodEvents:
		message += fmt.Sprintf("; more than %d pods: the others get no event, see `theseus report`", maxPodEvents)
	}
	h.tell(corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name,
		UID: types.UID(uid)}, kind, reason, message)
}

// eventAbout records an event of a node or a pod, which names a Migration.
func (c *Controller) eventAbout(m *v1alpha1.Migration, about corev1.ObjectReference, kind, reason, message string) {
	if c.Events == nil {
		return
	}
	c.Events.AnnotatedEventf(&about, map[string]string{manifest.LabelMigration: m.Name}, kind, reason, "%s",
		fits("migration "+m.Name+" "+message))
}

// Sink writes events. An event whose annotation names a Migration gets it as its related object, which a recorder
// cannot set.
func Sink(client corev1client.EventsGetter) record.EventSink {
	return sink{&corev1client.EventSinkImpl{Interface: client.Events("")}}
}

type sink struct{ record.EventSink }

func (s sink) Create(event *corev1.Event) (*corev1.Event, error) {
	return s.EventSink.Create(related(event))
}
func (s sink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.EventSink.Update(related(event))
}

func related(event *corev1.Event) *corev1.Event {
	if name := event.Annotations[manifest.LabelMigration]; name != "" {
		event = event.DeepCopy()
		event.Related = &corev1.ObjectReference{APIVersion: v1alpha1.APIVersion, Kind: "Migration",
			Namespace: v1alpha1.Namespace, Name: name}
	}
	return event
}
