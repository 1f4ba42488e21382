// Package setup is the data of a plan that moves names to a second cluster meanwhile: what it is made of, and the
// arguments of its actions. How it is made and carried out belongs in the package above.
package setup

import (
	"cmp"

	"github.com/theseus-cni/theseus/internal/mirror/cloud"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Setup is what a plan is made of: complete, so that it makes the same steps wherever it is read.
type Setup struct {
	// Original and Mirror identify the clusters, by the uid of their namespace kube-system.
	Original string `json:"original"`
	Mirror   string `json:"mirror"`
	// Access is how the mirror and the zones were reached when the plan was made; other ways can be named later.
	Access Access     `json:"access"`
	Freeze FreezeArgs `json:"freeze"`
	Copy   Selection  `json:"copy"`
	// Names are the moves there; those home follow from them.
	Names *shift.Plan `json:"names"`
	// Handshakes is nil where certificates are not proven.
	Handshakes *HandshakeArgs `json:"handshakes,omitempty"`
	// Certificates is nil where none gets the mirror's names, and Cloud where nothing is changed there.
	Certificates *CertificateArgs `json:"certificates,omitempty"`
	Cloud        *CloudSetup      `json:"cloud,omitempty"`
	Switch       Switch           `json:"switch"`
	// Keep leaves what was copied on the mirror.
	Keep bool `json:"keep,omitempty"`
}

// Access names files of the machine.
type Access struct {
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Context    string `json:"context,omitempty"`
	Zones      string `json:"zones,omitempty"`
}

// FreezeArgs are those of Freeze.
type FreezeArgs struct {
	Namespaces []string `json:"namespaces"`
	Reason     string   `json:"reason"`
	Allowed    []string `json:"allowed,omitempty"`
}

// Selection says what is copied, and what a person decided about it, in the words of the flags of mirror copy.
type Selection struct {
	Namespaces   []string `json:"namespaces"`
	Decide       []string `json:"decide,omitempty"`
	EmptyVolumes []string `json:"emptyVolumes,omitempty"`
	Registries   []string `json:"registries,omitempty"`
	ImageFields  []string `json:"imageFields,omitempty"`
	Unproven     []string `json:"unproven,omitempty"`
	Adopt        bool     `json:"adopt,omitempty"`
	Workers      int      `json:"workers,omitempty"`
}

// ReadyArgs are those of Ready.
type ReadyArgs struct {
	// Original asks the original, else the mirror.
	Original   bool     `json:"home,omitempty"`
	Namespaces []string `json:"namespaces"`
}

// HandshakeArgs are those of Handshakes.
type HandshakeArgs struct {
	// ValidFor is how long certificates must be valid from then on.
	ValidFor step.Duration `json:"validFor"`
}

// CertificateArgs are those of AddNames and TakeNames, in the words of the flags of mirror certs.
type CertificateArgs struct {
	Namespaces []string `json:"namespaces"`
	Domains    []string `json:"domains"`
	Skip       []string `json:"skip,omitempty"`
	HTTP01     bool     `json:"http01,omitempty"`
}

// CloudSetup is what the mirror is given in the cloud, and by which API.
type CloudSetup struct {
	Endpoint string         `json:"endpoint"`
	Actions  []cloud.Action `json:"actions"`
}

// CloudArgs are those of Cloud.
type CloudArgs struct {
	Endpoint string       `json:"endpoint"`
	Action   cloud.Action `json:"action"`
	Back     bool         `json:"back,omitempty"`
	// Of is the id of the action that this one takes back: only if it was the migration's own doing.
	Of string `json:"of,omitempty"`
}

// Switch says how the original is changed, and by what it is told that it was. Strategy or one of the other two is
// given.
type Switch struct {
	// Command is run by a shell; run twice it must do the same. Without one, and without Strategy, a person changes the
	// original.
	Command string `json:"command,omitempty"`
	// Roll is run by a shell for each node that is not Ready RollAfter after Command has ended, once, with its name in
	// NodeVariable; empty for none.
	Roll      string        `json:"roll,omitempty"`
	RollAfter step.Duration `json:"rollAfter,omitempty"`
	// To is the network that must be found on the original, alone and in order.
	To string `json:"to,omitempty"`
	// Strategy is the one by which the original is changed, by steps of this plan.
	Strategy string `json:"strategy,omitempty"`
	// Config is the original's configuration with the network to come, which the command finds in the file
	// ConfigVariable names; nil for none.
	Config *Config `json:"config,omitempty"`
}

// Config is a configuration as it was made of another.
type Config struct {
	Text string `json:"text"`
	// Changes say what differs from the one that it was made of.
	Changes []string `json:"changes"`
}

// TeardownArgs are those of Teardown.
type TeardownArgs struct {
	// Of is the identity of the original, whose copies go.
	Of         string   `json:"of"`
	Namespaces []string `json:"namespaces"`
}

// HoldArgs are the Args of the gate that watches the services while the original is changed.
type HoldArgs struct {
	shift.GateArgs
	Hold *Switch `json:"hold,omitempty"`
}

// Words say the network that comes to the original, or the way there and back.
func (s *Setup) Words(network string) (from, to string) {
	from = network
	if s.Switch.To == "" {
		from = "the original"
	}
	return from, cmp.Or(s.Switch.To, "the mirror and back")
}

// Ends are these words: the original's versions are not what changes.
func (s *Setup) Ends(source, _ cni.Installation) (from, to string) { return s.Words(source.CNI) }

// Setting is empty.
func (s *Setup) Setting() string { return "" }

// InPlace is false: what becomes of pods, the change of the original says.
func (s *Setup) InPlace() bool { return false }

// Exempts is false: no step of its own touches a node.
func (s *Setup) Exempts() bool { return false }
