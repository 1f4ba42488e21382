package mirror

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/mirror/dns/shift"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/safeio/canonical"
	"github.com/theseus-cni/theseus/internal/step"
)

// traffic carries a model of the two clusters and the zones through a plan.
type traffic struct {
	frozen, inStep, ready, whole bool
	there, returned              bool // no cache remembers the original; none the mirror
	noReturn, changed, thawed    bool
	now                          map[string][]zone.RRSet // by name, what its records are
	away                         map[string]bool         // names that are not wholly at the original
	plan                         *kind.Plan
	first, last                  int // of the plan's steps, those that are a plan within
	at                           int // how many steps were reached
}

// rules prove that the steps are those that this version makes of the setup, and on every prefix: no
// name moves before deploys are stopped and the mirror is in step with all of its pods; every transaction finds the
// records that the one before left; the original is changed only when every name is at the mirror and no cache
// remembers the original; deploys go on, and copies go, only when every name is home and no cache remembers the mirror;
// a step of the way home that fails leaves its names at the mirror; and at the end every record is what it was.
func rules(p *kind.Plan) ([]kind.Rule, error) {
	if p.Mirror == nil {
		return nil, nil
	}
	if err := p.Mirror.Names.Check(); err != nil {
		return nil, err
	}
	if err := asMade(p); err != nil {
		return nil, err
	}
	return []kind.Rule{traffics(p)}, nil
}

// traffics follow the names and the two clusters.
func traffics(p *kind.Plan) kind.Rule {
	t := &traffic{plan: p, now: map[string][]zone.RRSet{}, away: map[string]bool{}}
	for _, m := range p.Mirror.Names.Moves {
		t.now[m.Name] = m.Before
	}
	t.first, t.last = Within(p.Steps)
	return kind.Rule{Before: t.begin, Act: t.acts, End: t.end}
}

// inner says whether a step is one of the plan within.
func (t *traffic) inner() bool { return t.at > t.first && t.at <= t.last }

func (t *traffic) begin(s *step.Step) error {
	t.at++
	t.noReturn = t.noReturn || s.NoReturn
	if t.inner() {
		if err := t.idle(t.plan); err != nil {
			return err
		}
		t.changed = true
		return nil
	}
	if s.Group == home && !s.Alone {
		return errors.New("its failure would leave names on a cluster that does not serve them")
	}
	return nil
}

func (t *traffic) acts(s *step.Step, a *step.Action) error {
	if t.inner() {
		return nil
	}
	return t.act(t.plan, s, a)
}

func (t *traffic) end() error {
	for _, m := range t.plan.Mirror.Names.Moves {
		if !slices.EqualFunc(zone.Sorted(slices.Clone(t.now[m.Name])),
			zone.Sorted(slices.Clone(m.Before)), zone.RRSet.Equal) {
			return fmt.Errorf("at the end %s does not have the records that it had before", m.Name)
		}
	}
	if !t.thawed || !t.changed {
		return errors.New("at the end deploys are stopped, or the original was not changed")
	}
	return nil
}

// asMade compares the steps with those of the setup. Those of the strategy that changes the original are held to its
// own rules.
func asMade(p *kind.Plan) error {
	first, last := Within(p.Steps)
	if (first < last) != p.OnNodes() {
		return errors.New("its steps are not those that this version makes from its setup: they must change " +
			"the original's nodes if, and only if, the setup names a strategy")
	}
	own := slices.Concat(p.Steps[:first], p.Steps[last:])
	has, errHas := canonical.JSON(own)
	want, errWant := canonical.JSON(Steps(*p.Mirror, nil))
	if err := errors.Join(errHas, errWant); err != nil {
		return err
	}
	if !bytes.Equal(has, want) {
		return errors.New("its steps are not those that this version makes from its setup")
	}
	return nil
}

func (t *traffic) act(p *kind.Plan, s *step.Step, a *step.Action) error {
	if do, names := a.Do.(step.DNS); names {
		return t.zones(p, s, do)
	}
	if a.Op() != step.OpMirror {
		return fmt.Errorf("the operation %q is not allowed in it", a.Op())
	}
	switch a.Verb() {
	case Freeze:
		t.frozen = true
	case Copy:
		if !t.frozen {
			return errors.New("a deploy could slip in after it")
		}
		t.inStep = true
	case Ready:
		t.ready, t.whole = t.ready || !t.changed, t.whole || t.changed
	case Handshakes:
	case Change, Roll:
		if err := t.idle(p); err != nil || !t.noReturn {
			return cmp.Or(err, errors.New("its effects cannot be undone"))
		}
		t.changed = true
	case AddNames:
		if t.frozen {
			return errors.New("the freeze denies the change of certificates")
		}
	case Cloud:
		args, err := step.Arguments[CloudArgs](*a)
		if err != nil {
			return err
		}
		if args.Back && (len(t.away) > 0 || !t.returned) {
			return errors.New("clients may still use the mirror")
		}
	case Thaw, Teardown, TakeNames:
		if len(t.away) > 0 || !t.returned || !t.changed {
			return errors.New("clients may still use the mirror")
		}
		t.thawed = t.thawed || a.Verb() == Thaw
	default:
		return fmt.Errorf("the verb %q is not known", a.Verb())
	}
	return nil
}

// idle demands that no client uses the original.
func (t *traffic) idle(p *kind.Plan) error {
	for _, m := range p.Mirror.Names.Moves {
		if !t.there || where(t.now[m.Name]) != where(m.After) {
			return errors.New("clients may still use the original for " + m.Name)
		}
	}
	return nil
}

// zones follows the records.
func (t *traffic) zones(p *kind.Plan, s *step.Step, do step.DNS) error {
	switch do.Verb {
	case shift.Rest:
		if s.Does == shift.Settle {
			t.there, t.returned = !t.changed, t.changed
		}
		return nil
	case shift.Swap:
	default:
		return nil
	}
	var args shift.SwapArgs
	if err := json.Unmarshal(do.Args, &args); err != nil {
		return fmt.Errorf("arguments: %w", err)
	}
	for _, u := range args.Units {
		had, known := t.now[u.Name]
		if !known || !slices.EqualFunc(zone.Sorted(slices.Clone(had)),
			zone.Sorted(slices.Clone(u.Before)), zone.RRSet.Equal) {
			return fmt.Errorf("it expects other records of %s than the steps before it leave", u.Name)
		}
		t.now[u.Name] = u.After
		i := slices.IndexFunc(p.Mirror.Names.Moves, func(m zone.Move) bool { return m.Name == u.Name })
		at := where(u.After)
		moves := at != where(u.Before)
		switch {
		case moves && (!t.inStep || !t.ready || !t.frozen):
			return fmt.Errorf("%s would move before the mirror is ready for it", u.Name)
		case moves && t.changed && !t.whole:
			return fmt.Errorf("%s would move back before the original is complete", u.Name)
		case moves && s.Gate == nil:
			return fmt.Errorf("%s moves, and no gate watches it", u.Name)
		}
		if moves {
			t.there, t.returned = false, false
		}
		if at == where(p.Mirror.Names.Moves[i].Before) {
			delete(t.away, u.Name)
		} else {
			t.away[u.Name] = true
		}
	}
	return nil
}
