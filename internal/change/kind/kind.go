package kind

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// Kind is one kind of change. Make, Of, Rules and Words.Summary must be set; other functions that are nil are not
// called.
type Kind struct {
	// Name is how plans name it.
	Name string
	// Asked says whether a change is of this kind; the first kind of the list that says so makes the plan. Where it is
	// nil, no change asks for it: the plan is made by a command of its own.
	Asked func(*Request) bool
	// Make plans the change, or returns a *Refusal.
	Make func(*Request) (*Draft, error)
	// Chosen is the change with its strategy, where that follows from the cluster; the error says why nothing follows.
	Chosen func(*Request) (v1alpha1.ChangeSpec, error)
	// Possible refuses what cannot be made on a cluster on this network at all, whatever its owner mends or accepts.
	// Untried kinds are asked of networks that Theseus was never run on; others are refused there.
	Possible func(*Request, *cni.Installation) error
	Untried  bool
	// Named refuses a change that does not name all that its plan needs, such as a manifest. Checks do without it.
	Named func(*Request) error
	// ByName is set where nothing can be said of a change that does not name the network to come.
	ByName bool
	// Comes is the network that is there when the change is done, as far as it can be told, for checks; nil where it
	// cannot.
	Comes func(*Request, *cni.Installation) (*cni.Installation, error)
	// Rules are what it demands of every prefix of a plan; none of a plan that they do not concern. An error says that
	// the plan cannot be followed at all.
	Rules func(*Plan) ([]Rule, error)
	// Retains is set where these rules say themselves which routes nodes retain, and when.
	Retains bool
	// Stops are the stopping places of a plan, in its order: where a run may be left for hours, until the next window.
	// nil if plans of this kind have none.
	Stops func(*Plan) []Stop
	// Within is the plan of another kind that a plan of this one carries out; nil for none.
	Within func(*Plan) *Plan
	// Of says whether a plan is of this kind.
	Of func(*Plan) bool
	// Complete is set where steps come with their estimates, and with all that their gates hold.
	Complete bool
	// Words are what runbooks say of its plans.
	Words Words
	// TakesBack says whether an inverse that a journal holds takes an action back, of operations that its plans alone
	// have.
	TakesBack func(a, inverse step.Action) bool
	// Reach adds what its plans do beyond objects that are applied.
	Reach func(*Plan, *Reach)
	// Uses are what the actions of its own operations do through the API of the cluster.
	Uses func(*Plan) []step.Use
	// Signals says how the gate of a step takes the user's own signals; nil where every gate asks them.
	Signals func(*step.Step) Signals
}

// Signals is how a gate takes the user's own signals.
type Signals int

// How gates take them.
const (
	// SignalsHold asks them; all must hold.
	SignalsHold Signals = iota
	// SignalsWait asks them, and silence breaks nothing until the gate ends: what they measure may be away while it
	// waits.
	SignalsWait
	// SignalsLeft does not ask them.
	SignalsLeft
)

// Words are the part of a runbook that is a kind's own. Texts are whole lines.
type Words struct {
	// Summary says what changes, and how.
	Summary func(*Plan) string
	// Pods says what becomes of pods, where that needs a sentence.
	Pods func(*Plan) string
	// Nodes says how nodes come and go, where they do.
	Nodes func(*Plan) string
	// Notes follow what every summary says, and Scope comes before the nodes.
	Notes func(*Plan) string
	Scope func(*Plan) string
	// Chapters are the titles of runs of steps, by their groups.
	Chapters map[string]string
	// Chapter names that of any other step; empty where it is not its own.
	Chapter func(*step.Step) string
	// Undo says how the engine takes a step back that has no undo of its own; empty where that is as for any other.
	Undo func(*step.Step) string
}

// Request is what a plan depends on.
type Request struct {
	Snapshot *cluster.Snapshot
	Change   v1alpha1.ChangeSpec
	Drivers  cni.Registry
	// Findings are kept in the plan for the reader.
	Findings []finding.Finding
	Options
}

// Options are what a plan depends on in addition to the snapshot and the change.
type Options struct {
	// Manifest is the target's manifests as the user gave them, decoded.
	Manifest []unstructured.Unstructured
	// Version is the version of this tool.
	Version string
	Now     time.Time
	// Name of the migration; empty makes one of the networks' names and the plan's hash.
	Name string
	// Flags are the values of flags on nodes, as resolved for this plan; the algorithm is filled in where it is not
	// said.
	Flags Flags
	// Window is how long each window of the change is; 0 plans it in one go.
	Window step.Duration
	// Learnt is what earlier runs of the cluster took; nil estimates by the lab's table alone.
	Learnt *estimate.Learnt
	// Decided is where a flag set says what every node gets of the flag that is rolled out; nil where the change does.
	Decided *Decided
}

// Decided is a flag as it was evaluated for every node.
type Decided struct {
	Origin
	// Knob is the setting that it means, and Values what it says of it, by node; a node of which it says nothing has
	// the cluster's value.
	Knob   string
	Values map[string]string
}

// Draft is a plan with its steps, to be completed and verified by the planner.
type Draft struct {
	Plan *Plan
	// Stem begins the plan's name where the user gave none.
	Stem string
	// Pods are those of each node that move, for the estimate, and Learnt is that of the options.
	Pods   map[string][]estimate.Pod
	Learnt *estimate.Learnt
}

// Rule is one demand on a plan, as a value: the verifier takes it over every prefix of the plan, and over the undo of
// each step. It keeps its own model of the cluster. Functions that are nil demand nothing.
type Rule struct {
	// Before is asked when a step is reached, Act of each of its actions, Each after every one of them, and After when
	// the step is done.
	Before func(*step.Step) error
	Act    func(*step.Step, *step.Action) error
	Each   func() error
	After  func(*step.Step) error
	// Undo takes the step back, from after it, and must find what was before it; it leaves the rule as it was after the
	// step.
	Undo func(*step.Step) error
	// End is asked after the last step.
	End func() error
}
