package step

import (
	"fmt"
	"net/netip"
	"net/url"
)

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
	takes(FactsArgs.allowed, Verb{Name: VerbFacts, Quiet: true}),
	takes(Residue.allowed, Verb{Name: VerbInventory, Quiet: true}),
	takes(Residue.allowed, Verb{Name: VerbClean}),
}

// FactsArgs say what to measure besides.
type FactsArgs struct {
	// Peers are addresses of other nodes, to which the path MTU is measured.
	Peers []string `json:"peers,omitempty"`
	// Readings are what programs of the network serve on the node.
	Readings []Reading `json:"readings,omitempty"`
}

func (f FactsArgs) allowed() error {
	for _, reading := range f.Readings {
		if err := reading.Local(); err != nil {
			return err
		}
	}
	return nil
}

// Reading is where a program of a network serves numbers about itself on a node, and which of them are read.
type Reading struct {
	// URL is HTTP at a loopback address. JSON is true if the answer is a JSON document, and false if it is in
	// Prometheus' text format.
	URL  string `json:"url"`
	JSON bool   `json:"json,omitempty"`
	// Counters only grow, Gauges do not. Both map a name, such as "router.dropped", to where the number is: the names
	// of fields joined by dots, or a sample's name with its labels as it is written.
	Counters map[string]string `json:"counters,omitempty"`
	Gauges   map[string]string `json:"gauges,omitempty"`
	// Carried are the names of Counters that count what was done, such as packets that were forwarded: no losses. Only
	// who shows them needs it.
	Carried []string `json:"-"`
}

// Local refuses what an agent does not ask: anything but HTTP at a loopback address.
func (r Reading) Local() error {
	at, err := url.Parse(r.URL)
	if err == nil {
		var address netip.Addr
		if address, err = netip.ParseAddr(at.Hostname()); err == nil && at.Scheme == "http" && at.User == nil &&
			address.IsLoopback() {
			return nil
		}
	}
	return fmt.Errorf("%q is not an address of the node itself", r.URL)
}
