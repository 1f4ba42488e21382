package recreate

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/manifest"
	"github.com/theseus-cni/theseus/internal/step"
)

// prepare installs Theseus' own parts and proves that measuring works before anything else changes.
func (b *builder) prepare() {
	b.installTheseus()
	b.startProbes()
}

func (b *builder) installTheseus() {
	b.add(step.Step{
		ID:       "prepare/theseus",
		Title:    "Install Theseus' agent on every node",
		Why:      "Everything that is done on a node is done by its agent, which uses neither pod network.",
		Actions:  InstallAgent(b.Change.AgentImage, b.fleet(5*time.Minute)),
		Undo:     removeTheseus(manifest.Agent(b.Change.AgentImage), manifest.CRDs()),
		Estimate: step.Duration(20*time.Second + b.perNode(200*time.Millisecond)),
	})
}

// InstallAgent installs Theseus' agent, and waits until it is ready on every node.
func InstallAgent(image string, timeout time.Duration) []step.Action {
	crds, agent := manifest.CRDs(), manifest.Agent(image)
	actions := []step.Action{apply(*manifest.Namespace())}
	for _, crd := range crds {
		actions = append(actions, apply(crd))
	}
	for i := range crds {
		ref := step.RefOf(&crds[i])
		actions = append(actions, wait("wait until "+name(ref)+" serves", established(ref), time.Minute))
	}
	for _, object := range agent {
		actions = append(actions, apply(object))
	}
	daemonSet := step.RefOf(&agent[len(agent)-1])
	return append(actions, wait("wait until "+name(daemonSet)+" is ready on every node", rolled(daemonSet), timeout))
}

// removeTheseus leaves the journal, its definitions and the namespace that it lives in.
func removeTheseus(agent, crds []unstructured.Unstructured) []step.Action {
	keep := []string{manifest.Plural("Migration") + "." + v1alpha1.Group, manifest.Plural("JournalPage") + "." + v1alpha1.Group}
	actions := backwards(agent)
	for _, action := range backwards(crds) {
		if !slices.Contains(keep, action.Ref.Name) {
			actions = append(actions, action)
		}
	}
	return actions
}

func (b *builder) startProbes() {
	shared := manifest.ProbeServices()
	if b.Source.Capabilities.Policy != cni.PolicyNone {
		shared = append(shared, *manifest.ProbePolicy())
	}
	var actions []step.Action
	for _, object := range shared {
		actions = append(actions, apply(object))
	}
	for _, node := range b.nodes() {
		actions = append(actions, apply(*manifest.ProbePod(b.Change.AgentImage, node, "old")))
	}
	for _, node := range b.nodes() {
		actions = append(actions, wait("wait until the probe pod of "+node+" is ready", probePodReady(node, "old"), b.fleet(2*time.Minute)))
	}
	actions = append(actions, probe("measure the paths between all nodes over "+b.Source.CNI, step.PathSet{Old: every()}))
	undo := []step.Action{probe("stop measuring", step.PathSet{})}
	for _, node := range b.nodes() {
		undo = append(undo, remove(probePod(node, "old")))
	}
	gate := b.gate("measuring works, and "+b.Source.CNI+" loses nothing before anything is changed", true)
	gate.Baseline = true
	b.add(step.Step{
		ID:       "prepare/probes",
		Title:    "Measure the network as it is",
		Why:      "What was lost can only be told by comparison, and a gate without evidence never passes.",
		Actions:  actions,
		Undo:     append(undo, backwards(shared)...),
		Gate:     gate,
		Estimate: step.Duration(10*time.Second + b.perNode(300*time.Millisecond) + b.bake()),
	})
}

// perNode is a time that grows with the cluster.
func (b *builder) perNode(each time.Duration) time.Duration {
	return time.Duration(len(b.nodes())) * each
}

// fleet is a timeout for something that all nodes do.
func (b *builder) fleet(least time.Duration) time.Duration { return least + b.perNode(time.Second) }

// noun counts things: "1 pod", "2 pods".
func noun(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
