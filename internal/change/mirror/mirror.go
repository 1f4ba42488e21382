// Package mirror plans the change of a cluster that carries no traffic meanwhile: Theseus freezes deploys, copies
// objects until nothing differs, moves the names to the mirror in waves, changes the original, moves the names back,
// and removes the copies. The package is data: the single commands do the work.
package mirror

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/change/mirror/setup"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/step"
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
	// Roll takes a Switch: nodes of the original that stay sick after its change are replaced once more.
	Roll = "roll"
	// AddNames takes a CertificateArgs: certificates get the mirror's names, and are issued. TakeNames takes it too:
	// the names go again.
	AddNames  = "add-names"
	TakeNames = "take-names"
	// Cloud takes a CloudArgs: one change of what the mirror may do in the cloud.
	Cloud = "cloud"
	// Teardown takes a TeardownArgs: it removes the copies from the mirror.
	Teardown = "teardown"
)

// The data of a plan of this kind: package setup says what each is.
type (
	Setup           = setup.Setup
	Access          = setup.Access
	FreezeArgs      = setup.FreezeArgs
	Selection       = setup.Selection
	ReadyArgs       = setup.ReadyArgs
	HandshakeArgs   = setup.HandshakeArgs
	CertificateArgs = setup.CertificateArgs
	CloudSetup      = setup.CloudSetup
	CloudArgs       = setup.CloudArgs
	Switch          = setup.Switch
	Config          = setup.Config
	TeardownArgs    = setup.TeardownArgs
	HoldArgs        = setup.HoldArgs
)

// Serves is the default of how long a mirror serves: certificates that end or renew meanwhile are noted.
const Serves = 30 * 24 * time.Hour

// ConfigVariable is the variable of the command's environment that names the file of a Config, and NodeVariable that
// which names the node to roll.
const (
	ConfigVariable = "THESEUS_CONFIG"
	NodeVariable   = "THESEUS_NODE"
)

// Times for work of unknown length.
const (
	copyWithin    = 2 * time.Hour
	readyWithin   = 15 * time.Minute
	commandWithin = 24 * time.Hour
)

// Steps are the whole way, in order. Until the original is changed everything can be taken back; a step of the way
// home that fails is taken back alone, so that its names stay at the mirror, which serves. Where the original is
// changed by a strategy, within are its steps, and the one of them from which there is no way back is that of the
// whole.
func Steps(s Setup, within []step.Step) []step.Step {
	steps := append(give(s), step.Step{ID: "freeze", Group: "freeze",
		Title: "stop deploys to " + strings.Join(s.Freeze.Namespaces, ", "), Estimate: step.Duration(5 * time.Second),
		Why: "a deploy between the copy and the cutover would be missing from the mirror", Actions: []step.Action{
			action("freeze/on", Freeze, "freeze "+strings.Join(s.Freeze.Namespaces, ", ")+
				", and check that the API server denies writes", s.Freeze, 0)}},
		copyStep(s))
	if s.Handshakes != nil {
		steps = append(steps, step.Step{ID: "certificates", Group: "certificates",
			Title: "check the certificates that the mirror serves", Estimate: step.Duration(5 * time.Second),
			Why: "a name may only move to an address that serves its certificate", Actions: []step.Action{
				action("certificates/prove", Handshakes, "open a TLS connection to every address of the mirror, for "+
					"every name", s.Handshakes, readyWithin)}})
	}
	steps = append(steps, names(over, s.Names, "restore")...)
	steps = append(append(steps, within...), changeStep(s))
	steps = append(steps, step.Step{ID: "whole", Group: "whole", Title: "check that the original is complete",
		Estimate: step.Duration(time.Minute),
		Why:      "a name only moves back to a service whose pods are all ready", Actions: []step.Action{
			action("whole/ready", Ready, "wait until all pods of every workload of the original are ready",
				ReadyArgs{Original: true, Namespaces: s.Copy.Namespaces}, readyWithin)}})
	back := names(home, s.Names.Back(), "lower")
	for i := range back {
		back[i].Alone = true
	}
	steps = append(steps, back...)
	steps = append(steps, step.Step{ID: "thaw", Group: "thaw", Title: "allow deploys again",
		Why: "the original serves every name again", Estimate: step.Duration(5 * time.Second),
		Actions: []step.Action{action("thaw/off", Thaw, "thaw "+strings.Join(s.Freeze.Namespaces, ", ")+
			", and check that the API server accepts writes", struct{}{}, 0)}})
	if s.Keep {
		return steps
	}
	steps = append(steps, step.Step{ID: "teardown", Group: "teardown",
		Title: "delete the copied objects from the mirror", Estimate: step.Duration(30 * time.Second),
		Why: "the mirror receives no requests any more, and load balancers cost money", Actions: []step.Action{
			action("teardown/delete", Teardown, "delete the copied objects, and wait until they are gone",
				TeardownArgs{Of: s.Original, Namespaces: s.Copy.Namespaces}, readyWithin)}})
	return append(steps, take(s)...)
}

// Within says where in a plan the steps of the strategy are that changes the original: from first to before last, after
// all that move names there and before the one that sees what became of it.
func Within(steps []step.Step) (first, last int) {
	for i := range steps {
		if steps[i].Group == over {
			first = i + 1
		}
	}
	if last = slices.IndexFunc(steps, func(s step.Step) bool { return s.ID == changeID }); first == 0 || last < first {
		return 0, 0
	}
	return first, last
}

// give is what the mirror must have before it is copied to: rights in the cloud, and certificates for its names. It
// comes before the freeze, which would stop it.
func give(s Setup) []step.Step {
	var steps []step.Step
	if s.Cloud != nil {
		one := step.Step{ID: "cloud", Group: "cloud", Title: "grant the mirror the cloud permissions of the original",
			Estimate: step.Duration(len(s.Cloud.Actions)) * step.Duration(time.Second), Why: "its nodes and pods " +
				"have their own roles and security groups, which no other resource refers to yet"}
		for i, a := range s.Cloud.Actions {
			one.Actions = append(one.Actions,
				action(cloudID(i), Cloud, a.String(), CloudArgs{Endpoint: s.Cloud.Endpoint, Action: a}, 0))
		}
		steps = append(steps, one)
	}
	if s.Certificates != nil {
		steps = append(steps, step.Step{ID: "names", Group: "names",
			Title: "add the mirror's names to the certificates", Estimate: step.Duration(2 * time.Minute),
			Why: "certificates are issued in the cluster that the names point to, and copied with their keys",
			Actions: []step.Action{
				action("names/add", AddNames, "add the names under "+domains(s)+
					" to certificates, and wait until they are issued", s.Certificates, readyWithin)}})
	}
	return steps
}

// take is give backwards, when the mirror no longer exists.
func take(s Setup) []step.Step {
	var steps []step.Step
	if s.Certificates != nil {
		steps = append(steps, step.Step{ID: "unname", Group: "unname",
			Title: "remove the mirror's names from the certificates", Estimate: step.Duration(5 * time.Second),
			Why: "the mirror serves no names any more", Actions: []step.Action{
				action("unname/take", TakeNames, "restore the former names of every certificate",
					s.Certificates, readyWithin)}})
	}
	if s.Cloud != nil {
		one := step.Step{ID: "uncloud", Group: "uncloud", Title: "revoke the cloud permissions of the mirror",
			Estimate: step.Duration(len(s.Cloud.Actions)) * step.Duration(time.Second),
			Why:      "unused permissions are a risk"}
		for i, a := range slices.Backward(s.Cloud.Actions) {
			one.Actions = append(one.Actions, action(fmt.Sprintf("uncloud/%d", i+1), Cloud, "undo: "+a.String(),
				CloudArgs{Endpoint: s.Cloud.Endpoint, Action: a, Back: true, Of: cloudID(i)}, 0))
		}
		steps = append(steps, one)
	}
	return steps
}

func cloudID(i int) string { return fmt.Sprintf("cloud/%d", i+1) }

// domains are those of the mirror.
func domains(s Setup) string {
	var all []string
	for _, rule := range s.Certificates.Domains {
		_, domain, _ := strings.Cut(rule, "=")
		all = append(all, domain)
	}
	return strings.Join(all, ", ")
}

func copyStep(s Setup) step.Step {
	return step.Step{ID: "copy", Group: "copy", Title: "synchronise the mirror",
		Estimate: step.Duration(30 * time.Second),
		Why:      "before a name moves, the mirror has every service, with the same configuration and all of its pods",
		Actions: []step.Action{
			action("copy/write", Copy, "copy "+strings.Join(s.Copy.Namespaces, ", ")+" until nothing differs",
				s.Copy, copyWithin),
			action("copy/ready", Ready, "wait until all pods of every workload of the mirror are ready",
				ReadyArgs{Namespaces: s.Copy.Namespaces}, readyWithin),
			action("copy/again", Copy, "check that nothing differs", s.Copy, copyWithin),
		}}
}

// The groups of the steps that move names: there, and back.
const (
	over = "over"
	home = "home"
)

// changeID is the step that changes the original, or sees that it was changed.
const changeID = "change"

func changeStep(s Setup) step.Step {
	title := "wait while you change the original, or its workloads"
	if s.Switch.Command != "" {
		title = "change the original: " + s.Switch.Command
	}
	gate := HoldArgs{Hold: &s.Switch}
	for _, m := range s.Names.Moves {
		gate.Probes = append(gate.Probes, m.Probes...)
	}
	what := "the original is in its intended state"
	if s.Switch.To != "" {
		what = "the original is on " + s.Switch.To + " without problems, and its nodes are Ready"
	}
	one := step.Step{ID: changeID, Group: changeID, Title: "change the idle original", NoReturn: true,
		Estimate: step.Duration(30 * time.Minute),
		Why: "every name points to the mirror, and all caches of the former addresses have expired: the original " +
			"carries no traffic", Actions: []step.Action{
			action("change/run", Change, title, s.Switch, commandWithin),
		},
		Gate: &step.Gate{Title: what + "; until then, probes check the services at the mirror",
			Bake: s.Names.Options.Bake, MaxLost: s.Names.Options.MaxFailed, Args: encode(gate)}}
	if s.Switch.Roll != "" {
		one.Actions = append(one.Actions,
			action("change/roll", Roll, fmt.Sprintf("once, replace nodes that are not Ready after %s: %s",
				time.Duration(s.Switch.RollAfter), s.Switch.Roll), s.Switch, commandWithin))
	}
	if s.Switch.Strategy != "" {
		one.Title, one.Why = "check the changed original", "a name only moves back to a cluster in its intended state"
		one.Actions, one.NoReturn, one.Estimate = nil, false, s.Names.Options.Bake
	}
	return one
}

// names are the steps of a plan of moves, below a prefix; without is left out, so that TTLs stay low from the move
// there until the names are home.
func names(prefix string, p *shift.Plan, without string) []step.Step {
	var steps []step.Step
	for _, s := range p.Steps() {
		if s.ID == without {
			continue
		}
		s.ID, s.Group = prefix+"/"+s.ID, prefix
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
	return step.Action{ID: id, Do: step.Mirror{Verb: verb, Args: encode(args)}, Title: title,
		Timeout: step.Duration(timeout)}
}

func encode(args any) json.RawMessage {
	data, err := json.Marshal(args)
	if err != nil {
		panic(fmt.Sprintf("plain data: %v", err))
	}
	return data
}
