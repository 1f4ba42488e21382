package step

// The verbs that read a node, and remove what a network left on it.
const (
	// VerbFacts answers with cluster.NodeFacts; it may take FactsArgs.
	VerbFacts = "facts"
	// VerbInventory takes a Residue and answers with an Inventory.
	VerbInventory = "inventory"
	// VerbClean takes a Residue, removes what is there of it, and answers with the Inventory of what is left.
	VerbClean = "clean"
)

var looking = []Verb{
	takes(anything[FactsArgs], Verb{Name: VerbFacts, Quiet: true}),
	takes(Residue.allowed, Verb{Name: VerbInventory, Quiet: true}),
	takes(Residue.allowed, Verb{Name: VerbClean}),
}

// FactsArgs say what to measure besides.
type FactsArgs struct {
	// Peers are addresses of other nodes, to which the path MTU is measured.
	Peers []string `json:"peers,omitempty"`
}
