package step

// The verbs of a hook.
const (
	// VerbAdd brings a node. NodeName is the name that the plan has for it, its slot: the node may get that name, or
	// any other; the first that is new in the cluster then has the slot.
	VerbAdd = "add"
	// VerbRemove takes a node away.
	VerbRemove = "remove"
)

// HookArgs is the user's command for one node.
type HookArgs struct {
	// Command is the program and its arguments. No shell sees them.
	Command []string `json:"command"`
	// Wave is the wave that the node is of.
	Wave string `json:"wave"`
}
