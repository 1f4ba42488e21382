package step

// The verbs that keep policy in force while the rules of its owner are replaced.
const (
	// VerbGuard takes a Guard: what nft tables deny stays denied while their owner replaces them.
	VerbGuard = "guard"
	// VerbRelease takes a Guard and takes VerbGuard back.
	VerbRelease = "release"
)

var guarding = []Verb{
	takes(Guard.allowed, Verb{Name: VerbGuard}),
	takes(Guard.allowed, Verb{Name: VerbRelease}),
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
	// For is how long the copy denies. The kernel itself ends it, also if the agent has died.
	For Duration `json:"for"`
}

func (g Guard) allowed() error {
	return Residue{NFTables: g.Tables, Chains: g.Chains, IPSets: g.Sets}.named()
}
