package cni

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Upgrader is a driver whose network can be taken to another version node by node, while two versions run.
type Upgrader interface {
	Driver
	// Upgrade compares the user's own manifests of another version with the network in place. It answers with a
	// *Refusal where the two cannot run side by side, or where more than the version would change. version is what the user
	// says that they install; it may be empty where they say so themselves.
	Upgrade(snapshot *cluster.Snapshot, found *Installation, manifest []unstructured.Unstructured, version string) (*Upgrade, error)
}

// Older compares two versions of a network; of one that cannot be read neither is older.
func Older(one, than string) bool {
	a, errA := version.ParseSemantic(one)
	b, errB := version.ParseSemantic(than)
	return errA == nil && errB == nil && a.LessThan(b)
}

// Upgrades says whether a change takes the one network that was found to another version.
func Upgrades(found []*Installation, change v1alpha1.ChangeSpec) bool {
	return change.Strategy == "upgrade" || change.To != "" && len(found) == 1 && found[0].CNI == change.To
}

// Upgrade is another version of a network in place, as data.
type Upgrade struct {
	// Installation is the network as it will be.
	Installation Installation
	// Definitions come first, and stay when the change is taken back: what an older agent does not know in them it
	// passes over, and to remove one would remove what is stored by it. Where the version goes down they are only those that the
	// cluster has not.
	Definitions []unstructured.Unstructured
	// Objects are new, or change nothing for the agents of now: they are applied before the first node.
	Objects []unstructured.Unstructured
	// Rights let agents of both versions work: those of the new one, in objects of Theseus' own beside those of now,
	// which are Named, and take their final form in Roles when no agent of now is left.
	Rights, Roles []unstructured.Unstructured
	// Agent is the form of the agents' DaemonSet and of what they read, for pods that are made from then on.
	Agent Form
	// Hold lets the DaemonSet replace no pod by itself, Unhold takes that back, and Resume gives it its final strategy.
	Hold, Unhold, Resume step.Action
	// Owner is the program that makes the agents' DaemonSet what it is; nil where the change does. With it Agent, Hold, Unhold,
	// Resume, Leaders and Followers are empty.
	Owner *Owner
	// Leaders are Deployments that come before the first agent, and Followers those that come when all agents are new; each in
	// this order.
	Leaders, Followers []Follower
}

// Form is what a workload is made from, of now and of the new version, as patches.
type Form struct {
	New, Old []step.Action
}

// Owner makes a network's workloads what they are, by its own version, and writes back what others change in them.
type Owner struct {
	// Ref is its Deployment, which Form changes.
	Ref step.Ref
	Form
	// From and To are its own versions.
	From, To string
	// Rolls are Deployments that it brings to another version at once, whatever becomes of the agents.
	Rolls []step.Ref
	// Sound is what it says of these workloads while none fails, also while the agents' pods are held, and Whole when each is
	// as it should be; nil where it says nothing.
	Sound, Whole *step.Condition
	// Why says what it does by itself.
	Why string
}

// Follower is a workload that goes with the agents, after or before them.
type Follower struct {
	Ref step.Ref
	Form
	// Why says what its place in the order is good for.
	Why string
}
