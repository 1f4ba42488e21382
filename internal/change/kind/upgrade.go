package kind

import (
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Upgrade says from which version the network in place goes to which.
type Upgrade struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Reflecting are the nodes that reflect BGP's routes, of which no two restart in one step.
	Reflecting []string `json:"reflecting,omitempty"`
	// Owner is set where another program makes the agents' DaemonSet what it is.
	Owner *Owner `json:"owner,omitempty"`
	// Leading is set if Deployments change before the first agent in both directions.
	Leading bool `json:"leading,omitempty"`
}

// Owner is that program's Deployment, and the versions of its own between which it goes.
type Owner struct {
	Ref  step.Ref `json:"ref"`
	From string   `json:"from"`
	To   string   `json:"to"`
}

// Words say the versions.
func (u *Upgrade) Words(string) (from, to string) { return u.From, u.To }

// Ends are the networks, which have their versions.
func (u *Upgrade) Ends(source, target cni.Installation) (from, to string) {
	return source.Versioned(), target.Versioned()
}

// Setting is empty.
func (u *Upgrade) Setting() string { return "" }

// InPlace is true: agents start again, and pods stay.
func (u *Upgrade) InPlace() bool { return true }

// Exempts is true.
func (u *Upgrade) Exempts() bool { return true }
