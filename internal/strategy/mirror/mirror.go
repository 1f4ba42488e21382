// Package mirror plans the change of a cluster that carries no traffic meanwhile: deploys are frozen, the mirror is
// brought in step, the names go there in waves, the original is changed, the names come home, and what was copied is
// taken down. It is data: the hands are those of the single commands.
package mirror

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
	"github.com/theseus-cni/theseus/internal/zone/shift"
)

// Name is the strategy's.
const Name = "mirror"

// The verbs of the operation step.Mirror, and what their Args are.
const (
	// Freeze takes a FreezeArgs, and Thaw none: no deploy slips between copy and cutover.
	Freeze = "freeze"
	Thaw   = "thaw"
	// Copy takes a Selection: it looks and writes until nothing differs.
	Copy = "copy"
	// Ready takes a ReadyArgs: waits until all workloads have the pods that they ask for.
	Ready = "ready"
	// Handshakes takes a HandshakeArgs: proves what the mirror serves over TLS for every name.
	Handshakes = "handshakes"
	// Change takes a Switch: hands the original over to be changed, or runs the command that does it.
	Change = "change"
	// Teardown takes a TeardownArgs: what was copied goes from the mirror.
	Teardown = "teardown"
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
	Switch     Switch         `json:"switch"`
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
	// Home asks the original, else the mirror.
	Home       bool     `json:"home,omitempty"`
	Namespaces []string `json:"namespaces"`
}

// HandshakeArgs are those of Handshakes.
type HandshakeArgs struct {
	// ValidFor is how long certificates must be valid from then on.
	ValidFor step.Duration `json:"validFor"`
}

// Switch says how the original is changed, and by what it is told that it was. One of the two is given at least.
type Switch struct {
	// Command is run by a shell; run twice it must do the same. Without one a person changes the original.
	Command string `json:"command,omitempty"`
	// To is the network that must be found on the original, alone and in order.
	To string `json:"to,omitempty"`
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

// Times for work whose length nobody knows.
const (
	copyWithin    = 2 * time.Hour
	readyWithin   = 15 * time.Minute
	commandWithin = 24 * time.Hour
)

// Steps are the whole way, in order. Until the original is changed everything can be taken back; a step of the way
// home that fails is taken back alone, so that its names stay at the mirror, which serves.
func Steps(s Setup) []step.Step {
	steps := []step.Step{
		{ID: "freeze", Title: "stop deploys to " + strings.Join(s.Freeze.Namespaces, ", "), Estimate: step.Duration(5 * time.Second),
			Why: "no deploy may slip between the copy and the cutover", Actions: []step.Action{
				action("freeze/on", Freeze, "freeze "+strings.Join(s.Freeze.Namespaces, ", ")+", and prove it by writes that are denied", s.Freeze, 0)}},
		s.copyStep(),
	}
	if s.Handshakes != nil {
		steps = append(steps, step.Step{ID: "certificates", Title: "prove what the mirror serves over TLS", Estimate: step.Duration(5 * time.Second),
			Why: "a name must not come to an address that shows another certificate", Actions: []step.Action{
				action("certificates/prove", Handshakes, "ask every address of the mirror for every name, by a handshake", s.Handshakes, readyWithin)}})
	}
	steps = append(steps, names("over", s.Names, "restore")...)
	steps = append(steps, s.changeStep())
	steps = append(steps, step.Step{ID: "whole", Title: "see that the original is whole", Estimate: step.Duration(time.Minute),
		Why: "a name comes home only to a service that has all of its pods", Actions: []step.Action{
			action("whole/ready", Ready, "wait until every workload of the original has its pods", ReadyArgs{Home: true, Namespaces: s.Copy.Namespaces}, readyWithin)}})
	home := names("home", s.Names.Back(), "lower")
	for i := range home {
		home[i].Alone = true
	}
	steps = append(steps, home...)
	steps = append(steps, step.Step{ID: "thaw", Title: "let deploys go on", Why: "the original serves every name again", Estimate: step.Duration(5 * time.Second),
		Actions: []step.Action{action("thaw/off", Thaw, "thaw "+strings.Join(s.Freeze.Namespaces, ", ")+", and prove it by writes that pass", struct{}{}, 0)}})
	if !s.Keep {
		steps = append(steps, step.Step{ID: "teardown", Title: "take down what was copied to the mirror", Estimate: step.Duration(30 * time.Second),
			Why: "nothing asks there any more, and load balancers cost money", Actions: []step.Action{
				action("teardown/delete", Teardown, "delete what was copied, and wait until it is gone", TeardownArgs{s.Original, s.Copy.Namespaces}, readyWithin)}})
	}
	return steps
}

func (s Setup) copyStep() step.Step {
	return step.Step{ID: "copy", Title: "bring the mirror in step", Estimate: step.Duration(30 * time.Second),
		Why: "every service has its twin, with the same configuration and all of its pods, before a name moves", Actions: []step.Action{
			action("copy/write", Copy, "copy "+strings.Join(s.Copy.Namespaces, ", ")+" until nothing differs", s.Copy, copyWithin),
			action("copy/ready", Ready, "wait until every workload of the mirror has its pods", ReadyArgs{Namespaces: s.Copy.Namespaces}, readyWithin),
			action("copy/again", Copy, "see that still nothing differs", s.Copy, copyWithin),
		}}
}

func (s Setup) changeStep() step.Step {
	title := "hand the original over: a person changes it, or what runs on it, now"
	if s.Switch.Command != "" {
		title = "change the original: " + s.Switch.Command
	}
	gate := HoldArgs{Hold: &s.Switch}
	for _, m := range s.Names.Moves {
		gate.Probes = append(gate.Probes, m.Probes...)
	}
	what := "the original is as it was meant to be"
	if s.Switch.To != "" {
		what = "the original is on " + s.Switch.To + ", in order, and its nodes are Ready"
	}
	return step.Step{ID: "change", Title: "change the idle original", NoReturn: true, Estimate: step.Duration(30 * time.Minute),
		Why: "every name is at the mirror, and no cache remembers the original: nobody notices", Actions: []step.Action{
			action("change/run", Change, title, s.Switch, commandWithin),
		},
		Gate: &step.Gate{Title: what + "; until then the services are asked at the mirror", Bake: s.Names.Options.Bake, MaxLost: s.Names.Options.MaxFailed, Args: encode(gate)}}
}

// names are the steps of a plan of moves, below a prefix; without is left out, so that TTLs stay low from the move
// there until the names are home.
func names(prefix string, p *shift.Plan, without string) []step.Step {
	var steps []step.Step
	for _, s := range p.Steps() {
		if s.ID == without {
			continue
		}
		s.ID = prefix + "/" + s.ID
		if s.Wave != "" {
			s.Wave = prefix + "/" + s.Wave
		}
		for i := range s.Actions {
			s.Actions[i].ID = prefix + "/" + s.Actions[i].ID
		}
		steps = append(steps, s)
	}
	return steps
}

func action(id, verb, title string, args any, timeout time.Duration) step.Action {
	return step.Action{ID: id, Op: step.Mirror, Verb: verb, Title: title, Args: encode(args), Timeout: step.Duration(timeout)}
}

func encode(args any) json.RawMessage {
	data, err := json.Marshal(args)
	if err != nil {
		panic(fmt.Sprintf("plain data: %v", err))
	}
	return data
}
