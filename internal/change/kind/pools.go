package kind

import "github.com/theseus-cni/theseus/internal/network/cni"

// Pools says from which IPPool pods go to which.
type Pools struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Stays is true where From keeps the addresses of the nodes' tunnels.
	Stays bool `json:"stays,omitempty"`
}

// Words say the two ranges' objects.
func (p *Pools) Words(string) (from, to string) { return "IPPool " + p.From, "IPPool " + p.To }

// Ends add that to the networks.
func (p *Pools) Ends(source, target cni.Installation) (from, to string) {
	return ends(p, "in", source, target)
}

// Setting is empty.
func (p *Pools) Setting() string { return "" }

// InPlace is false: pods are created again.
func (p *Pools) InPlace() bool { return false }

// Exempts is true.
func (p *Pools) Exempts() bool { return true }
