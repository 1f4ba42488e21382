package cni

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// Upgrader is a driver whose network can be upgraded node by node, while two versions run side by side.
type Upgrader interface {
	Driver
	// Upgrade compares the user's manifests of another version with the installed network. It returns a *Refusal if the
	// two versions cannot run side by side, or if more than the version would change. version is the version that the
	// manifests install, according to the user; it may be empty if the manifests contain it.
	Upgrade(snapshot *cluster.Snapshot, found *Installation, manifest []unstructured.Unstructured,
		version string) (*Upgrade, error)
}

// Older reports whether one version of a network is older than another; false if either is not a version.
func Older(one, than string) bool {
	a, errA := version.ParseSemantic(one)
	b, errB := version.ParseSemantic(than)
	return errA == nil && errB == nil && a.LessThan(b)
}

// Upgrades reports whether a change upgrades the only network that was found.
func Upgrades(found []*Installation, change v1alpha1.ChangeSpec) bool {
	return change.Strategy == "upgrade" || change.To != "" && len(found) == 1 && found[0].CNI == change.To
}

// Upgrade is a change of an installed network to another version, as data.
type Upgrade struct {
	// Installation is the network after the upgrade.
	Installation Installation
	// Definitions are applied first, and stay after a rollback: an older agent ignores fields that it does not know,
	// and removing a CRD would delete its objects. For a downgrade they are only those that the cluster does not have.
	Definitions []unstructured.Unstructured
	// Objects are new, or do not affect the running agents: they are applied before the first node.
	Objects []unstructured.Unstructured
	// Rights let agents of both versions work: they are the new version's permissions in separate objects of Theseus,
	// next to the current ones (Named). Those get their final form (Roles) when no agent of the old version is left.
	Rights, Roles []unstructured.Unstructured
	// Trial are the objects of the network's own check before an upgrade: they are applied before anything else
	// changes, become ready if nothing stands against the upgrade, and are deleted.
	Trial []unstructured.Unstructured
	// Settings describes the settings that the manifest changes with the version, for people.
	Settings []string
	// Agent is the form of the agents' DaemonSet and of the objects that it reads, for pods created from then on.
	Agent Form
	// Hold prevents the DaemonSet from replacing pods by itself, Unhold reverts that, and Resume sets its final
	// strategy.
	Hold, Unhold, Resume step.Action
	// Owner is the program that writes the agents' DaemonSet; nil if the change writes it. If it is set, Agent, Hold,
	// Unhold, Resume, Leaders and Followers are empty.
	Owner *Owner
	// Leaders are Deployments that are changed before the first agent, and Followers those that are changed after the
	// last agent, each in order.
	Leaders, Followers []Follower
	// Leading is set if Deployments are changed before the first agent in both directions.
	Leading bool
}

// Form is the patches that change a workload to the new version, and back to the current one.
type Form struct {
	New, Old []step.Action
}

// Owner is a program that writes a network's workloads according to its own version, and reverts changes by others.
type Owner struct {
	// Ref is its Deployment, which Form changes.
	Ref step.Ref
	Form
	// From and To are its own versions.
	From, To string
	// Rolls are Deployments that it upgrades immediately, independent of the agents.
	Rolls []step.Ref
	// Sound is what it reports while no workload fails, even while the agents' pods are held, and Whole when all
	// workloads are complete; nil if it reports nothing.
	Sound, Whole *step.Condition
	// Why describes what it does by itself.
	Why string
}

// Follower is a workload that is upgraded together with the agents, before or after them.
type Follower struct {
	Ref step.Ref
	Form
	// Why gives the reason for its place in the order.
	Why string
}
