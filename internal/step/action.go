package step

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	faster "github.com/go-json-experiment/json"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Action is one idempotent act as data.
type Action struct {
	// ID is unique in its plan.
	ID string
	// Title is one line for people, in the imperative: "create DaemonSet kube-system/calico-node".
	Title string
	// Do is what is done. Its value is never changed, as copies of an action share it: see Edit.
	Do Operation
	// Together lets it be done together with the action before it: neither needs the other. Both are of one
	// operation and verb, on different objects or nodes.
	Together bool
	// Timeout bounds the action; past it the action has failed. 0 means the engine's default.
	Timeout Duration
}

// Operation is what an action does: one of the types below. Each is idempotent, and each can be observed before it is
// done.
type Operation interface {
	op() Op
	// write puts the fields of the operation into the document of its action.
	write(into *document)
}

// Op names an operation.
type Op string

// The operations.
const (
	OpApply   Op = "apply"
	OpDelete  Op = "delete"
	OpPatch   Op = "patch"
	OpEvict   Op = "evict"
	OpRestart Op = "restart"
	OpNode    Op = "node"
	OpWait    Op = "wait"
	OpTaint   Op = "taint"
	OpUntaint Op = "untaint"
	OpProbe   Op = "probe"
	OpHook    Op = "hook"
	OpCommand Op = "command"
	OpAwait   Op = "await"
	OpNewPods Op = "new-pods"
	OpSample  Op = "sample"
	OpWatch   Op = "watch"
	OpDNS     Op = "dns"
	OpMirror  Op = "mirror"
)

type (
	// Apply makes Object so, by server-side apply with the field manager "theseus".
	Apply struct{ Object *unstructured.Unstructured }
	// Delete removes Ref and waits until it is gone, or with LeaveEnding only until it is ending: a later condition
	// waits until it is gone.
	Delete struct {
		Ref         Ref
		LeaveEnding bool
	}
	// Patch merges Merge (RFC 7386) into Ref; keys with a null value are removed.
	Patch struct {
		Ref   Ref
		Merge json.RawMessage
	}
	// Evict moves the pods that Pods selects through the eviction API, within their budgets, and waits
	// until their workloads are whole again: one of a workload at a time, and in all as many as there are nodes, or
	// SideBySide of few nodes.
	Evict struct{ Pods PodSet }
	// Restart replaces the pod of the DaemonSet Ref on NodeName by one of its current template, and waits
	// until that is Ready.
	Restart struct {
		Ref      Ref
		NodeName string
		// Always replaces a pod of the current template too, because its configuration has changed.
		Always bool
		// Mark is an annotation that the pod gets before it is deleted, where a hold denies the deletion of pods
		// without it.
		Mark string
	}
	// Node runs Verb with Args on NodeName by its agent.
	Node struct {
		NodeName, Verb string
		Args           json.RawMessage
	}
	// Wait waits until Condition holds.
	Wait struct{ Condition Condition }
	// Taint makes the taint Taint so on NodeName, and Untaint removes the taint of its key and effect. They
	// are operations of their own because a patch would have to carry the whole list, and so undo what
	// others did to it meanwhile.
	Taint struct {
		NodeName string
		Taint    corev1.Taint
	}
	// Untaint is described at Taint.
	Untaint Taint
	// Probe makes the set of measured paths match the probe pods that exist, and waits until every path
	// has fresh results.
	Probe struct{ Paths PathSet }
	// Hook runs the user's command of Args (HookArgs) that adds or removes (Verb) the node NodeName, and waits until
	// that is in the cluster, or is not any more.
	Hook struct {
		NodeName, Verb string
		Args           json.RawMessage
	}
	// Command runs the user's command that a plan guards, once, on the machine that runs the plan. How the command ends
	// is its answer, and never its failure.
	Command struct{}
	// Await stands for changes that others make while paths are measured: its step begins when the user says that they
	// have ended.
	Await struct{}
	// NewPods makes a new pod on each node, which tries the measured paths of its node, and removes them. What became
	// of them is its answer, and never its failure.
	NewPods struct{}
	// Sample opens a connection of each pair of pods that the plan has (VerbConnect). What became of them is its
	// answer, and never its failure.
	Sample struct{}
	// Watch waits until no measured path has lost a probe for a while, and for a bounded time at most.
	Watch struct{}
	// DNS runs Verb with Args on the names of a zone.
	DNS struct {
		Verb string
		Args json.RawMessage
	}
	// Mirror runs Verb with Args on a cluster and its mirror.
	Mirror struct {
		Verb string
		Args json.RawMessage
	}
)

func (Apply) op() Op   { return OpApply }
func (Delete) op() Op  { return OpDelete }
func (Patch) op() Op   { return OpPatch }
func (Evict) op() Op   { return OpEvict }
func (Restart) op() Op { return OpRestart }
func (Node) op() Op    { return OpNode }
func (Wait) op() Op    { return OpWait }
func (Taint) op() Op   { return OpTaint }
func (Untaint) op() Op { return OpUntaint }
func (Probe) op() Op   { return OpProbe }
func (Hook) op() Op    { return OpHook }
func (Command) op() Op { return OpCommand }
func (Await) op() Op   { return OpAwait }
func (NewPods) op() Op { return OpNewPods }
func (Sample) op() Op  { return OpSample }
func (Watch) op() Op   { return OpWatch }
func (DNS) op() Op     { return OpDNS }
func (Mirror) op() Op  { return OpMirror }

// Op is the name of the operation; empty for an action that does nothing.
func (a Action) Op() Op {
	if a.Do == nil {
		return ""
	}
	return a.Do.op()
}

// Verb is that of an operation that has verbs, and Args are what the verb takes.
func (a Action) Verb() string { verb, _ := a.task(); return verb }

// Args are what the verb takes.
func (a Action) Args() json.RawMessage { _, args := a.task(); return args }

func (a Action) task() (verb string, args json.RawMessage) {
	switch do := a.Do.(type) {
	case Node:
		return do.Verb, do.Args
	case Hook:
		return do.Verb, do.Args
	case DNS:
		return do.Verb, do.Args
	case Mirror:
		return do.Verb, do.Args
	}
	return "", nil
}

// Object is the object that an Apply makes; nil for another operation.
func (a Action) Object() *unstructured.Unstructured {
	do, _ := a.Do.(Apply)
	return do.Object
}

// Ref names the one object that the action writes, deletes, or restarts a pod of; empty if there is none.
func (a Action) Ref() Ref {
	switch do := a.Do.(type) {
	case Apply:
		if do.Object != nil {
			return RefOf(do.Object)
		}
	case Delete:
		return do.Ref
	case Patch:
		return do.Ref
	case Restart:
		return do.Ref
	}
	return Ref{}
}

// Node is the node that the action changes, or whose pods it moves, as its operation names it; empty if there is none.
// The node of an object, as of a pod that is made for one node, is not among them.
func (a Action) Node() string {
	switch do := a.Do.(type) {
	case Evict:
		return do.Pods.Node
	case Restart:
		return do.NodeName
	case Node:
		return do.NodeName
	case Taint:
		return do.NodeName
	case Untaint:
		return do.NodeName
	case Hook:
		return do.NodeName
	}
	return ""
}

// Taint is what a Taint puts on its node, or an Untaint removes.
func (a Action) Taint() corev1.Taint {
	switch do := a.Do.(type) {
	case Taint:
		return do.Taint
	case Untaint:
		return do.Taint
	}
	return corev1.Taint{}
}

// Edit gives an action an operation that differs from its own, which must be a T.
func Edit[T Operation](a *Action, change func(do *T)) {
	do := a.Do.(T)
	change(&do)
	a.Do = do
}

// document is an action as plans and journals have it: the fields of all operations side by side, in the order in
// which they are written.
type document struct {
	ID          string             `json:"id"`
	Op          Op                 `json:"op"`
	Title       string             `json:"title"`
	Object      *object            `json:"object,omitempty"`
	Ref         Ref                `json:"ref,omitzero"`
	Patch       json.RawMessage    `json:"patch,omitempty"`
	Pods        *PodSet            `json:"pods,omitempty"`
	NodeName    string             `json:"nodeName,omitempty"`
	Verb        string             `json:"verb,omitempty"`
	Args        json.RawMessage    `json:"args,omitempty"`
	Condition   *conditionDocument `json:"condition,omitempty"`
	Paths       *PathSet           `json:"paths,omitempty"`
	Taint       *corev1.Taint      `json:"taint,omitempty"`
	Together    bool               `json:"beside,omitempty"`
	LeaveEnding bool               `json:"leaveEnding,omitempty"`
	Always      bool               `json:"anew,omitempty"`
	Mark        string             `json:"mark,omitempty"`
	Timeout     Duration           `json:"timeout,omitempty"`
}

// object is an object of the API that is written as the map that it is: a Marshaler's text is read once more.
type object map[string]any

func (o *object) UnmarshalJSON(data []byte) error {
	var read unstructured.Unstructured
	err := read.UnmarshalJSON(data)
	*o = read.Object
	return err
}

func (do Apply) write(d *document) {
	if do.Object != nil {
		d.Object = (*object)(&do.Object.Object)
	}
}

func (do Delete) write(d *document)  { d.Ref, d.LeaveEnding = do.Ref, do.LeaveEnding }
func (do Patch) write(d *document)   { d.Ref, d.Patch = do.Ref, do.Merge }
func (do Evict) write(d *document)   { d.Pods = &do.Pods }
func (do Node) write(d *document)    { d.NodeName, d.Verb, d.Args = do.NodeName, do.Verb, do.Args }
func (do Wait) write(d *document)    { d.Condition = do.Condition.document() }
func (do Taint) write(d *document)   { d.NodeName, d.Taint = do.NodeName, &do.Taint }
func (do Untaint) write(d *document) { Taint(do).write(d) }
func (do Probe) write(d *document)   { d.Paths = &do.Paths }
func (do Hook) write(d *document)    { d.NodeName, d.Verb, d.Args = do.NodeName, do.Verb, do.Args }
func (do DNS) write(d *document)     { d.Verb, d.Args = do.Verb, do.Args }
func (do Mirror) write(d *document)  { d.Verb, d.Args = do.Verb, do.Args }
func (Command) write(*document)      {}
func (Await) write(*document)        {}
func (NewPods) write(*document)      {}
func (Sample) write(*document)       {}
func (Watch) write(*document)        {}
func (do Restart) write(d *document) {
	d.Ref, d.NodeName, d.Always, d.Mark = do.Ref, do.NodeName, do.Always, do.Mark
}

// operation takes the operation out of the document. What it leaves in it does not belong to the operation.
func (d *document) operation() (Operation, error) {
	switch d.Op {
	case OpApply:
		if d.Object == nil {
			return Apply{}, nil
		}
		return Apply{&unstructured.Unstructured{Object: *take(&d.Object)}}, nil
	case OpDelete:
		return Delete{take(&d.Ref), take(&d.LeaveEnding)}, nil
	case OpPatch:
		return Patch{take(&d.Ref), take(&d.Patch)}, nil
	case OpEvict:
		return Evict{taken(&d.Pods)}, nil
	case OpRestart:
		return Restart{take(&d.Ref), take(&d.NodeName), take(&d.Always), take(&d.Mark)}, nil
	case OpNode:
		return Node{take(&d.NodeName), take(&d.Verb), take(&d.Args)}, nil
	case OpWait:
		var do Wait
		if d.Condition != nil {
			if err := do.Condition.take(take(&d.Condition)); err != nil {
				return nil, err
			}
		}
		return do, nil
	case OpTaint:
		return Taint{take(&d.NodeName), taken(&d.Taint)}, nil
	case OpUntaint:
		return Untaint{take(&d.NodeName), taken(&d.Taint)}, nil
	case OpProbe:
		return Probe{taken(&d.Paths)}, nil
	case OpHook:
		return Hook{take(&d.NodeName), take(&d.Verb), take(&d.Args)}, nil
	case OpCommand:
		return Command{}, nil
	case OpAwait:
		return Await{}, nil
	case OpNewPods:
		return NewPods{}, nil
	case OpSample:
		return Sample{}, nil
	case OpWatch:
		return Watch{}, nil
	case OpDNS:
		return DNS{take(&d.Verb), take(&d.Args)}, nil
	case OpMirror:
		return Mirror{take(&d.Verb), take(&d.Args)}, nil
	case "":
		return nil, nil
	}
	return nil, fmt.Errorf("the operation %q is not known", d.Op)
}

// take empties a field and returns what was in it.
func take[T any](field *T) T {
	var none T
	value := *field
	*field = none
	return value
}

// taken is take for a field that is there or not.
func taken[T any](field **T) (value T) {
	if *field != nil {
		value, *field = **field, nil
	}
	return value
}

// left is the name of a field that is not empty; "" if there is none.
func left(document any) string {
	v := reflect.ValueOf(document).Elem()
	for i := range v.NumField() {
		if !v.Field(i).IsZero() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}

// MarshalJSON writes the fields of the operation next to those of the action.
func (a Action) MarshalJSON() ([]byte, error) { return json.Marshal(a.document()) }

// Document is what an encoder writes of an action. An encoder that gets it does not look at the text of the action once
// more, as encoding/json does at that of every Marshaler.
func (a *Action) Document() any { return a.document() }

// Document is that of a step whose actions and conditions are documents, too. Their members come last.
func (s *Step) Document() any {
	return &struct {
		flat
		Before  []conditionDocument `json:"before,omitempty"`
		Actions []document          `json:"actions"`
		After   []conditionDocument `json:"after,omitempty"`
		Undo    []document          `json:"undo,omitempty"`
	}{flat(*s), conditionDocuments(s.Before), documents(s.Actions), conditionDocuments(s.After), documents(s.Undo)}
}

// flat has the fields of a step, of which the actions and conditions are hidden.
type flat Step

func documents(actions []Action) []document {
	if actions == nil {
		return nil
	}
	all := make([]document, len(actions))
	for i := range actions {
		actions[i].fill(&all[i])
	}
	return all
}

func (a *Action) document() *document {
	d := &document{}
	a.fill(d)
	return d
}

func (a *Action) fill(d *document) {
	d.ID, d.Op, d.Title, d.Together, d.Timeout = a.ID, a.Op(), a.Title, a.Together, a.Timeout
	if a.Do != nil {
		a.Do.write(d)
	}
}

// UnmarshalJSON reads an action. A field that its operation does not have is an error.
func (a *Action) UnmarshalJSON(data []byte) error {
	d := emptied.Get().(*document)
	if err := strict(data, d); err != nil {
		return err
	}
	read := Action{ID: take(&d.ID), Title: take(&d.Title), Together: take(&d.Together), Timeout: take(&d.Timeout)}
	do, err := d.operation()
	if err != nil {
		return fmt.Errorf("action %s (%s): %w", read.ID, read.Title, err)
	}
	op := take(&d.Op)
	if name := left(d); name != "" {
		return fmt.Errorf("action %s (%s): the operation %q has no field %q", read.ID, read.Title, op, name)
	}
	emptied.Put(d)
	read.Do = do
	*a = read
	return nil
}

// emptied has documents out of which everything was taken.
var emptied = sync.Pool{New: func() any { return &document{} }}

// strict reads JSON in which every field must be known. The first decoder takes a third of the time; what it refuses,
// the second one reads or refuses.
func strict[T any](data []byte, into *T) error {
	if faster.Unmarshal(data, into, faster.RejectUnknownMembers(true)) == nil {
		return nil
	}
	*into = *new(T)
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}
