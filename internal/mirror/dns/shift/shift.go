package shift

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/step"
)

// Options say how names move. Zero values mean the defaults.
type Options struct {
	// TTL is what address records are lowered to while they move, in seconds; default 30.
	TTL uint32 `json:"ttl"`
	// First is how many names the first wave has, Growth how many times as many each next one; default 3 and 5.
	First  int `json:"first"`
	Growth int `json:"growth"`
	// Batch is how many names one transaction changes; default 32.
	Batch int `json:"batch"`
	// Weights are the shares in per cent that go to the mirror one after the other, where the zone's provider can;
	// the last one, 100, is implied.
	Weights []int64 `json:"weights,omitempty"`
	// Bake is how long each wave is watched; default twice TTL, at least 30 s.
	Bake step.Duration `json:"bake"`
	// SeeWithin bounds the wait for servers and resolvers to show a change; default TTL and 5 minutes.
	SeeWithin step.Duration `json:"seeWithin"`
	// SLO are signals that each gate asks, too, as text (signal.Parse).
	SLO []string `json:"slo,omitempty"`
	// MaxFailed is how many of the gate's own requests may fail; default none.
	MaxFailed int64 `json:"maxFailed,omitempty"`
}

// WithDefaults fills what is not set.
func (o Options) WithDefaults() Options {
	set := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	if o.TTL == 0 {
		o.TTL = 30
	}
	set(&o.First, 3)
	set(&o.Growth, 5)
	set(&o.Batch, 32)
	if o.Bake <= 0 {
		o.Bake = step.Duration(max(30*time.Second, 2*time.Duration(o.TTL)*time.Second))
	}
	if o.SeeWithin <= 0 {
		o.SeeWithin = step.Duration(time.Duration(o.TTL)*time.Second + 5*time.Minute)
	}
	return o
}

// The rule of thumb that keeps a mistake from emptying a zone: a plan that changes more than MaxShare of a zone
// with at least MinRecords address records must be confirmed.
const (
	MaxShare   = 0.30
	MinRecords = 10
)

// TooMuch says which zones the moves change more of than MaxShare; "" when none.
func TooMuch(zones []*zone.Zone, moves []zone.Move) string {
	var found []string
	for _, z := range zones {
		names := map[string]bool{}
		for _, set := range z.Sets {
			if set.IsAddress() {
				names[set.Name] = true
			}
		}
		n := 0
		for _, m := range moves {
			if m.Zone == z.Name {
				n++
			}
		}
		if len(names) >= MinRecords && float64(n) > MaxShare*float64(len(names)) {
			found = append(found, fmt.Sprintf("%d of %d names of %s (%.0f %%)", n, len(names), z.Name,
				100*float64(n)/float64(len(names))))
		}
	}
	return strings.Join(found, ", ")
}

// aliasTTL is for how long caches keep what an alias answers, in seconds: Route 53's for load balancers.
const aliasTTL = 60

// stage is a unit in all the states that it goes through.
type stage struct {
	zone.Move
	lowered []zone.RRSet // before, with the low TTL
	moved   []zone.RRSet // after, with the low TTL
	weights bool
}

// steps are what moves the names, in order. The zones say what their providers can, and how long they keep that
// a name is not there; from and to are the two clusters.
func steps(moves []zone.Move, zones []*zone.Zone, o Options, from, to string) []step.Step {
	o = o.WithDefaults()
	p := &planner{options: o, zones: map[string]*zone.Zone{}, from: from, to: to}
	for _, z := range zones {
		p.zones[z.Name] = z
	}
	var stages []stage
	for _, m := range moves {
		z := p.zones[m.Zone]
		stages = append(stages, stage{Move: m, lowered: lower(m.Before, o.TTL), moved: lower(m.After, o.TTL),
			weights: len(o.Weights) > 0 && z != nil && z.Can.Weights && Weighs(m.Unit)})
	}
	p.lower(stages)
	for i, wave := range Waves(len(stages), o.First, o.Growth) {
		p.wave(i+1, stages[wave[0]:wave[1]])
	}
	p.restore(stages)
	return p.steps
}

// Waves cuts n names into waves of growing size: half-open ranges.
func Waves(n, first, growth int) [][2]int {
	var waves [][2]int
	for at, size := 0, first; at < n; size *= max(growth, 1) {
		end := min(at+size, n)
		waves = append(waves, [2]int{at, end})
		at = end
	}
	return waves
}

// lower gives address sets at most a TTL.
func lower(sets []zone.RRSet, ttl uint32) []zone.RRSet {
	lowered := slices.Clone(sets)
	for i := range lowered {
		if lowered[i].IsAddress() && lowered[i].Alias == nil {
			lowered[i].TTL = min(lowered[i].TTL, ttl)
		}
	}
	return lowered
}

type planner struct {
	options Options
	zones   map[string]*zone.Zone
	steps   []step.Step
	// from and to are the clusters, in words.
	from, to string
}

// unit is how a stage changes in one step.
type unit struct {
	stage
	zone.Unit
}

// swaps are transactions of at most Batch units each, by zone.
func (p *planner) swaps(id, title string, units []unit) []step.Action {
	byZone := map[string][]zone.Unit{}
	var order []string
	for _, u := range units {
		if gone, come := u.Unit.Changes(); len(gone)+len(come) == 0 {
			continue
		}
		if byZone[u.Zone] == nil {
			order = append(order, u.Zone)
		}
		byZone[u.Zone] = append(byZone[u.Zone], u.Unit)
	}
	var actions []step.Action
	for _, name := range order {
		for batch := range slices.Chunk(byZone[name], p.options.Batch) {
			actions = append(actions, action(fmt.Sprintf("%s/swap-%d", id, len(actions)+1), Swap,
				fmt.Sprintf(title, list(batch)), SwapArgs{Transaction: zone.Transaction{Zone: name, Units: batch}}, 0))
		}
	}
	return actions
}

func list(units []zone.Unit) string {
	first := strings.TrimSuffix(units[0].Name, ".")
	if len(units) == 1 {
		return first
	}
	return fmt.Sprintf("%s and %d more", first, len(units)-1)
}

// sees are the records that every server must show: those after the move of units, or those before it.
func sees(units []unit, back bool) []SeeArgs {
	var all []SeeArgs
	at := map[string]int{}
	for _, u := range units {
		i, known := at[u.Zone]
		if !known {
			i = len(all)
			at[u.Zone] = i
			all = append(all, SeeArgs{Zone: u.Zone, Yield: back})
		}
		sets, gone := u.Unit.After, u.Unit.Before
		if back {
			sets, gone = gone, sets
		}
		for _, set := range sets {
			if set.IsAddress() {
				all[i].Sets = append(all[i].Sets, set)
			}
		}
		for _, set := range gone {
			place := zone.Place{Name: set.Name, Type: set.Type}
			there := func(o zone.RRSet) bool { return o.Name == set.Name && o.Type == set.Type }
			if set.IsAddress() && !slices.ContainsFunc(sets, there) && !slices.Contains(all[i].Gone, place) {
				all[i].Gone = append(all[i].Gone, place)
			}
		}
	}
	return all
}

// lower brings TTLs down, and waits until no cache can have the old one.
func (p *planner) lower(stages []stage) {
	var units []unit
	var old uint32
	for _, s := range stages {
		u := unit{s, zone.Unit{Name: s.Name, Before: s.Before, After: s.lowered}}
		if gone, come := u.Unit.Changes(); len(gone)+len(come) > 0 {
			units = append(units, u)
			for _, set := range gone {
				old = max(old, set.TTL)
			}
		}
	}
	if len(units) == 0 {
		return
	}
	const id = "lower"
	actions := p.swaps(id, fmt.Sprintf("lower the TTL to %d s: %%s", p.options.TTL), units)
	for i, args := range sees(units, false) {
		actions = append(actions, action(fmt.Sprintf("%s/see-%d", id, i+1), See,
			"see the low TTL at every server of "+args.Zone, args, p.options.SeeWithin))
	}
	actions = append(actions,
		action(id+"/rest", Rest, fmt.Sprintf("wait %d s: caches may have the old TTL until then", old), RestArgs{old},
			step.Duration(time.Duration(old)*time.Second+time.Minute)))
	p.steps = append(p.steps, step.Step{ID: id, Group: id, Does: id,
		Title:   fmt.Sprintf("lower the TTL of %s to %d s", cluster.Count(len(units), "name"), p.options.TTL),
		Why:     "caches keep a record for its TTL, so a low TTL makes a move, and its undo, take effect sooner",
		Actions: actions, Estimate: step.Duration(time.Duration(old) * time.Second)})
}

// wave proves, moves, sees and watches some names; weighted ones in parts.
func (p *planner) wave(number int, stages []stage) {
	var plain, weighted []stage
	for _, s := range stages {
		if s.weights {
			weighted = append(weighted, s)
		} else {
			plain = append(plain, s)
		}
	}
	id := fmt.Sprintf("wave-%d", number)
	if len(plain) > 0 {
		var units []unit
		for _, s := range plain {
			units = append(units, unit{s, zone.Unit{Name: s.Name, Before: s.lowered, After: s.moved}})
		}
		p.shift(id, id, "to "+p.to, units, false)
	}
	if len(weighted) == 0 {
		return
	}
	before := map[string][]zone.RRSet{}
	for _, s := range weighted {
		before[s.Name] = s.lowered
	}
	for _, share := range append(slices.Clone(p.options.Weights), 100) {
		var units []unit
		for _, s := range weighted {
			after := s.moved
			if share < 100 {
				after = weigh(s, share)
			}
			units = append(units, unit{s, zone.Unit{Name: s.Name, Before: before[s.Name], After: after}})
			before[s.Name] = after
		}
		p.shift(fmt.Sprintf("%s/%d-percent", id, share), id, fmt.Sprintf("%d %% to %s", share, p.to),
			units, share < 100)
	}
}

// Weighs says whether a name can be at both clusters at once: it has the same types of addresses at each. Of a type
// that only one has, that one would be given to everybody, whatever its weight.
func Weighs(u zone.Unit) bool {
	types := func(sets []zone.RRSet) (all []string) {
		for _, set := range sets {
			if set.IsAddress() {
				all = append(all, set.Type)
			}
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	return slices.Equal(types(u.Before), types(u.After))
}

// weigh makes the address sets of a name that is at both clusters: a set identifier for each.
func weigh(s stage, share int64) []zone.RRSet {
	side := func(sets []zone.RRSet, id string, weight int64) []zone.RRSet {
		var weighed []zone.RRSet
		for _, set := range sets {
			if set.IsAddress() {
				set.SetID, set.Weight = id, &weight
				weighed = append(weighed, set)
			}
		}
		return weighed
	}
	after := slices.Concat(side(s.lowered, "theseus-original", 100-share), side(s.moved, "theseus-mirror", share))
	for _, set := range s.moved { // the new owner, from the first per cent on
		if !set.IsAddress() {
			after = append(after, set)
		}
	}
	return after
}

// shift proves, moves, sees and watches units; both says that they are at both clusters then.
func (p *planner) shift(id, wave, where string, units []unit, both bool) {
	var probes []zone.Probe
	for _, u := range units {
		probes = append(probes, u.Probes...)
	}
	actions := []step.Action{action(id+"/prove", Prove,
		fmt.Sprintf("prove that the services of %s answer at %s", cluster.Count(len(units), "name"), p.to),
		ProveArgs{Probes: probes, Back: sees(units, true)}, step.Duration(5*time.Minute))}
	actions = append(actions, p.swaps(id, "move %s "+strings.ReplaceAll(where, "%", "%%"), units)...)
	for i, args := range sees(units, false) {
		actions = append(actions, action(fmt.Sprintf("%s/see-%d", id, i+1), See,
			"see it at every server and resolver of "+args.Zone, args, p.options.SeeWithin))
	}
	gate := GateArgs{Probes: probes, Direct: both}
	p.steps = append(p.steps, step.Step{ID: id, Group: wave, Does: "move", Wave: wave,
		Title: "move " + cluster.Count(len(units), "name") + " " + where,
		Why: "each service must answer there before its record changes; the record and its ownership " +
			"change together, or not at all",
		Actions: actions,
		Gate: &step.Gate{Title: "the services' names answer, and their error rate holds",
			Bake: p.options.Bake, MaxLost: p.options.MaxFailed, Args: action("", "", "", gate, 0).Args()},
		Estimate: p.options.Bake})
}

// Settle is what the step does after which no cache remembers where names were.
const Settle = "settle"

// restore waits until nothing can remember the original, and gives the records their TTLs back.
func (p *planner) restore(stages []stage) {
	wait := p.options.TTL
	for _, s := range stages {
		if z := p.zones[s.Zone]; z != nil {
			wait = max(wait, z.Negative)
		}
		for _, set := range s.lowered {
			if set.IsAddress() {
				wait = max(wait, set.TTL)
			}
			if set.Alias != nil {
				wait = max(wait, aliasTTL)
			}
		}
	}
	p.steps = append(p.steps,
		step.Step{ID: Settle, Group: Settle, Does: Settle, Title: "wait until no cache remembers " + p.from,
			Why: "no irreversible step may begin before all caches have expired",
			Actions: []step.Action{action("settle/rest", Rest,
				fmt.Sprintf("wait %d s: the longest TTL and negative TTL", wait), RestArgs{wait},
				step.Duration(time.Duration(wait)*time.Second+time.Minute))},
			Estimate: step.Duration(time.Duration(wait) * time.Second)})
	var units []unit
	for _, s := range stages {
		units = append(units, unit{s, zone.Unit{Name: s.Name, Before: s.moved, After: s.After}})
	}
	const id = "restore"
	actions := p.swaps(id, "restore the TTL of %s", units)
	if len(actions) == 0 {
		return
	}
	for i, args := range sees(units, false) {
		actions = append(actions, action(fmt.Sprintf("%s/see-%d", id, i+1), See,
			"see the old TTL at every server of "+args.Zone, args, p.options.SeeWithin))
	}
	p.steps = append(p.steps, step.Step{ID: id, Group: id, Does: id, Title: "restore the TTLs",
		Why: "all moves are done; another move lowers the TTLs again first", Actions: actions})
}
