// Package plan turns a snapshot and a change into a plan: complete, printable as a runbook, verified on
// every prefix, and nothing but data.
package plan

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/rollout"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Kind is the kind of a serialised plan.
const Kind = "Plan"

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
	// Strategy is adopt, encapsulation, mirror, pool, recreate, reflectors, rollout, surge or upgrade, and Reason why.
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
	// Surge is set where nodes are replaced.
	Surge *Surge `json:"surge,omitempty"`
	// Mirror is set where the names of services go to a second cluster while this one is changed. Where that is by a strategy,
	// Change, Source, Target, Waves and Workloads are those of its plan; else Source is what was found, if anything was, and
	// Target nothing.
	Mirror   *mirror.Setup `json:"mirror,omitempty"`
	Estimate step.Duration `json:"estimate"`
	// Retain are the ranges whose routes BIRD carries and which nodes retain while agents restart.
	Retain []string `json:"retain,omitempty"`
	Flags  Flags    `json:"flags,omitzero"`
	// Hash is over everything else, so that a changed plan is noticed.
	Hash string `json:"hash"`
}

// Rollout says which flag gets which value.
type Rollout struct {
	Flag string `json:"flag"`
	// Value is the cluster's at the end; empty where that stays as it is.
	Value string `json:"value"`
	// From and To are the data planes before and after.
	From string `json:"from"`
	To   string `json:"to"`
	// Says is what Felix says in its log of a flag that is not about the data plane; From and To are the same then.
	Says string `json:"says,omitempty"`
	// Scoped are the nodes that have a configuration of their own already, which is to stay.
	Scoped []string `json:"scoped,omitempty"`
	// Env is the variable of the agents' DaemonSet that holds the flag, and Was its value before; empty for FelixConfigurations.
	Env string `json:"env,omitempty"`
	Was string `json:"was,omitempty"`
	// Origin is the flag of a flag set that says what every node gets; nil where all get Value. From and To are empty then.
	Origin *Origin `json:"origin,omitempty"`
}

// Origin is a flag that was evaluated for every node when the plan was made, once: whatever becomes of its source, a
// plan means the same whenever it is run. By which algorithm nodes were dealt into buckets, the plan's Flags say.
type Origin struct {
	// Source is where the flag came from, as a user writes it but without a password, and Flag its key there.
	Source string `json:"source"`
	Flag   string `json:"flag"`
	// Digest is that of the flag set; empty where a server evaluated it.
	Digest string `json:"digest,omitempty"`
	// Turns are what every node has before and after.
	Turns map[string]rollout.Turn `json:"turns"`
}

// turn is what a node has before and after.
func (r *Rollout) turn(node string) (turn rollout.Turn, known bool) {
	if r.Origin != nil {
		turn, known = r.Origin.Turns[node]
		return turn, known
	}
	turn = rollout.Turn{Own: r.Value, Value: r.Value, From: r.From, To: r.To, Says: r.Says}
	if r.Env != "" {
		turn.Was = r.Was
	}
	return turn, true
}

// Setting says what is set, as in "nftablesMode=Enabled".
func (r *Rollout) Setting() string {
	if r.Origin != nil {
		return r.Flag + " by the flag " + r.Origin.Flag + " of " + r.Origin.Source
	}
	return r.Flag + "=" + r.Value
}

// String names it, as in "nftablesMode=Enabled (iptables to nftables)".
func (r *Rollout) String() string {
	if r.From == r.To {
		return r.Setting()
	}
	return r.Setting() + " (" + r.From + " to " + r.To + ")"
}

// Upgrade says from which version the network in place goes to which.
type Upgrade struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Reflecting are the nodes that reflect BGP's routes, of which no two restart in one step.
	Reflecting []string `json:"reflecting,omitempty"`
	// Owner is set where another program makes the agents' DaemonSet what it is.
	Owner *Owner `json:"owner,omitempty"`
}

// Owner is that program's Deployment, and the versions of its own between which it goes.
type Owner struct {
	Ref  step.Ref `json:"ref"`
	From string   `json:"from"`
	To   string   `json:"to"`
}

// Surge says which nodes go and come.
type Surge struct {
	// Waves are the first of the plan's waves, in the same order.
	Waves []SurgeWave `json:"waves"`
	// Hooks are the commands, split into words.
	AddHook    []string `json:"addHook"`
	RemoveHook []string `json:"removeHook"`
}

// SurgeWave names the nodes of a wave that go, and the slots of those that come: a node is bound to its slot by the label
// theseus.dev/slot, and steps name the slot.
type SurgeWave struct {
	Name string   `json:"name"`
	Old  []string `json:"old"`
	New  []string `json:"new"`
}

// Slots are the names that the plan has for nodes that come.
func (s *Surge) Slots() []string {
	var slots []string
	if s == nil {
		return nil
	}
	for _, wave := range s.Waves {
		slots = append(slots, wave.New...)
	}
	return slots
}

// InPlace says whether the network stays, and pods with it.
func (p *Plan) InPlace() bool {
	return p.Rollout != nil || p.Upgrade != nil || p.Reflectors != nil || p.Encapsulation != nil
}

// OnNodes says whether steps of the plan change the nodes of this cluster, and measure its paths.
func (p *Plan) OnNodes() bool { return p.Mirror == nil || p.Mirror.Switch.Strategy != "" }

// From names what the change leaves: a network, its version, a data plane, or the value of a flag.
func (p *Plan) From() string {
	switch {
	case p.Rollout != nil && p.Rollout.From == p.Rollout.To:
		return "its former " + p.Rollout.Flag
	case p.Rollout != nil:
		return p.Rollout.From
	case p.Upgrade != nil:
		return p.Upgrade.From
	case p.Reflectors != nil:
		return reflecting(p.Reflectors.Before)
	case p.Pools != nil:
		return "IPPool " + p.Pools.From
	case p.Encapsulation != nil:
		return "encapsulation " + p.Encapsulation.From
	case p.Mirror != nil && p.Mirror.Switch.To == "":
		return "the original"
	}
	return p.Source.CNI
}

// To is where the change goes.
func (p *Plan) To() string {
	switch {
	case p.Rollout != nil && p.Rollout.Origin != nil:
		return p.Rollout.Origin.Flag
	case p.Rollout != nil && p.Rollout.From == p.Rollout.To:
		return p.Rollout.String()
	case p.Rollout != nil:
		return p.Rollout.To
	case p.Upgrade != nil:
		return p.Upgrade.To
	case p.Reflectors != nil:
		return p.Reflectors.String()
	case p.Pools != nil:
		return "IPPool " + p.Pools.To
	case p.Encapsulation != nil:
		return "encapsulation " + p.Encapsulation.To
	case p.Mirror != nil:
		return cmp.Or(p.Mirror.Switch.To, "the mirror and back")
	}
	return p.Target.CNI
}

// Size says how much it changes, as in "3 nodes in 2 waves".
func (p *Plan) Size() string {
	return cluster.Count(len(p.Cluster.Nodes), "node") + " in " + cluster.Count(len(p.Waves), "wave")
}

// Cluster says which cluster, in which state, the plan was made for.
type Cluster struct {
	UID        string `json:"uid"`
	Kubernetes string `json:"kubernetes"`
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
	// Treatment is "adopt" (its pods go on to run), "move" (they are created again), "stay" (host network), "refuse"; Note says more.
	Treatment string `json:"treatment"`
	// Budget names the PodDisruptionBudget that limits it, where there is one.
	Budget string `json:"budget,omitempty"`
	Note   string `json:"note,omitempty"`
}
