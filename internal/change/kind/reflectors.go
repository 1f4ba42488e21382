package kind

import (
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
)

// FullMesh asks for a full mesh of BGP sessions, with no reflectors.
const FullMesh = "none"

// Reflectors says which nodes reflect BGP's routes.
type Reflectors struct {
	// Selector picks them, in Calico's language; FullMesh stands for none.
	Selector string `json:"selector"`
	// Before and After are their names.
	Before []string `json:"before,omitempty"`
	After  []string `json:"after,omitempty"`
	// Ranges are those whose routes BIRD carries.
	Ranges []string `json:"ranges"`
}

// String names where it goes.
func (r *Reflectors) String() string { return reflecting(r.After) }

func reflecting(nodes []string) string {
	if len(nodes) == 0 {
		return "a full mesh"
	}
	return "reflectors on " + joint.List(nodes)
}

// Words say which nodes reflect.
func (r *Reflectors) Words(string) (from, to string) { return reflecting(r.Before), r.String() }

// Ends add that to the networks.
func (r *Reflectors) Ends(source, target cni.Installation) (from, to string) {
	return ends(r, "with", source, target)
}

// Setting is the selector.
func (r *Reflectors) Setting() string { return "reflectors=" + r.Selector }

// InPlace is true: pods stay, and so do the routes to them.
func (r *Reflectors) InPlace() bool { return true }

// Exempts is false: no agent makes its rules again.
func (r *Reflectors) Exempts() bool { return false }
