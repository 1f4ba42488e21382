package step

import "time"

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
	// Where both are the same range, rp_filter alone; where there is none, nothing but what Untracked says.
	VerbJoin = "join"
	// VerbPart takes JoinArgs and takes VerbJoin back.
	VerbPart = "part"
	// VerbGuard takes a Guard: what nft tables deny stays denied while their owner replaces them.
	VerbGuard = "guard"
	// VerbRelease takes a Guard and takes VerbGuard back.
	VerbRelease = "release"
	// VerbDataplane takes a Dataplane, waits until it is so, and answers with an Attestation.
	VerbDataplane = "dataplane"
)

// InverseVerb is the verb that takes another back with the same arguments, if there is one.
func InverseVerb(verb string) (string, bool) {
	switch verb {
	case VerbActivate:
		return VerbDeactivate, true
	case VerbDeactivate:
		return VerbActivate, true
	case VerbJoin:
		return VerbPart, true
	case VerbPart:
		return VerbJoin, true
	}
	return "", false
}

// FactsArgs say what to measure besides.
type FactsArgs struct {
	// Peers are addresses of other nodes, to which the path MTU is measured.
	Peers []string `json:"peers,omitempty"`
}

// Guard names nft tables and iptables chains whose filter rules are copied into tables and chains of Theseus' own.
type Guard struct {
	// Tables are family and name, as in "ip calico"; one that is not there is left out.
	Tables []string `json:"tables"`
	// Chains are chains of iptables' filter tables, such as "cali-*": both families, both backends.
	Chains []string `json:"chains,omitempty"`
	// Sets are the ipsets that those match on, such as "cali*".
	Sets []string `json:"sets,omitempty"`
	// Without leaves out rules whose comment contains one of these.
	Without []string `json:"without,omitempty"`
	// For is how long the copy denies. The kernel itself ends it, so nobody has to be alive for that.
	For Duration `json:"for"`
}

// ConfArgs names files in /etc/cni/net.d.
type ConfArgs struct {
	// Staged is a name that no runtime reads, such as "10-calico.conflist.theseus", or a file in a folder, which none reads either.
	Staged string `json:"staged"`
	// Active is the name under which it serves; it must sort before the other network's.
	Active string `json:"active"`
}

// JoinArgs names the two networks of a joint phase.
type JoinArgs struct {
	Old []string `json:"old"` // pod CIDRs of the source
	New []string `json:"new"` // pod CIDRs of the target
	// Keep are interfaces of the source, as patterns: somebody who takes their routes within Old is not let have them.
	Keep []string `json:"keep,omitempty"`
	// Untracked is the port of tunnels that no connection may be masqueraded with; nil for none.
	Untracked *Untracked `json:"untracked,omitempty"`
}

// Untracked is a UDP port of a network's tunnels, whose interface is Link, that its agent exempts from connection tracking.
type Untracked struct {
	Port int    `json:"port"`
	Link string `json:"link"`
	// From are ranges of pods that the agent masquerades when they send to anything but Except. Both are empty where it does not,
	// or does it in another way than to the address of the interface.
	From   []string `json:"from,omitempty"`
	Except []string `json:"except,omitempty"`
}

// The data planes of an agent that can keep its rules in either.
const (
	IPTables = "iptables"
	NFTables = "nftables"
)

// Dataplane says which rules are an agent's in either of two data planes, and in which they are to be.
type Dataplane struct {
	// Want is IPTables or NFTables; empty watches for as long as For says, and demands nothing.
	Want string `json:"want,omitempty"`
	// Tables, Chains and Sets are the agent's, as in Guard.
	Tables []string `json:"tables"`
	Chains []string `json:"chains"`
	Sets   []string `json:"sets,omitempty"`
	// Links are the interfaces of pods, such as "cali*"; PerLink the beginnings of the chains that each of them has, such
	// as "cali-tw-", with or without something before them.
	Links   []string `json:"links"`
	PerLink []string `json:"perLink"`
	// Passed and Refused demand that, while it is watched, packets were let through and were dropped by those chains.
	Passed  bool `json:"passed,omitempty"`
	Refused bool `json:"refused,omitempty"`
	// For is how long all that may take to become so.
	For Duration `json:"for,omitempty"`
}

// Attestation is what the kernel of a node shows of an agent's rules.
type Attestation struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"`
	// Kernel is IPTables, NFTables, "both" or "none".
	Kernel string `json:"kernel"`
	// Tables are the agent's nft tables; Chains and Sets count what it has in iptables and ipset.
	Tables []string `json:"tables,omitempty"`
	Chains int      `json:"chains"`
	Sets   int      `json:"sets"`
	// Pods counts interfaces of pods; Bare are those for which a chain is missing.
	Pods int      `json:"pods"`
	Bare []string `json:"bare,omitempty"`
	// Passed and Refused are packets that the chains of pods let through, and dropped, while they were watched.
	Passed  int64 `json:"passed"`
	Refused int64 `json:"refused"`
}
