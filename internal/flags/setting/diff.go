package setting

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/theseus-cni/theseus/internal/step"
)

// Difference is the effect of changing a cluster's settings from one state to another.
type Difference struct {
	Changes []NewValue `json:"changes"`
	// Idle are edits that change nothing on any node, because a stronger place overrides them.
	Idle []Idle `json:"idle"`
	// Processes are those that the changes restart.
	Processes []Process `json:"processes"`
	// Nodes is the number of nodes compared; Joined and Left are the nodes that only one of the states has.
	Nodes  int      `json:"nodes"`
	Joined []string `json:"joined,omitempty"`
	Left   []string `json:"left,omitempty"`
}

// NewValue is one knob that gets a new value on some nodes.
type NewValue struct {
	Knob  string   `json:"knob"`
	From  string   `json:"from"`
	To    string   `json:"to"`
	Nodes []string `json:"nodes"`
	// Why says what changes it: a place, or a different default in the new version.
	Why     string  `json:"why"`
	Process string  `json:"process"`
	Effect  Effect  `json:"effect"`
	Trigger Trigger `json:"trigger"`
	// AtOnce is the number of nodes on which it takes effect at the same time; 0 if nothing happens without a manual
	// restart.
	AtOnce  int    `json:"atOnce"`
	Refuses string `json:"refuses,omitempty"`
	// Invalid says why the component does not accept the new value.
	Invalid string `json:"invalid,omitempty"`

	knob *Knob
}

// Idle is an edit without effect. Per-node edits of one knob that the same value overrides are grouped into one.
type Idle struct {
	Knob string `json:"knob"`
	Edit *Set   `json:"edit"`
	// By is the value that is in effect instead, on the first of the nodes.
	By    *Set `json:"by"`
	Nodes int  `json:"nodes"`
}

// Process is a process that restarts: on how many nodes, and on how many of them at the same time.
type Process struct {
	Name    string  `json:"name"`
	Effect  Effect  `json:"effect"`
	Trigger Trigger `json:"trigger"`
	Nodes   int     `json:"nodes"`
	AtOnce  int     `json:"atOnce"`
}

// defaultChanged is the place of a change that comes from a new default.
var defaultChanged = Place{Name: "the default of the new version", Scope: Cluster, Effect: Recreate, Trigger: Rollout}

// Diff compares the effective values on every node that both states have.
func Diff(before, after *Fleet) Difference {
	d := differ{before: before, after: after, touched: map[Process]map[int]bool{}}
	for i, node := range after.nodes {
		if at, ok := before.index[node.Name]; ok {
			d.pairs = append(d.pairs, [2]int{at, i})
		} else {
			d.result.Joined = append(d.result.Joined, node.Name)
		}
	}
	for _, node := range before.nodes {
		if _, ok := after.index[node.Name]; !ok {
			d.result.Left = append(d.result.Left, node.Name)
		}
	}
	d.result.Nodes = len(d.pairs)
	for _, k := range after.catalogue.knobs {
		if old, ok := before.catalogue.byID[k.ID()]; ok {
			d.compare(old, k)
		}
	}
	d.idle()
	d.processes()
	return d.result
}

type differ struct {
	before, after *Fleet
	pairs         [][2]int
	result        Difference
	// touched are the nodes on which a process restarts.
	touched map[Process]map[int]bool
}

// same is the key by which nodes are grouped into one change.
type same struct{ from, to, place, invalid string }

func (d *differ) compare(old, k *Knob) {
	if len(d.before.levels[old]) == 0 && len(d.after.levels[k]) == 0 && old.Default == k.Default {
		return
	}
	groups := map[same]int{}
	for _, pair := range d.pairs {
		was, is := d.before.winner(old, pair[0]), d.after.winner(k, pair[1])
		from, to := valueOf(old, was), valueOf(k, is)
		if k.Same(from, to) {
			continue
		}
		place := &defaultChanged
		switch {
		case is != nil && (was == nil || is.rank >= was.rank):
			place = is.Place
		case was != nil:
			place = was.Place // the value that was removed
		}
		key := same{from: from, to: to, place: place.Name}
		if is != nil {
			key.invalid = is.Invalid
		}
		at, ok := groups[key]
		if !ok {
			at = len(d.result.Changes)
			groups[key] = at
			d.result.Changes = append(d.result.Changes,
				NewValue{Knob: k.ID(), From: from, To: to, Why: place.Name, Process: k.process(place.Effect),
					Effect: place.Effect, Trigger: place.Trigger, Refuses: k.Refuses, Invalid: key.invalid, knob: k})
		}
		c := &d.result.Changes[at]
		c.Nodes = append(c.Nodes, d.after.nodes[pair[1]].Name)
		if c.Effect != Live {
			p := Process{Name: c.Process, Effect: c.Effect, Trigger: c.Trigger}
			if d.touched[p] == nil {
				d.touched[p] = map[int]bool{}
			}
			d.touched[p][pair[1]] = true
		}
	}
	for _, at := range groups {
		c := &d.result.Changes[at]
		c.AtOnce = d.after.atOnce(k.Component, c.Trigger, len(c.Nodes))
	}
}

// Same reports whether two values mean the same to the component.
func (k *Knob) Same(a, b string) bool {
	switch {
	case a == b:
		return true
	case k.Type == Bool:
		return truth(a) == truth(b)
	case k.Type == Enum && k.AnyCase:
		return lower(a) == lower(b)
	case k.Type == Duration:
		one, errOne := k.duration(a)
		two, errTwo := k.duration(b)
		return errOne == nil && errTwo == nil && one == two
	}
	return false
}

// process is the process that reads the knob, or the pod that picks it up when it is recreated.
func (k *Knob) process(effect Effect) string {
	if k.Component == "calico" && effect == Recreate {
		return "calico-node"
	}
	return cmp.Or(k.Process, map[string]string{"calico": "felix", "cilium": CiliumAgent, "antrea": "antrea-agent",
		"flannel": "flanneld", "weave": "weave", "kube-proxy": "kube-proxy"}[k.Component])
}

// containers are the names of the agents' containers, by component.
var containers = map[string]string{"calico": "calico-node", "cilium": CiliumAgent, "antrea": "antrea-agent",
	"flannel": "kube-flannel", "weave": "weave", "kube-proxy": "kube-proxy"}

// atOnce is the number of nodes, of those given, on which a trigger acts at the same time.
func (f *Fleet) atOnce(component string, trigger Trigger, nodes int) int {
	switch trigger {
	case Itself:
		return nodes
	case ByHand:
		return 0
	}
	for _, set := range f.sets {
		if !hasContainer(set, containers[component]) {
			continue
		}
		if set.Spec.UpdateStrategy.Type == "OnDelete" {
			return 0
		}
		most := intstr.FromInt32(1)
		if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.MaxUnavailable != nil {
			most = *rolling.MaxUnavailable
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(&most, len(f.nodes), true)
		if err != nil {
			n = 1
		}
		return min(n, nodes)
	}
	return min(1, nodes)
}

// idle finds edits that are overridden on every node that they apply to.
func (d *differ) idle() {
	for _, k := range d.after.catalogue.knobs {
		if len(d.after.levels[k]) == 0 {
			continue
		}
		were := sync.OnceValue(func() map[text]bool { return d.texts(k) })
		d.result.Idle = append(d.result.Idle, d.after.idle(k, func(s *Set) bool { return !were()[textOf(s)] })...)
	}
}

// text identifies a configured value, independent of the snapshot that it was read from.
type text struct{ place, kind, space, name, value string }

func textOf(s *Set) text { return text{s.Place.Name, s.Ref.Kind, s.Ref.Namespace, s.Ref.Name, s.Value} }

// texts are the values of a knob that were configured before.
func (d *differ) texts(k *Knob) map[text]bool {
	were := map[text]bool{}
	if old, ok := d.before.catalogue.byID[k.ID()]; ok {
		for _, s := range d.before.written(old) {
			were[textOf(s)] = true
		}
	}
	return were
}

// idle returns the values of a knob that are in effect nowhere, among those for which ask is true.
func (f *Fleet) idle(k *Knob, ask func(*Set) bool) []Idle {
	var found []Idle
	type alike struct {
		place, value string
		by           step.Ref
	}
	groups := map[alike]int{}
	for _, s := range f.written(k) {
		by, nodes := f.hidden(k, s)
		if by == nil || !ask(s) {
			continue
		}
		key := alike{s.Place.Name, s.Value, by.Ref}
		if at, ok := groups[key]; ok && s.on >= 0 {
			found[at].Nodes += nodes
			continue
		}
		groups[key] = len(found)
		found = append(found, Idle{k.ID(), s, by, nodes})
	}
	return found
}

// written returns all configured values of a knob, from all places.
func (f *Fleet) written(k *Knob) []*Set {
	var found []*Set
	for _, l := range f.levels[k] {
		found = append(found, l.all...)
		for _, at := range slices.Sorted(maps.Keys(l.config)) {
			found = append(found, l.config[at])
		}
		found = slices.Grow(found, len(l.node))
		for _, s := range l.node {
			if s != nil {
				found = append(found, s)
			}
		}
	}
	return found
}

// hidden returns the value that overrides another on all nodes it applies to, and their number; nil if it is in effect
// somewhere.
func (f *Fleet) hidden(k *Knob, s *Set) (by *Set, nodes int) {
	first, last := 0, len(f.nodes)
	if s.on >= 0 {
		first, last = s.on, s.on+1
	}
	for n := first; n < last; n++ {
		var won *Set
		isFor := false
		f.each(k, n, func(other *Set) bool {
			if won == nil {
				won = other
			}
			isFor = other == s
			return !isFor
		})
		switch {
		case !isFor:
			continue
		case won == s || won.Ref == s.Ref: // equal refs: an environment variable that refers to this object
			return nil, 0
		}
		if by == nil {
			by = won
		}
		nodes++
	}
	return by, nodes
}

func (d *differ) processes() {
	for p, on := range d.touched {
		p.Nodes = len(on)
		component := ""
		for _, c := range d.result.Changes {
			if c.Process == p.Name {
				component = c.knob.Component
			}
		}
		p.AtOnce = d.after.atOnce(component, p.Trigger, p.Nodes)
		d.result.Processes = append(d.result.Processes, p)
	}
	slices.SortFunc(d.result.Processes, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.AtOnce, a.AtOnce), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Effect, b.Effect),
			cmp.Compare(a.Trigger, b.Trigger))
	})
}
