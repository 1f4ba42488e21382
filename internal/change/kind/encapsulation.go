package kind

import (
	"fmt"

	"github.com/theseus-cni/theseus/internal/network/cni"
)

// Encapsulation says how packets between nodes go before and after.
type Encapsulation struct {
	// Pool is the IPPool that says so, and Ranges those of its pods.
	Pool   string   `json:"pool"`
	Ranges []string `json:"ranges"`
	// From and To are what --encapsulation takes.
	From string `json:"from"`
	To   string `json:"to"`
	// Reserves is the IPReservation that keeps the addresses of tunnels from pods, where the tunnels end.
	Reserves string `json:"reserves,omitempty"`
}

// String names it.
func (e *Encapsulation) String() string { return fmt.Sprintf("%s to %s", e.From, e.To) }

// Words say what is in --encapsulation before and after.
func (e *Encapsulation) Words(string) (from, to string) {
	return "encapsulation " + e.From, "encapsulation " + e.To
}

// Ends add that to the networks.
func (e *Encapsulation) Ends(source, target cni.Installation) (from, to string) {
	return ends(e, "in", source, target)
}

// Setting is empty.
func (e *Encapsulation) Setting() string { return "" }

// InPlace is true: pods stay.
func (e *Encapsulation) InPlace() bool { return true }

// Exempts is false: no agent makes its rules again.
func (e *Encapsulation) Exempts() bool { return false }
