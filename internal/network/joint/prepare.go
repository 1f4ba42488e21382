package joint

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Prepare installs Theseus' own objects and verifies that measuring works before anything else changes.
func (b *Builder) Prepare() {
	b.installTheseus()
	b.startProbes()
}

func (b *Builder) installTheseus() {
	install := InstallAgent(b.Change.AgentImage, b.Snapshot.Kubernetes, b.Snapshot.APIServers,
		b.Fleet(5*time.Minute))
	b.Add(step.Step{
		Group: "prepare", Does: "theseus",
		Title: "Install Theseus' agent on every node",
		Why: "Theseus changes nodes only through its agent, which uses the host network and so " +
			"depends on neither pod network.",
		Actions: install,
		Undo:    Leave(install),
	})
}

// InstallAgent installs Theseus' agent for a version of Kubernetes, and waits until it is ready on every node.
// apiServers are as in Snapshot.APIServers.
func InstallAgent(image, kubernetes string, apiServers []string, timeout time.Duration) []step.Action {
	crds, agent := manifest.CRDs(), manifest.Agent(image, kubernetes, apiServers)
	actions := append([]step.Action{Apply(*manifest.Namespace())}, Define(crds)...)
	for _, object := range agent {
		actions = append(actions, Apply(object))
	}
	daemonSet := step.RefOf(&agent[len(agent)-1])
	return append(actions, Wait("wait until "+Name(daemonSet)+" is ready on every node", Rolled(daemonSet), timeout))
}

// Define creates CRDs, and waits until they are established.
func Define(definitions []unstructured.Unstructured) []step.Action {
	var applies, waits []step.Action
	for i := range definitions {
		ref := step.RefOf(&definitions[i])
		applies = append(applies, Apply(definitions[i]))
		waits = append(waits, Wait("wait for "+Name(ref)+" to be established", established(ref), time.Minute))
	}
	return slices.Concat(Together(applies), Together(waits))
}

// Leave removes the objects of InstallAgent in reverse order, except the journal, its CRDs and its namespace, which no
// longer allows privileged pods.
func Leave(install []step.Action) []step.Action {
	kept := append(manifest.Kept(), v1alpha1.Namespace)
	var actions []step.Action
	for _, action := range slices.Backward(install) {
		if do, is := action.Do.(step.Apply); is && !slices.Contains(kept, do.Object.GetName()) {
			actions = append(actions, Remove(step.RefOf(do.Object)))
		}
	}
	rest := Apply(*manifest.NamespaceAtRest())
	rest.Title = "forbid privileged pods in Namespace " + v1alpha1.Namespace
	return append(actions, rest)
}

// Shared returns the objects that measuring needs in addition to the probe pods. policy says whether the network
// enforces NetworkPolicy.
func Shared(image string, policy bool) []unstructured.Unstructured {
	shared := append(manifest.ProbeServices(), *manifest.HostProber(image))
	if policy {
		shared = append(shared, *manifest.ProbePolicy())
	}
	return shared
}

// ApplyShared applies the objects of Shared, and waits until the host prober is ready on every node.
func ApplyShared(shared []unstructured.Unstructured, timeout time.Duration) []step.Action {
	var actions []step.Action
	for _, object := range shared {
		actions = append(actions, Apply(object))
	}
	return append(actions, Wait("wait until "+Name(HostProber())+" is ready on every node",
		Rolled(HostProber()), timeout))
}

func (b *Builder) startProbes() {
	shared := Shared(b.Change.AgentImage, b.Source.Capabilities.Policy != cni.PolicyNone)
	pod := manifest.ProbePods(b.Change.AgentImage, "old")
	actions := slices.Concat(ApplyShared(shared, b.Fleet(2*time.Minute)),
		OnEach(b.Nodes(), func(node string) step.Action {
			return Apply(*pod(node))
		}),
		OnEach(b.Nodes(), func(node string) step.Action {
			return Wait("wait until the probe pod of "+node+" is ready", ProbePodIn(node, "old", b.Source.PodCIDRs),
				b.Fleet(2*time.Minute))
		}))
	actions = append(actions, Probe("measure the paths between all nodes over "+b.SourceName(),
		step.PathSet{Old: Every()}))
	gate := b.Gate("the probes work, and "+b.SourceName()+" loses no probe before the change", true)
	gate.Baseline = true
	b.Add(step.Step{
		Group: "prepare", Does: "probes",
		Title: "Measure the network before the change",
		Why: "The measurements are the baseline for the report and for every gate. A gate without " +
			"measurements never passes.",
		Actions: actions,
		Undo: slices.Concat([]step.Action{Probe("stop measuring", step.PathSet{})},
			OnEach(b.Nodes(), func(node string) step.Action { return Remove(ProbePod(node, "old")) }),
			Backwards(shared)),
		Gate: gate,
	})
}

// SparePort prevents, until End, that a network which stays masquerades traffic with its tunnel port as source port, if
// its agent exempts that port from connection tracking. If two networks are joined, the join rules do the same.
func (b *Builder) SparePort() {
	if spare := SparePort(b.Nodes(), b.Join.Untracked); spare != nil {
		spare.Gate = b.Gate("traffic is unaffected by the reserved port", false)
		b.Add(*spare)
		b.portReserved = true
	}
}

// SparePort is the step that does so, without its gate; nil if no port needs it.
func SparePort(nodes []string, port *step.Untracked) *step.Step {
	if port == nil {
		return nil
	}
	args := Canonical(step.JoinArgs{Untracked: port})
	return &step.Step{
		Group: "prepare", Does: "port",
		Title: fmt.Sprintf("Keep masqueraded connections off UDP port %d", port.Port),
		Why: "The network's agent exempts this port from connection tracking. A masqueraded connection that gets it " +
			"as source port (1 in 64,512) never receives an answer, and a gate would count that as a loss.",
		Actions: OnEach(nodes, func(node string) step.Action {
			return OnNode(node, step.VerbJoin, fmt.Sprintf("keep masqueraded connections off UDP port %d on %s",
				port.Port, node), args)
		}),
		Undo: UseAnyPort(nodes),
	}
}

// UseAnyPort reverts SparePort.
func UseAnyPort(nodes []string) []step.Action {
	args := Canonical(step.JoinArgs{})
	return OnEach(nodes, func(node string) step.Action {
		return OnNode(node, step.VerbPart, "let masqueraded connections use any port on "+node+" again", args)
	})
}

// Fleet is the timeout of an operation on all nodes.
func (b *Builder) Fleet(least time.Duration) time.Duration {
	return least + time.Duration(len(b.Nodes()))*time.Second
}
