package step

// The verbs of the agent, and the arguments they take (Action.Args as JSON). Every verb observes first
// and changes nothing that is already so.
const (
	// VerbFacts answers with cluster.NodeFacts; it may take FactsArgs.
	VerbFacts = "facts"
	// VerbInventory takes a Residue and answers with an Inventory.
	VerbInventory = "inventory"
	// VerbClean takes a Residue, removes what is there of it, and answers with the Inventory of what is left.
	VerbClean = "clean"
	// VerbActivate takes ConfArgs: makes the staged CNI configuration the one that the runtime picks.
	VerbActivate = "activate"
	// VerbDeactivate takes ConfArgs: takes the active configuration back to its staged name.
	VerbDeactivate = "deactivate"
	// VerbJoin takes JoinArgs: no masquerade between the two networks, loose rp_filter; kept true until VerbPart.
	VerbJoin = "join"
	// VerbPart takes JoinArgs and takes VerbJoin back.
	VerbPart = "part"
	// VerbGuard takes a Guard: what nft tables deny stays denied while their owner replaces them.
	VerbGuard = "guard"
	// VerbRelease takes a Guard and takes VerbGuard back.
	VerbRelease = "release"
)

// FactsArgs say what to measure besides.
type FactsArgs struct {
	// Peers are addresses of other nodes, to which the path MTU is measured.
	Peers []string `json:"peers,omitempty"`
}

// Guard names nft tables whose filter rules are copied into tables of Theseus' own.
type Guard struct {
	// Tables are family and name, as in "ip calico"; one that is not there is left out.
	Tables []string `json:"tables"`
	// Without leaves out rules whose comment contains one of these.
	Without []string `json:"without,omitempty"`
	// For is how long the copy denies. The kernel itself ends it, so nobody has to be alive for that.
	For Duration `json:"for"`
}

// ConfArgs names files in /etc/cni/net.d.
type ConfArgs struct {
	// Staged is a name that no runtime reads, such as "10-calico.conflist.theseus".
	Staged string `json:"staged"`
	// Active is the name under which it serves; it must sort before the other network's.
	Active string `json:"active"`
}

// JoinArgs names the two networks of a joint phase.
type JoinArgs struct {
	Old []string `json:"old"` // pod CIDRs of the source
	New []string `json:"new"` // pod CIDRs of the target
}
