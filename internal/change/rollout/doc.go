// Package rollout is the strategy that changes one flag of a network's agent node by node. It sets the flag with the
// narrowest scope (Calico's FelixConfiguration node.NAME, a CiliumNodeConfig of one node), and proves it on that node.
// When all nodes have the value, it becomes the value of the cluster, which then restarts no agent.
//
// While an agent of Calico moves its rules from one data plane to the other, a guard denies what these rules deny. A
// node passes when the kernel has the wanted rules for every pod and no others, when these rules have passed and
// refused packets, and when the measured paths lost and leaked nothing.
//
// The package is pure: it turns observations and a requested change into steps.
package rollout

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
)

// Name is how users name the strategy.
const Name = "rollout"

// Flag is what is rolled out: a field of Calico's FelixConfiguration, or a key of cilium-config.
type Flag struct {
	// Field is its name; Value is that of the cluster's object at the end, nil when it stays as it is; Before is its
	// value so far, nil for none.
	Field  string
	Value  any
	Before any
	// Whole is the cluster's object with nothing in it but the value, Own that of a node; WholePath and OwnPath lead to
	// the value.
	Whole              func(value any) unstructured.Unstructured
	Own                func(node string, value any) unstructured.Unstructured
	WholePath, OwnPath []string
	// Parameter is what the agent says in the log of Container when it starts. It is empty where the flag is about
	// Calico's data plane: the kernel shows that.
	Parameter string
	Container string
	// Always is true if an agent reads the flag only when its pod is recreated.
	Always bool
	// Turns are what every node has before and after.
	Turns map[string]Turn
	// Scoped are the nodes that have an object of their own already, which is to stay.
	Scoped map[string]bool
	// Template is where the flag is written when that is the environment of the agents' DaemonSet; nil for
	// FelixConfigurations.
	Template *Template
}

// Template is how a flag gets into what an agent's pods are made from. That is one for all nodes: only who makes pods
// again, and when, is each node's own.
type Template struct {
	// New gives pods that are made from then on the value, Old the former one.
	New, Old step.Action
	// Hold lets the DaemonSet replace no pod by itself, Unhold takes that back.
	Hold, Unhold step.Action
}

// Turn is what one node has of a flag before and after.
type Turn = kind.Turn

// Same compares values as objects of networks hold them: texts, numbers and truth values, or nil for none.
func Same(a, b any) bool { return kind.Same(a, b) }

// after names what a node has when it has had its turn.
func (f *Flag) after(t Turn) string {
	if t.Moves() {
		return t.To
	}
	return f.Field + "=" + t.Value
}

// Input is everything that the steps follow from.
type Input struct {
	Network *cni.Installation
	Change  v1alpha1.ChangeSpec
	Flag    Flag
	// Waves are the nodes that change, and Others those that stay as they are.
	Waves  []joint.Wave
	Others []string
	// Within are the ranges whose routes BIRD carries, if it restarts with the agents; nodes retain these meanwhile.
	Within []string
	// Install puts Theseus' agent on every node.
	Install []step.Action
}

// Defaults of the gates.
const (
	DefaultMaxGap = 500 * time.Millisecond
	DefaultBake   = 10 * time.Second
)

// guardFor is how long a guard denies at most, and switchFor how long an agent may take to write its rules again.
const (
	guardFor  = 4 * time.Minute
	switchFor = 2 * time.Minute
	proofFor  = time.Minute
)

// Guard names what Calico denies by, in both data planes. Rules about interfaces that it does not know are left out: a
// pod that starts meanwhile is not in the copy.
func Guard() step.Guard {
	return step.Guard{Tables: tables(), Chains: chains(), Sets: sets(), Without: []string{"Unknown interface"},
		For: step.Duration(guardFor)}
}

// Dataplane names Calico's rules in both data planes; want may be empty.
func Dataplane(want string) step.Dataplane {
	return step.Dataplane{Want: want, Tables: tables(), Chains: chains(), Sets: sets(),
		Links: []string{"cali*"}, PerLink: []string{"cali-tw-", "cali-fw-"}}
}

func tables() []string { return []string{"ip calico", "ip6 calico"} }
func chains() []string { return []string{"cali-*"} }
func sets() []string   { return []string{"cali*"} }

// Steps makes the whole procedure.
func Steps(in Input) []step.Step {
	b := &builder{Input: in}
	for _, wave := range in.Waves {
		b.all = append(b.all, wave.Nodes...)
	}
	b.all = append(b.all, in.Others...)
	b.prepare()
	if in.Flag.Template != nil {
		b.hold()
	}
	if len(in.Within) > 0 {
		retain := joint.Retain(b.all, in.Within, joint.BIRDRestarts)
		retain.Gate = b.gate("traffic is unaffected by the retained routes", false)
		b.add(retain)
	}
	canary := true
	for _, wave := range in.Waves {
		for i, node := range wave.Nodes {
			b.switchNode(wave, node, i, canary)
			canary = false
		}
	}
	if in.Flag.Value != nil {
		b.fold()
	}
	if len(in.Within) > 0 {
		letGo := joint.LetGo(b.all, in.Within)
		letGo.Gate = b.gate("BIRD alone provides all routes", true)
		b.add(letGo)
	}
	if in.Flag.Template != nil {
		b.unhold()
	}
	b.finish()
	return b.steps
}

// builder collects the steps in order.
type builder struct {
	Input
	all   []string // nodes in the order of the waves, and the others after them
	steps []step.Step
}

func (b *builder) add(s step.Step) {
	s.Number()
	b.steps = append(b.steps, s)
}

// gate compares, once a node is changed, the changed nodes with those that are not changed yet.
func (b *builder) gate(title string, compare bool) *step.Gate {
	gate := &step.Gate{Title: title, MaxGap: step.Duration(DefaultMaxGap), MaxLost: b.Change.MaxLost, Compare: compare,
		Bake: step.Duration(b.bake())}
	if b.Change.MaxGapMillis > 0 {
		gate.MaxGap = step.Duration(time.Duration(b.Change.MaxGapMillis) * time.Millisecond)
	}
	return gate
}

func (b *builder) bake() time.Duration {
	if b.Change.BakeSeconds > 0 {
		return time.Duration(b.Change.BakeSeconds) * time.Second
	}
	return DefaultBake
}

// refuses says whether the network enforces policy, so that refused packets can be demanded.
func (b *builder) refuses() bool {
	return b.Network.Capabilities.Policy != cni.PolicyNone && b.Network.Capabilities.Policy != ""
}

// prove demands that traffic crosses the rules of a data plane on a node, or, where nothing is known of these, that its
// agent says what it runs with.
func (b *builder) prove(node, plane, says string) step.Action {
	if plane == "" {
		return b.heard(node, says, proofFor)
	}
	args := Dataplane(plane)
	args.Passed, args.Refused, args.For = true, b.refuses(), step.Duration(proofFor)
	return joint.OnNode(node, step.VerbDataplane, "check that traffic passes the rules in "+plane+" on "+node, args)
}

// written waits until the rules of a node are in one data plane alone.
func written(node, plane string) step.Action {
	args := Dataplane(plane)
	args.For = step.Duration(switchFor)
	return joint.OnNode(node, step.VerbDataplane, "wait until the rules of "+node+" are only in "+plane, args)
}

func guard(node, verb, title string) step.Action {
	return joint.OnNode(node, verb, title+node, Guard())
}

// running is the agent of a node being ready.
func (b *builder) running(node string) step.Condition {
	return step.Condition{Is: step.PodReady{Node: node, Namespace: b.Network.Agent.Namespace,
		Selector: b.Network.Selector}}
}

// heard waits until the agent of a node has said what it runs with.
func (b *builder) heard(node, says string, limit time.Duration) step.Action {
	said := step.Condition{Is: step.AgentSays{Node: node, Namespace: b.Network.Agent.Namespace,
		Selector: b.Network.Selector,
		Says:     step.Saying{Container: b.Flag.Container, Parameter: b.Flag.Parameter, Value: says}}}
	return joint.Wait("wait until the agent of "+node+" reports "+b.Flag.Parameter+"="+says, said, limit)
}

// patch sets one field of an object; nil takes it away.
func patch(ref step.Ref, path []string, value any, title string) step.Action {
	for _, name := range slices.Backward(path) {
		value = map[string]any{name: value}
	}
	return step.Action{Do: step.Patch{Ref: ref, Merge: joint.Canonical(value)}, Title: title}
}

// own gives a node a value of its own, or with nil takes it away: with the object, unless that is to stay.
func (b *builder) own(node string, value any, title string) step.Action {
	object := b.Flag.Own(node, value)
	ref := step.RefOf(&object)
	switch {
	case value != nil:
		return step.Action{Do: step.Apply{Object: &object}, Title: title}
	case b.Flag.Scoped[node]:
		return patch(ref, b.Flag.OwnPath, nil, title)
	}
	return step.Action{Do: step.Delete{Ref: ref}, Title: title}
}
