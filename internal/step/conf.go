package step

// The verbs that choose the CNI configuration of a node's runtime.
const (
	// VerbActivate takes ConfArgs: makes the staged CNI configuration the one that the runtime picks.
	VerbActivate = "activate"
	// VerbDeactivate takes ConfArgs: takes the active configuration back to its staged name.
	VerbDeactivate = "deactivate"
)

// The node itself refuses names that are not of one file in the folder that its runtime reads.
var choosing = []Verb{
	takes(anything[ConfArgs], Verb{Name: VerbActivate, Back: VerbDeactivate}),
	takes(anything[ConfArgs], Verb{Name: VerbDeactivate, Back: VerbActivate}),
}

// ConfArgs names files in the folder of CNI configurations.
type ConfArgs struct {
	// Staged is a name that no runtime reads, such as "10-calico.conflist.theseus", or a file in a folder, which none
	// reads either.
	Staged string `json:"staged"`
	// Active is the name under which it serves; it must sort before the other network's.
	Active string `json:"active"`
}
