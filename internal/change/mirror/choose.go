package mirror

import (
	"strings"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/step"
)

// Propose plans the change of a cluster whose services are served by a mirror meanwhile, or returns a *kind.Refusal.
// within is the plan by which the original is changed, where the setup names its strategy; else nil.
func Propose(r *kind.Request, setup Setup, within *kind.Plan) (*kind.Draft, error) {
	snapshot, change, drivers := r.Snapshot, r.Change, r.Drivers
	if err := setup.Names.Check(); err != nil {
		return nil, err
	}
	p := kind.Begin(snapshot, change, r.Options, Name, "the original is only changed while it carries no traffic")
	p.Mirror = &setup
	if found := drivers.Detect(snapshot); len(found) > 0 {
		p.Source = *found[0]
	}
	var steps []step.Step
	if within != nil {
		p.Change, p.Source, p.Target, p.Waves, p.Workloads, p.Findings = within.Change, within.Source, within.Target,
			within.Waves, within.Workloads, within.Findings
		p.Surge, p.Parallel, steps = within.Surge, within.Parallel, within.Steps
	}
	p.Steps = Steps(setup, steps)
	_, known := drivers.Get(setup.Switch.To)
	switch {
	case setup.Original == setup.Mirror:
		return nil, kind.Refuse("name the other one with --mirror-context or --mirror-kubeconfig",
			"the original and the mirror are one cluster")
	case setup.Switch.Strategy != "" && (setup.Switch.Command != "" || setup.Switch.To == ""):
		return nil, kind.Refuse("give --switch-strategy with --to, or --switch-command",
			"the original is changed by a strategy to a network, or by a command")
	case setup.Switch.Roll != "" && (setup.Switch.Command == "" || setup.Switch.RollAfter <= 0):
		return nil, kind.Refuse("give it together with --switch-command and a --roll-after above 0",
			"--roll-command replaces the nodes that are not Ready after --switch-command")
	case setup.Switch.Strategy != surge.Name && surge.Hooked(change):
		return nil, kind.Refuse("add --switch-strategy surge, or leave them out", surge.HooksAre, surge.Name)
	case setup.Switch.To == "" && setup.Switch.Command == "":
		return nil, kind.Refuse("give the new network with --to, the command that changes the original with "+
			"--switch-command, or both",
			"the plan cannot tell when the original is changed: neither --to nor --switch-command is given")
	case setup.Switch.To != "" && !known:
		return nil, kind.Refuse("leave --to out, and give a --switch-command that fails unless the original "+
			"works", "the network %q is not known", setup.Switch.To)
	case setup.Switch.To != "" && setup.Switch.To == p.Source.CNI:
		return nil, kind.Refuse("leave --to out, and give a --switch-command that fails unless the original "+
			"works", "the original is already on %s", p.Source.CNI)
	}
	return &kind.Draft{Plan: p, Stem: "mirror"}, nil
}

// where is the addresses of sets.
func where(sets []zone.RRSet) string {
	var all []string
	for _, set := range sets {
		switch {
		case !set.IsAddress():
		case set.Alias != nil:
			all = append(all, set.Alias.Name)
		default:
			all = append(all, set.Values...)
		}
	}
	return strings.Join(all, ", ")
}
