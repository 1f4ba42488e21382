package shift

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
	"github.com/theseus-cni/theseus/internal/step"
)

// Kind is the kind of a serialised plan of moves.
const Kind = "DNSPlan"

// Plan is what `theseus mirror dns move` carries out: which names move from what to what. Its steps follow from it.
type Plan struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Name       string      `json:"name"`
	Theseus    string      `json:"theseus"`
	MadeAt     metav1.Time `json:"madeAt"`
	// Format is that of the steps: a plan is carried out by the theseus that makes the same ones of it.
	Format  int     `json:"format"`
	Options Options `json:"options"`
	// Zones are those that the moves are in, without their records.
	Zones []*zone.Zone `json:"zones"`
	Moves []zone.Move  `json:"moves"`
	// ToOriginal says that the names go back to the original.
	ToOriginal bool `json:"home,omitempty"`
	// Hash is over everything else.
	Hash string `json:"hash"`
}

const format = 2

// New makes a plan.
func New(zones []*zone.Zone, moves []zone.Move, o Options, theseus string, now time.Time) *Plan {
	p := &Plan{APIVersion: v1alpha1.APIVersion, Kind: Kind, Theseus: theseus,
		MadeAt: metav1.NewTime(now.UTC().Truncate(time.Second)), Format: format,
		Options: o.WithDefaults(), Moves: moves}
	for _, z := range zones {
		p.Zones = append(p.Zones, &zone.Zone{Name: z.Name, Negative: z.Negative, Can: z.Can})
	}
	p.seal("dns")
	return p
}

func (p *Plan) seal(prefix string) {
	p.Name = ""
	p.Name = prefix + "-" + p.sum()[:8]
	p.Hash = p.sum()
}

func (p *Plan) sum() string {
	bare := *p
	bare.Hash = ""
	data, err := json.Marshal(bare)
	if err != nil {
		panic(err) // plain data
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Steps are those of the plan.
func (p *Plan) Steps() []step.Step {
	from, to := "the original", "the mirror"
	if p.ToOriginal {
		from, to = to, from
	}
	return steps(p.Moves, p.Zones, p.Options, from, to)
}

// Back is the plan of the way back, after this one is done: the same road, the other way. It is always the same for
// the same plan, so that a second process finds its journal.
func (p *Plan) Back() *Plan {
	back := *p
	back.Moves, back.ToOriginal = nil, !p.ToOriginal
	back.Options.SLO = nil // that they fail is a reason to go back
	for _, m := range p.Moves {
		m.Before, m.After = m.After, m.Before
		probes := m.Probes
		m.Probes = nil
		for _, probe := range probes {
			if len(probe.Was) > 0 {
				probe.At, probe.Was = probe.Was, probe.At
				m.Probes = append(m.Probes, probe)
			}
		}
		back.Moves = append(back.Moves, m)
	}
	back.seal(p.Name + "-back")
	return &back
}

// Check refuses a plan that was edited, or that this version would carry out differently.
func (p *Plan) Check() error {
	const again = "make the plan again with this version of theseus"
	if p.Format != format {
		return &Error{fmt.Sprintf("theseus %s made the plan of moves, with other steps", p.Theseus), again}
	}
	if p.Hash != p.sum() {
		return &Error{"the plan " + p.Name + " was edited since it was made", again}
	}
	if err := p.valid(); err != nil {
		return &Error{"the plan " + p.Name + ": " + err.Error(), again}
	}
	return nil
}

// Write turns a plan into YAML.
func Write(p *Plan) ([]byte, error) { return yaml.Marshal(p) }

// Error is a plan that cannot be used, and what to do about it.
type Error struct{ Err, Advice string }

func (e *Error) Error() string { return e.Err }

// Hint says what to do.
func (e *Error) Hint() string { return e.Advice }

// Read takes a plan from YAML or JSON, and refuses one that was edited.
func Read(data []byte) (*Plan, error) {
	const again = "make the plan again: theseus mirror dns plan -o FILE"
	var p Plan
	if err := bounded.UnmarshalStrict(data, &p); err != nil {
		var old struct {
			Theseus string `json:"theseus"`
			Options struct {
				ErrorRate any `json:"errorRate"`
			} `json:"options"`
		}
		if bounded.Unmarshal(data, &old) == nil && old.Options.ErrorRate != nil {
			return nil, &Error{"the plan of moves was made by theseus " + old.Theseus +
				", and uses an error rate; this version uses signals instead (--slo)",
				"if its names have begun to move, go on or back with theseus " + old.Theseus +
					"; else make the plan again, with --slo"}
		}
		return nil, &Error{"this is not a plan of moves: " + err.Error(), again}
	}
	if p.Kind != Kind || p.APIVersion != v1alpha1.APIVersion {
		return nil, &Error{fmt.Sprintf("this is not a plan of moves, but %q %q", p.APIVersion, p.Kind), again}
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	return &p, nil
}

// valid holds what every reader of a plan relies on.
func (p *Plan) valid() error {
	zones := map[string]bool{}
	for _, z := range p.Zones {
		if z == nil {
			return errors.New("it has an empty zone")
		}
		zones[z.Name] = true
	}
	if len(p.Moves) == 0 {
		return errors.New("it moves nothing")
	}
	seen := map[string]bool{}
	for _, m := range p.Moves {
		switch {
		case m.Name == "" || seen[m.Name]:
			return fmt.Errorf("name %q is empty or moves twice", m.Name)
		case !zones[m.Zone] || !zone.Within(m.Name, m.Zone):
			return fmt.Errorf("%s is not in a zone of the plan", m.Name)
		case len(m.Before) == 0 || len(m.After) == 0:
			return fmt.Errorf("%s has no record before or after", m.Name)
		}
		seen[m.Name] = true
	}
	if _, err := signal.ParseAll(p.Options.SLO); err != nil {
		return fmt.Errorf("signal %w", err)
	}
	last := int64(0)
	for _, w := range p.Options.Weights {
		if w <= last || w >= 100 {
			return errors.New("weights grow from 1 to 99")
		}
		last = w
	}
	return nil
}

// Runbook is the plan for people.
func Runbook(p *Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s in %s\n", p.Name, cluster.Count(len(p.Moves), "name"), cluster.Count(len(p.Zones), "zone"))
	total := time.Duration(0)
	for i, s := range p.Steps() {
		fmt.Fprintf(&b, "\n%d. %s (%s)\n   %s\n", i+1, s.Title, time.Duration(s.Estimate), s.Why)
		total += time.Duration(s.Estimate)
		for _, a := range s.Actions {
			fmt.Fprintf(&b, "     %s\n", a.Title)
		}
		if s.Gate != nil {
			fmt.Fprintf(&b, "     gate, %s: %s%s\n", time.Duration(s.Gate.Bake), s.Gate.Title,
				signal.AtGate(p.Options.SLO))
		}
	}
	if demands := signal.Demands(p.Options.SLO); demands != "" {
		b.WriteString(demands + "The way back does not ask the signals: a failing signal can be the reason to go " +
			"back.\n")
	}
	fmt.Fprintf(&b, "\nEvery step can be undone. Do nothing irreversible, such as deleting the original's load "+
		"balancers,\nbefore \"settle\" has passed. At least %s in all.\n", total)
	for _, m := range p.Moves {
		gone, come := m.Changes()
		fmt.Fprintf(&b, "\n%s (%s)\n", strings.TrimSuffix(m.Name, "."), strings.Join(m.Services, ", "))
		for _, set := range gone {
			fmt.Fprintf(&b, "  - %s\n", set)
		}
		for _, set := range come {
			fmt.Fprintf(&b, "  + %s\n", set)
		}
	}
	return b.String()
}
