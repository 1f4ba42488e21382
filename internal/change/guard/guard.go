package guard

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

const (
	// DefaultBaseline is how long the network is measured before the command.
	DefaultBaseline = 10 * time.Second
	// DefaultQuiet and DefaultAtMost are how long no probe may be lost before the watching ends, and the bound of the
	// watching.
	DefaultQuiet  = 30 * time.Second
	DefaultAtMost = 10 * time.Minute
	// longest bounds the command and the watching, which may run the command of --on-loss: a hung one is ended by its
	// user.
	longest = 30 * 24 * time.Hour
	// anyLoss is more probes than a baseline can lose.
	anyLoss = 1 << 40
)

// The steps that a result is read from.
const (
	StepProbes  = "prepare/probes"
	StepCommand = Name + "/command"
	StepChange  = Name + "/change"
	StepWatch   = Name + "/watch"
)

// Propose plans to guard a command or changes of others, or returns a *kind.Refusal. The network may be one that no
// driver knows.
func Propose(r *kind.Request, guarded kind.Guard) (*kind.Draft, error) {
	if err := kind.UnderWay(r.Snapshot); err != nil {
		return nil, err
	}
	if err := kind.AgentGiven(r.Change); err != nil {
		return nil, err
	}
	if err := kind.EveryNodeReady(r.Snapshot); err != nil {
		return nil, err
	}
	reason := "a command of the user changes the cluster, and its cost is measured"
	if guarded.Others {
		reason = "others change the cluster, and the cost is measured"
	}
	p := kind.Begin(r.Snapshot, r.Change, r.Options, Name, reason)
	if found := r.Drivers.Detect(r.Snapshot); len(found) == 1 {
		p.Source = *found[0]
	}
	guarded.NewPods = step.Duration(NewPodsEvery(p.Change.ProbeIntervalMillis))
	if guarded.SamplePolicies > 0 {
		var err error
		if guarded.Pairs, guarded.Unevaluated, err = pairs(r, p, guarded.SamplePolicies); err != nil {
			return nil, err
		}
	}
	guarded.NoHostPorts, guarded.LocalDNS = hostPortsTaken(r.Snapshot), localDNS(r.Snapshot)
	guarded.HostPorts = guarded.NoHostPorts == ""
	p.Guarded, p.Findings = &guarded, r.Findings
	p.Steps = steps(p)
	estimate.Steps(p.Steps, len(p.Cluster.Nodes), nil)
	return &kind.Draft{Plan: p, Stem: Name}, nil
}

// NewPodsEvery is the time between two rounds of new pods while a command runs, for the interval of the fastest paths
// in ms (0 means the default): 15, 30 and 60 s for the budgets fine, normal and small.
func NewPodsEvery(intervalMillis int) time.Duration {
	const normal, rounds = 10, 3000
	every := time.Duration(cmp.Or(intervalMillis, normal)) * rounds * time.Millisecond
	return min(max(every, 15*time.Second), time.Minute)
}

// steps makes the whole procedure of a plan that has everything else.
func steps(p *kind.Plan) []step.Step {
	b := &builder{plan: p, nodes: p.Cluster.Nodes,
		shared: append(joint.Shared(p.Change.AgentImage, p.Source.Capabilities.Policy != cni.PolicyNone),
			manifest.LocalServices()...)}
	b.install = joint.InstallAgent(p.Change.AgentImage, p.Cluster.Kubernetes, p.Cluster.APIServers,
		b.fleet(5*time.Minute))
	b.prepare()
	if p.Guarded.Others {
		b.change()
	} else {
		b.command()
	}
	b.watch()
	b.finish()
	return b.steps
}

// builder collects the steps in order.
type builder struct {
	plan    *kind.Plan
	nodes   []string
	install []step.Action
	shared  []unstructured.Unstructured
	steps   []step.Step
}

func (b *builder) add(s step.Step) {
	s.Number()
	b.steps = append(b.steps, s)
}

// fleet is the timeout of an operation on all nodes.
func (b *builder) fleet(least time.Duration) time.Duration {
	return least + time.Duration(len(b.nodes))*time.Second
}

// prepare installs Theseus' own objects, and measures the network as it is.
func (b *builder) prepare() {
	b.add(step.Step{
		Group: "prepare", Does: "theseus", Title: "Install Theseus' agent on every node",
		Why: "The agents give the probes their paths and report what they measure. They " +
			"use the nodes' own network.",
		Actions: b.install,
		Undo:    joint.Leave(b.install),
	})
	actions := joint.ApplyShared(b.shared, b.fleet(2*time.Minute))
	actions = append(actions, joint.OnEach(b.nodes, func(node string) step.Action {
		pod := manifest.ForGuard(manifest.ProbePod(b.plan.Change.AgentImage, node, "old"))
		if b.plan.Guarded.HostPorts {
			pod = manifest.WithHostPorts(pod)
		}
		return joint.Apply(*pod)
	})...)
	actions = append(actions, joint.OnEach(b.nodes, func(node string) step.Action {
		return joint.Wait("wait until the probe pod of "+node+" is ready", joint.ProbePodReady(node, "old"),
			b.fleet(2*time.Minute))
	})...)
	actions = append(actions, joint.Probe("measure the paths between all nodes", step.PathSet{Old: joint.Every()}))
	if b.plan.Guarded.NewPods > 0 {
		actions = append(actions, step.Action{Do: step.NewPods{}, Timeout: step.Duration(longest),
			Title: "make a new pod on each node, and try the same paths from it"})
	}
	if n := len(b.plan.Guarded.Pairs); n > 0 {
		actions = append(actions, step.Action{Do: step.Sample{}, Timeout: step.Duration(longest),
			Title: "open and close a connection of each of " + cluster.Count(n, "pair") + " of pods"})
	}
	b.add(step.Step{
		Group: "prepare", Does: "probes", Title: "Measure the network as it is",
		Why: "Only a network that was measured before the change shows what the change costs. New pods are " +
			"tried as well: existing ones may work on while no new one does.",
		Actions: actions,
		Undo:    b.endProbes(),
		Gate:    b.baseline(),
	})
}

func (b *builder) baseline() *step.Gate {
	bake := DefaultBaseline
	if seconds := b.plan.Change.BakeSeconds; seconds > 0 {
		bake = time.Duration(seconds) * time.Second
	}
	gate := &step.Gate{Title: "measuring works, and nothing is lost before the change",
		Baseline: true, Bake: step.Duration(bake), MaxGap: step.Duration(joint.DefaultMaxGap),
		MaxLost: b.plan.Change.MaxLost}
	if b.plan.Guarded.LossyBefore {
		gate.Title, gate.MaxGap, gate.MaxLost = "measuring works before the change", 0, anyLoss
	}
	return gate
}

func (b *builder) command() {
	b.add(step.Step{
		Group: Name, Does: "command", Title: "Run the command: " + b.plan.Guarded.String(),
		Why: "It runs once, on this machine. Theseus does not know what it changes, and does not take it back.",
		Actions: []step.Action{{Do: step.Command{}, Title: "run " + b.plan.Guarded.String(),
			Timeout: step.Duration(longest)}},
	})
}

// change lets others change the cluster. No process needs to run meanwhile: the agents count.
func (b *builder) change() {
	b.add(step.Step{
		Group: Name, Does: "change", Title: "Measure while others change the cluster",
		Why: "The probes measure until you run `theseus guard stop`, on any machine. No process of Theseus " +
			"needs to run here meanwhile.",
		Actions: []step.Action{{Do: step.Await{}, Title: "take note that the changes have ended"}},
	})
}

func (b *builder) watch() {
	guard := b.plan.Guarded
	quiet, most := time.Duration(guard.Quiet), time.Duration(guard.AtMost)
	gate := &step.Gate{Title: "nothing was lost from the baseline until now", Result: true,
		MaxGap: step.Duration(joint.DefaultMaxGap), MaxLost: b.plan.Change.MaxLost}
	if guard.LossyBefore { // the comparison decides
		gate.Title, gate.MaxGap, gate.MaxLost = "the loss rate has not risen since the baseline", 0, anyLoss
	}
	b.add(step.Step{
		Group: Name, Does: "watch", Title: fmt.Sprintf("Watch until no probe was lost for %s, at most %s", quiet, most),
		Why: "A change is asked for before the cluster has carried it out. Meanwhile new pods are made on " +
			"each node.",
		Actions: []step.Action{{Do: step.Watch{}, Title: "watch the paths", Timeout: step.Duration(longest)}},
		Gate:    gate,
	})
}

func (b *builder) endProbes() []step.Action {
	actions := []step.Action{joint.Probe("stop measuring", step.PathSet{})}
	actions = append(actions, joint.OnEach(b.nodes, func(node string) step.Action {
		return joint.Remove(joint.ProbePod(node, "old"))
	})...)
	if b.plan.Guarded.NewPods > 0 {
		for _, set := range manifest.NewPodSets() {
			actions = append(actions, joint.OnEach(b.nodes, func(node string) step.Action {
				return joint.Remove(step.Ref{APIVersion: "v1", Kind: "Pod", Namespace: v1alpha1.Namespace,
					Name: manifest.NewPodName(node, set)})
			})...)
		}
	}
	return append(actions, joint.Backwards(b.shared)...)
}

// finish removes what the plan installed.
func (b *builder) finish() {
	b.add(step.Step{
		Group: "finish", Does: "probes", Title: "Stop measuring",
		Why:      "What was measured is in the report.",
		Actions:  b.endProbes(),
		NoReturn: true,
	})
	b.add(step.Step{
		Group: "finish", Does: "theseus", Title: "Remove Theseus' agent",
		Why:     "Only the journal stays, in namespace " + v1alpha1.Namespace + ", until you delete it.",
		Actions: joint.Leave(b.install),
	})
}
