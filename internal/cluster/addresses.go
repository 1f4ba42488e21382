package cluster

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Addresses are those of a range of a network that pods can get, and how many of them are in use.
type Addresses struct {
	Network string `json:"network"`
	// Range is a prefix. Node is whose range it is; empty if all nodes share it.
	Range string `json:"range"`
	Node  string `json:"node,omitempty"`
	// Usable is how many pods can get, and Used how many are in use. Records is true if the network's own records say
	// so, which have stale entries, too; if not, pods with such an address were counted.
	Usable  int64 `json:"usable"`
	Used    int64 `json:"used"`
	Records bool  `json:"records"`
}

// Left is how many are free.
func (a Addresses) Left() int64 { return max(0, a.Usable-a.Used) }

// mostAddresses is how many ranges a table has.
const mostAddresses = 20

// WriteAddresses writes a table of ranges for people, as they are ordered.
func WriteAddresses(w io.Writer, all []Addresses) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "ADDRESSES OF\tRANGE\tUSABLE\tIN USE\tLEFT\tCOUNTED BY")
	for _, a := range all[:min(len(all), mostAddresses)] {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%s\n", a.Of(), a.Range, a.Usable, a.Used, a.Left(), a.by())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if more := len(all) - mostAddresses; more > 0 {
		fmt.Fprintf(w, "%s with a smaller share in use are not shown\n", Count(more, "range"))
	}
	return nil
}

// Of names the network, and the node if the range is a node's.
func (a Addresses) Of() string {
	if a.Node == "" {
		return a.Network
	}
	return a.Network + " on " + a.Node
}

func (a Addresses) by() string {
	if a.Records {
		return "its IPAM"
	}
	return "pods"
}
