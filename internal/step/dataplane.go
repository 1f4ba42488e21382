package step

import "time"

// VerbDataplane takes a Dataplane, waits until it is so, and answers with an Attestation.
const VerbDataplane = "dataplane"

var watching = []Verb{takes(Dataplane.allowed, Verb{Name: VerbDataplane, Quiet: true})}

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
	// Links are the interfaces of pods, such as "cali*"; PerLink the beginnings of the chains that each of them has,
	// such as "cali-tw-", with or without something before them.
	Links   []string `json:"links"`
	PerLink []string `json:"perLink"`
	// Passed and Refused demand that, while it is watched, packets were let through and were dropped by those chains.
	Passed  bool `json:"passed,omitempty"`
	Refused bool `json:"refused,omitempty"`
	// For is how long all that may take to become so.
	For Duration `json:"for,omitempty"`
}

func (d Dataplane) allowed() error {
	return Residue{NFTables: d.Tables, Chains: d.Chains, IPSets: d.Sets}.named()
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
