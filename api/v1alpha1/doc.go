// Package v1alpha1 holds the documents and objects of the API group theseus.dev: what a user
// writes (Change), what Theseus keeps in the cluster (Migration, NodeTask, ProbePlan,
// ProbeReport), and nothing that acts. It is the only package meant to be imported from outside.
package v1alpha1

// Names that every object of this group shares.
const (
	// Group is the API group.
	Group = "theseus.dev"
	// Version is the API version of every kind here.
	Version = "v1alpha1"
	// APIVersion is what documents of these kinds carry.
	APIVersion = Group + "/" + Version
	// Namespace is where Theseus' own objects live in a cluster.
	Namespace = "theseus-system"
	// LabelManaged marks every object that Theseus made, and so may remove.
	LabelManaged = "theseus.dev/managed"
	// LabelTarget marks the nodes on which the target network's agent runs.
	LabelTarget = "theseus.dev/target"
	// LabelAdopted marks the nodes on which the target network may give a new pod an address of the range that it
	// takes over: it knows all that are taken there. Its value names the range.
	LabelAdopted = "theseus.dev/adopted"
	// DisarmedPrefix is put before the key, without its domain, of an annotation that would act outside of the mirror to
	// which its object was copied.
	DisarmedPrefix = "disarmed.theseus.dev/"
	// LabelSlot marks a node that came in the course of a change; its value is the name that the plan has for it.
	LabelSlot = "theseus.dev/slot"
	// LabelProbe marks probe pods; its value is the network they were made on, "old" or "new".
	LabelProbe = "theseus.dev/probe"
	// AnnotationAwaited is on a pod of the target's agent while it is restarted and not Ready yet.
	AnnotationAwaited = "theseus.dev/awaited"
	// AnnotationReplace is on a pod that a hold (manifest.Hold) lets go: its turn has come.
	AnnotationReplace = "theseus.dev/replace"
	// TaintPending keeps new pods off nodes that are not switched yet, where there is a choice; with the effect
	// NoSchedule, off nodes that are not proven yet, or are about to go.
	TaintPending = "theseus.dev/pending"
)
