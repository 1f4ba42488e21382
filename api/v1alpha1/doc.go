// Package v1alpha1 defines the types of the API group theseus.dev: the document that users write
// (Change), and the objects that Theseus stores in the cluster (Migration, Approval, PlanPage, JournalPage,
// NodeTask, ProbePlan, ProbeReport). It has only types and constants. It is the only package that other
// modules may import.
package v1alpha1

// Names that the objects of this group share.
const (
	// Group is the API group.
	Group = "theseus.dev"
	// Version is the API version of every kind here.
	Version = "v1alpha1"
	// APIVersion is the apiVersion of all kinds in this package.
	APIVersion = Group + "/" + Version
	// Namespace is the namespace of Theseus' own objects.
	Namespace = "theseus-system"
	// LabelManaged marks every object that Theseus created and may therefore delete.
	LabelManaged = "theseus.dev/managed"
	// LabelTarget marks the nodes on which the target network's agent runs.
	LabelTarget = "theseus.dev/target"
	// LabelAdopted marks the nodes on which the target network may assign addresses of the range that it takes over to
	// new pods, because it knows all addresses in use there. Its value names the range.
	LabelAdopted = "theseus.dev/adopted"
	// DisarmedPrefix replaces the domain in the key of an annotation on an object that was copied to a mirror, if the
	// annotation would have effects outside of the mirror.
	DisarmedPrefix = "disarmed.theseus.dev/"
	// LabelSlot marks a node that was added by a change; its value is the node's name in the plan.
	LabelSlot = "theseus.dev/slot"
	// LabelProbe marks probe pods; its value is the network on which they were created, "old" or "new", or "new-pod"
	// for the new pods of a guard, which no Service of the probes selects.
	LabelProbe = "theseus.dev/probe"
	// AnnotationAwaited is on a pod of the target's agent while it restarts and is not Ready yet.
	AnnotationAwaited = "theseus.dev/awaited"
	// AnnotationReplace is on a pod whose deletion the hold (manifest.Hold) allows, because it is its turn to be
	// replaced.
	AnnotationReplace = "theseus.dev/replace"
	// TaintPending repels new pods from nodes that are not switched yet, if other nodes are available. With the effect
	// NoSchedule, it repels them from nodes that are not verified yet, or will be removed.
	TaintPending = "theseus.dev/pending"
)
