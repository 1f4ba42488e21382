package kind

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror/setup"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Document is the kind of a serialised plan.
const Document = "Plan"

// Plan is what `theseus apply` executes.
type Plan struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Name names the migration, such as "flannel-to-calico-3f9c2a".
	Name    string              `json:"name"`
	Theseus string              `json:"theseus"` // version of the tool
	MadeAt  metav1.Time         `json:"madeAt"`
	Cluster Cluster             `json:"cluster"`
	Change  v1alpha1.ChangeSpec `json:"change"`
	// Strategy is the name of the kind of change, or, where one network replaces another, adopt, recreate or surge.
	// Reason says why.
	Strategy  string            `json:"strategy"`
	Reason    string            `json:"reason,omitempty"`
	Source    cni.Installation  `json:"source"`
	Target    cni.Installation  `json:"target"`
	Waves     []Wave            `json:"waves"`
	Steps     []step.Step       `json:"steps"`
	Workloads []Workload        `json:"workloads"`
	Findings  []finding.Finding `json:"findings,omitempty"`
	// Rollout is set where a flag of the network in place is what changes; Target is then the same network.
	Rollout *Rollout `json:"rollout,omitempty"`
	// Upgrade is set where the version of the network in place is what changes; Target is then the same network.
	Upgrade *Upgrade `json:"upgrade,omitempty"`
	// Reflectors is set where BGP's route reflectors are what changes; Target is then the same network.
	Reflectors *Reflectors `json:"reflectors,omitempty"`
	// Pools is set where the range of pods is what changes; Target is then the same network with the new range.
	Pools *Pools `json:"pools,omitempty"`
	// Encapsulation is set where the way between nodes is what changes; Target is then the same network.
	Encapsulation *Encapsulation `json:"encapsulation,omitempty"`
	// Guarded is set where a command of the user is measured; Source is then the network as it was before, if a driver
	// knows it, and Target nothing.
	Guarded *Guard `json:"guarded,omitempty"`
	// Surge is set where nodes are replaced.
	Surge *Surge `json:"surge,omitempty"`
	// Parallel is set where more nodes are changed at once than in a small cluster, or nodes are in several failure
	// domains.
	Parallel Parallel `json:"parallel,omitzero"`
	// Mirror is set where the names of services go to a second cluster while this one is changed. Where that is by a
	// strategy, Change, Source, Target, Waves and Workloads are those of its plan; else Source is what was found, if
	// anything was, and Target nothing.
	Mirror   *setup.Setup  `json:"mirror,omitempty"`
	Estimate step.Duration `json:"estimate"`
	// EstimatedFrom are the earlier runs of the cluster from which the estimates come; none if they are the lab's.
	EstimatedFrom []string `json:"estimatedFrom,omitempty"`
	// Window is how long each window of the change is; the steps that it begins in one take no longer, by their
	// estimates. 0 if the change is made in one go.
	Window step.Duration `json:"window,omitempty"`
	// Retain are the ranges whose routes BIRD carries and which nodes retain while agents restart.
	Retain []string `json:"retain,omitempty"`
	Flags  Flags    `json:"flags,omitzero"`
	// Hash is over everything else, so that a changed plan is noticed.
	Hash string `json:"hash"`
}

// Section is what a plan says of its kind of change beyond the two networks. A field of Plan with a Section has a case
// in its method Section.
type Section interface {
	// Words name what the change leaves and where it goes, on a network: another network, its version, a data plane, or
	// the value of a flag.
	Words(network string) (from, to string)
	// Ends are the same in full, for the head of a report.
	Ends(source, target cni.Installation) (from, to string)
	// Setting is what is set, as in "nftablesMode=Enabled"; empty where the ends say it.
	Setting() string
	// InPlace says whether the network stays, and pods with it.
	InPlace() bool
	// Exempts says whether the steps keep connections off the port that the network exempts from tracking.
	Exempts() bool
}

// ends are the networks, each with a preposition and what the section's words are for it.
func ends(s Section, preposition string, source, target cni.Installation) (from, to string) {
	from, to = s.Words(source.CNI)
	return source.Versioned() + " " + preposition + " " + from, target.Versioned() + " " + preposition + " " + to
}

// Section is that of the plan; nil where one network replaces another.
func (p *Plan) Section() Section {
	switch {
	case p.Rollout != nil:
		return p.Rollout
	case p.Upgrade != nil:
		return p.Upgrade
	case p.Reflectors != nil:
		return p.Reflectors
	case p.Pools != nil:
		return p.Pools
	case p.Encapsulation != nil:
		return p.Encapsulation
	case p.Guarded != nil:
		return p.Guarded
	case p.Mirror != nil:
		return p.Mirror
	}
	return nil
}

// InPlace says whether the network stays, and pods with it.
func (p *Plan) InPlace() bool {
	section := p.Section()
	return section != nil && section.InPlace()
}

// OnNodes says whether steps of the plan change the nodes of this cluster, and measure its paths.
func (p *Plan) OnNodes() bool { return p.Mirror == nil || p.Mirror.Switch.Strategy != "" }

// From names what the change leaves: a network, its version, a data plane, or the value of a flag.
func (p *Plan) From() string {
	from, _ := p.words()
	return from
}

// To is where the change goes.
func (p *Plan) To() string {
	_, to := p.words()
	return to
}

func (p *Plan) words() (from, to string) {
	if section := p.Section(); section != nil {
		return section.Words(p.Source.CNI)
	}
	return p.Source.CNI, p.Target.CNI
}

// Ends name in full what the change leaves and where it goes.
func (p *Plan) Ends() (from, to string) {
	if section := p.Section(); section != nil {
		return section.Ends(p.Source, p.Target)
	}
	return p.Source.Versioned(), p.Target.Versioned()
}

// Setting is what is set, as in "nftablesMode=Enabled"; empty where the ends say it.
func (p *Plan) Setting() string {
	if section := p.Section(); section != nil {
		return section.Setting()
	}
	return ""
}

// Size says how much it changes, as in "3 nodes in 2 waves".
func (p *Plan) Size() string {
	return cluster.Count(len(p.Cluster.Nodes), "node") + " in " + cluster.Count(len(p.Waves), "wave")
}

// Cluster says which cluster, in which state, the plan was made for.
type Cluster struct {
	UID        string `json:"uid"`
	Kubernetes string `json:"kubernetes"`
	// APIServers are the addresses of the API servers, as HOST:PORT: agents use them instead of the Service kubernetes.
	APIServers []string `json:"apiServers,omitempty"`
	// Nodes are the names of all nodes; a node that joins or leaves makes the plan stale.
	Nodes []string `json:"nodes"`
	// Fingerprint is over what the plan rests on (networks, nodes, policies, budgets), and not over pods.
	Fingerprint string      `json:"fingerprint"`
	TakenAt     metav1.Time `json:"takenAt"`
}

// Flags are the feature flags that the plan was made with, resolved once, so that it means the same whenever it is run.
type Flags struct {
	// Algorithm is what dealt nodes into buckets (flag.Algorithm): another may deal them differently.
	Algorithm string `json:"algorithm"`
	// Digest is that of the flag set; empty when there was none.
	Digest string `json:"digest,omitempty"`
	// Values are the nodes by flag and value.
	Values map[string]map[string][]string `json:"values,omitempty"`
}

// Wave is a set of nodes changed together.
type Wave struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
}

// Workload says what will happen to one workload.
type Workload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pods are the names of its pods that move or are adopted, by wave.
	Pods map[string][]string `json:"pods,omitempty"`
	// Treatment is "adopt" (its pods go on to run), "move" (they are created again), "stay" (host network), "refuse";
	// Note says more.
	Treatment string `json:"treatment"`
	// Budget names the PodDisruptionBudget that limits it, where there is one.
	Budget string `json:"budget,omitempty"`
	Note   string `json:"note,omitempty"`
}
