package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/safeio/canonical"
	"github.com/theseus-cni/theseus/internal/step"
)

// MakeMirror plans the change of a cluster whose services are served by a mirror meanwhile, or returns a *Refusal. within is
// the plan by which the original is changed, where the setup names its strategy; else nil.
func MakeMirror(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry, setup mirror.Setup, within *Plan, options Options) (*Plan, error) {
	if err := setup.Names.Check(); err != nil {
		return nil, err
	}
	p := begun(snapshot, change, options, mirror.Name, "nothing of the original is touched while it serves, and what is done to it nobody sees")
	p.Mirror = &setup
	if found := drivers.Detect(snapshot); len(found) > 0 {
		p.Source = *found[0]
	}
	var steps []step.Step
	if within != nil {
		p.Change, p.Source, p.Target, p.Waves, p.Workloads, p.Findings = within.Change, within.Source, within.Target, within.Waves, within.Workloads, within.Findings
		p.Surge, steps = within.Surge, within.Steps
	}
	p.Steps = mirror.Steps(setup, steps)
	_, known := drivers.Get(setup.Switch.To)
	switch {
	case setup.Original == setup.Mirror:
		return nil, refuse("name the other one with --mirror-context or --mirror-kubeconfig", "the original and the mirror are one cluster")
	case setup.Switch.Strategy != "" && (setup.Switch.Command != "" || setup.Switch.To == ""):
		return nil, refuse("give --switch-strategy with --to, or --switch-command", "the original is changed by a strategy to a network, or by a command")
	case setup.Switch.Roll != "" && (setup.Switch.Command == "" || setup.Switch.RollAfter <= 0):
		return nil, refuse("give it beside --switch-command, and a --roll-after above 0", "--roll-command replaces what a command left sick")
	case setup.Switch.Strategy != surge.Name && hooked(change):
		return nil, refuse("say --switch-strategy surge, or leave them out", hooksAre, surge.Name)
	case setup.Switch.To == "" && setup.Switch.Command == "":
		return nil, refuse("say --to with the network that is to come, --switch-command with what changes the original, or both",
			"nothing says when the original is changed")
	case setup.Switch.To != "" && !known:
		return nil, refuse("leave --to out, and give a --switch-command that fails unless the original is in order", "the network %q is not known", setup.Switch.To)
	case setup.Switch.To != "" && setup.Switch.To == p.Source.CNI:
		return nil, refuse("leave --to out, and give a --switch-command that fails unless the original is in order", "the original is on %s already", p.Source.CNI)
	}
	return p.sealed(snapshot, "mirror", nil)
}

// moved says of every name from where to where it goes.
func moved(b *strings.Builder, p *Plan) {
	b.WriteString("\nNames, there and back:\n")
	for _, m := range p.Mirror.Names.Moves {
		gone, come := m.Changes()
		fmt.Fprintf(b, "  %s (%s): %s -> %s\n", strings.TrimSuffix(m.Name, "."), strings.Join(m.Services, ", "), where(gone), where(come))
	}
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

// given says what the mirror is given before, and the command for the original.
func given(b *strings.Builder, p *Plan) {
	if config := p.Mirror.Switch.Config; config != nil {
		fmt.Fprintf(b, "\nThe original's configuration, in the file $%s for the command, with these changes:\n", mirror.ConfigVariable)
		for _, change := range config.Changes {
			fmt.Fprintf(b, "  %s\n", change)
		}
	}
}

// traffic carries a model of the two clusters and the zones through a plan.
type traffic struct {
	frozen, inStep, ready, whole bool
	there, home                  bool // no cache remembers the original; none the mirror
	noReturn, changed, thawed    bool
	now                          map[string][]zone.RRSet // by name, what its records are
	away                         map[string]bool         // names that are not wholly at the original
}

// verifyMirror proves that the steps are those that this version makes of the setup, and the rules on every prefix: no
// name moves before deploys are stopped and the mirror is in step with all of its pods; every transaction finds the
// records that the one before left; the original is changed only when every name is at the mirror and no cache
// remembers the original; deploys go on, and copies go, only when every name is home and no cache remembers the mirror; a
// step of the way home that fails leaves its names at the mirror; and at the end every record is what it was.
func verifyMirror(p *Plan) error {
	if err := p.Mirror.Names.Check(); err != nil {
		return err
	}
	if err := asMade(p); err != nil {
		return err
	}
	if err := mirrorRules(p); err != nil || !p.OnNodes() {
		return err
	}
	first, last := mirror.Within(p.Steps)
	own := *p
	own.Mirror, own.Strategy, own.Steps = nil, p.Mirror.Switch.Strategy, p.Steps[first:last]
	return Verify(&own)
}

func mirrorRules(p *Plan) error {
	if err := unique(p); err != nil {
		return err
	}
	t := &traffic{now: map[string][]zone.RRSet{}, away: map[string]bool{}}
	for _, m := range p.Mirror.Names.Moves {
		t.now[m.Name] = m.Before
	}
	first, last := mirror.Within(p.Steps)
	for i := range p.Steps {
		s := &p.Steps[i]
		t.noReturn = t.noReturn || s.NoReturn
		if i >= first && i < last {
			if err := t.idle(p); err != nil {
				return fmt.Errorf("step %s: %w", s.ID, err)
			}
			t.changed = true
			continue
		}
		if strings.HasPrefix(s.ID, "home/") && !s.Alone {
			return fmt.Errorf("step %s: its failure would leave names where nobody serves", s.ID)
		}
		for j := range s.Actions {
			if err := t.act(p, s, &s.Actions[j]); err != nil {
				return fmt.Errorf("step %s: action %s (%s): %w", s.ID, s.Actions[j].ID, s.Actions[j].Title, err)
			}
		}
	}
	for _, m := range p.Mirror.Names.Moves {
		if !slices.EqualFunc(zone.Sorted(slices.Clone(t.now[m.Name])), zone.Sorted(slices.Clone(m.Before)), zone.RRSet.Equal) {
			return fmt.Errorf("at the end %s is not what it was", m.Name)
		}
	}
	if !t.thawed || !t.changed {
		return errors.New("at the end deploys are stopped, or the original was not changed")
	}
	return nil
}

// asMade compares the steps with those of the setup. Those of the strategy that changes the original are held to its own rules.
func asMade(p *Plan) error {
	first, last := mirror.Within(p.Steps)
	if (first < last) != p.OnNodes() {
		return errors.New("its steps are not those that this version makes of its setup: they change the original's nodes, or nobody does")
	}
	own := slices.Concat(p.Steps[:first], p.Steps[last:])
	has, errHas := canonical.JSON(own)
	want, errWant := canonical.JSON(mirror.Steps(*p.Mirror, nil))
	if err := errors.Join(errHas, errWant); err != nil {
		return err
	}
	if !bytes.Equal(has, want) {
		return errors.New("its steps are not those that this version makes of its setup")
	}
	return nil
}

func (t *traffic) act(p *Plan, s *step.Step, a *step.Action) error {
	if a.Op == step.DNS {
		return t.zones(p, s, a)
	}
	if a.Op != step.Mirror {
		return fmt.Errorf("the operation %q has no place in it", a.Op)
	}
	switch a.Verb {
	case mirror.Freeze:
		t.frozen = true
	case mirror.Copy:
		if !t.frozen {
			return errors.New("a deploy could slip in after it")
		}
		t.inStep = true
	case mirror.Ready:
		t.ready, t.whole = t.ready || !t.changed, t.whole || t.changed
	case mirror.Handshakes:
	case mirror.Change, mirror.Roll:
		if err := t.idle(p); err != nil || !t.noReturn {
			return cmp.Or(err, errors.New("what it does cannot be taken back"))
		}
		t.changed = true
	case mirror.AddNames:
		if t.frozen {
			return errors.New("certificates could not be changed any more")
		}
	case mirror.Cloud:
		args, err := step.Arguments[mirror.CloudArgs](*a)
		if err != nil {
			return err
		}
		if args.Back && (len(t.away) > 0 || !t.home) {
			return errors.New("the mirror may still be asked")
		}
	case mirror.Thaw, mirror.Teardown, mirror.TakeNames:
		if len(t.away) > 0 || !t.home || !t.changed {
			return errors.New("the mirror may still be asked")
		}
		t.thawed = t.thawed || a.Verb == mirror.Thaw
	default:
		return fmt.Errorf("the verb %q is not known", a.Verb)
	}
	return nil
}

// idle demands that nobody asks the original for anything.
func (t *traffic) idle(p *Plan) error {
	for _, m := range p.Mirror.Names.Moves {
		if !t.there || where(t.now[m.Name]) != where(m.After) {
			return errors.New("the original may still be asked for " + m.Name)
		}
	}
	return nil
}

// zones follows the records.
func (t *traffic) zones(p *Plan, s *step.Step, a *step.Action) error {
	switch a.Verb {
	case shift.Rest:
		if strings.HasSuffix(s.ID, "/settle") {
			t.there, t.home = !t.changed, t.changed
		}
		return nil
	case shift.Swap:
	default:
		return nil
	}
	var args shift.SwapArgs
	if err := json.Unmarshal(a.Args, &args); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	for _, u := range args.Units {
		had, known := t.now[u.Name]
		if !known || !slices.EqualFunc(zone.Sorted(slices.Clone(had)), zone.Sorted(slices.Clone(u.Before)), zone.RRSet.Equal) {
			return fmt.Errorf("it expects %s to be what it is not", u.Name)
		}
		t.now[u.Name] = u.After
		i := slices.IndexFunc(p.Mirror.Names.Moves, func(m zone.Move) bool { return m.Name == u.Name })
		at := where(u.After)
		moves := at != where(u.Before)
		switch {
		case moves && (!t.inStep || !t.ready || !t.frozen):
			return fmt.Errorf("%s would move before the mirror is ready for it", u.Name)
		case moves && t.changed && !t.whole:
			return fmt.Errorf("%s would come home before the original is whole", u.Name)
		case moves && s.Gate == nil:
			return fmt.Errorf("%s moves, and nothing watches it", u.Name)
		}
		if moves {
			t.there, t.home = false, false
		}
		if at == where(p.Mirror.Names.Moves[i].Before) {
			delete(t.away, u.Name)
		} else {
			t.away[u.Name] = true
		}
	}
	return nil
}
