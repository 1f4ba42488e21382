package kind

// Pools says from which IPPool pods go to which.
type Pools struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Stays is true where From keeps the addresses of the nodes' tunnels.
	Stays bool `json:"stays,omitempty"`
}

// Words say the two ranges' objects.
func (p *Pools) Words(string) (from, to string) { return "IPPool " + p.From, "IPPool " + p.To }

// InPlace is false: pods are created again.
func (p *Pools) InPlace() bool { return false }

// Spares is true.
func (p *Pools) Spares() bool { return true }
