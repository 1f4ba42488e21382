package setting

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/step"
)

// knobMetadata is the metadata key by which a flag names its knob, if the flag's own key is not the knob's ID.
const knobMetadata = "knob"

// Bound is a flag that controls a knob.
type Bound struct {
	Flag string
	Knob *Knob
}

// Bind finds the flags of a set that control knobs, and reports what is wrong with them.
func (c *Catalogue) Bind(set *flagset.Set) ([]Bound, []finding.Finding) {
	var bound []Bound
	var found []finding.Finding
	owners := map[*Knob]string{}
	for _, key := range set.Keys() {
		subject := finding.Subject{Kind: "Flag", Name: key}
		name, given := set.FlagMetadata(key)[knobMetadata].(string)
		k, known := c.Get(key)
		if given {
			var err error
			if k, err = c.Find(name); err != nil {
				found = append(found, finding.Finding{ID: "flags/unknown", Severity: finding.Block, Subject: subject,
					Message: fmt.Sprintf("its metadata names the knob %s: %v", name, err), Fix: err.(*Error).Advice})
				continue
			}
		} else if !known {
			continue
		}
		if other, taken := owners[k]; taken {
			found = append(found, finding.Finding{ID: "flags/conflict", Severity: finding.Block, Subject: subject,
				Message: fmt.Sprintf("%s and %s both control %s", key, other, k.ID()),
				Fix:     "keep one of the two flags"})
			continue
		}
		owners[k] = key
		bound = append(bound, Bound{key, k})
		found = append(found, variants(set, key, k)...)
	}
	return bound, found
}

// variants finds values of a flag that its knob does not accept.
func variants(set *flagset.Set, key string, k *Knob) []finding.Finding {
	var found []finding.Finding
	values, _, _ := set.Variants(key)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		text := ValueText(values[name])
		if err := k.Check(text); err != nil {
			found = append(found, finding.Finding{ID: "flags/value", Severity: finding.Block,
				Subject:  finding.Subject{Kind: "Flag", Name: key},
				Message:  fmt.Sprintf("the variant %s is %q, which %s does not accept: %v", name, text, k.ID(), err),
				Evidence: map[string]any{"knob": k.ID(), "variant": name, "value": text, "otherwise": k.BadValue},
				Fix:      "theseus flags explain " + k.ID()})
		}
	}
	return found
}

// ValueText converts a flag's value into the text that a knob takes.
func ValueText(value any) string {
	switch value := value.(type) {
	case string:
		return value
	case float64:
		return strconv.FormatFloat(value, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(value)
	}
	raw, _ := json.Marshal(value) // it came from JSON
	return string(raw)
}

// Evaluated are the values of flags on every node of a fleet, in its order.
type Evaluated struct {
	Flags   []string
	Results [][]*flagset.Result // by flag, then by node; nodes with the same result share it
}

// Evaluate evaluates flags for every node, at a time in Unix seconds. It reuses the results in known, which must come
// from a set in which these flags are the same.
func (f *Fleet) Evaluate(set *flagset.Set, keys []string, now int64, known *Evaluated) *Evaluated {
	all := &Evaluated{Flags: keys, Results: make([][]*flagset.Result, len(keys))}
	var todo []int
	for i, key := range keys {
		if known != nil {
			if at := slices.Index(known.Flags, key); at >= 0 {
				all.Results[i] = known.Results[at]
				continue
			}
		}
		all.Results[i] = make([]*flagset.Result, len(f.nodes))
		todo = append(todo, i)
	}
	contexts := f.contexts()
	const share = 256 // nodes that one goroutine takes at a time
	var wait sync.WaitGroup
	for from := 0; from < len(f.nodes) && len(todo) > 0; from += share {
		wait.Go(func() {
			for _, i := range todo {
				known := shared{}
				for n := from; n < min(from+share, len(f.nodes)); n++ {
					all.Results[i][n] = known.get(set.Evaluate(keys[i], contexts[n], now))
				}
			}
		})
	}
	wait.Wait()
	return all
}

// shared holds the distinct results of one flag.
type shared []*flagset.Result

// get finds a result, or adds it. A flag's value and metadata follow from the rest.
func (s *shared) get(r flagset.Result) *flagset.Result {
	for _, one := range *s {
		if one.Variant == r.Variant && one.Reason == r.Reason && one.Code == r.Code && one.Message == r.Message {
			return one
		}
	}
	made := new(flagset.Result)
	*made = r
	if len(*s) < 16 { // usually there are few variants; a different message for every node is the exception
		*s = append(*s, made)
	}
	return made
}

// Of returns the results of a flag by node; nil if it was not evaluated.
func (e *Evaluated) Of(key string) []*flagset.Result {
	if at := slices.Index(e.Flags, key); at >= 0 {
		return e.Results[at]
	}
	return nil
}

// Without returns the results without the given flags.
func (e *Evaluated) Without(keys []string) *Evaluated {
	rest := &Evaluated{}
	for i, key := range e.Flags {
		if !slices.Contains(keys, key) {
			rest.Flags, rest.Results = append(rest.Flags, key), append(rest.Results, e.Results[i])
		}
	}
	return rest
}

// contexts returns the nodes' evaluation contexts, which are made once.
func (f *Fleet) contexts() []flagset.Context {
	f.made.Do(func() {
		f.prepared = make([]flagset.Context, len(f.nodes))
		for n, node := range f.nodes {
			// only text and numbers, which JSON can represent
			f.prepared[n], _ = flagset.NewContext(flagset.NodeValues(node))
		}
	})
	return f.prepared
}

// With returns the fleet with the flags applied: every value is set at the narrowest scope that its knob has. Where a
// flag evaluates to the caller's default, the current setting stays.
func (f *Fleet) With(bound []Bound, values *Evaluated) (*Fleet, []finding.Finding) {
	next := f.clone()
	own := map[step.Ref][]step.Ref{} // the per-node objects, by the object of the place, which most knobs share
	var found []finding.Finding
	for _, b := range bound {
		at := slices.Index(values.Flags, b.Flag)
		if at < 0 {
			continue
		}
		if problem := next.give(b, values.Results[at], own); problem != nil {
			found = append(found, *problem)
		}
	}
	return next, found
}

// clone copies the fields that With changes.
func (f *Fleet) clone() *Fleet {
	next := &Fleet{catalogue: f.catalogue, versions: f.versions, nodes: f.nodes, index: f.index,
		snapshot: f.snapshot, overlay: f.overlay, levels: maps.Clone(f.levels), configs: f.configs,
		matched: f.matched, agents: f.agents, sets: f.sets, strays: f.strays, unread: f.unread,
		apis: f.apis, spaces: f.spaces}
	return next
}

func (f *Fleet) give(b Bound, results []*flagset.Result, own map[step.Ref][]step.Ref) *finding.Finding {
	subject := finding.Subject{Kind: "Flag", Name: b.Flag}
	for _, r := range results {
		if r.Code != "" {
			return &finding.Finding{ID: "flags/evaluation", Severity: finding.Block, Subject: subject,
				Message: r.Message, Fix: "theseus flags eval " + b.Flag + " --node NODE --explain"}
		}
	}
	scope := Node
	place, err := b.Knob.placeFor(Node)
	if err != nil {
		if why := uniform(b, results, err); why != nil {
			return why
		}
		scope = Cluster
		if place, err = b.Knob.placeFor(Cluster); err != nil {
			return &finding.Finding{ID: "flags/scope", Severity: finding.Block, Subject: subject,
				Message: err.Error(), Fix: err.(*Error).Advice}
		}
	}
	rank := slices.IndexFunc(b.Knob.Places, func(p Place) bool { return p.Name == place.Name })
	levels := make([]level, len(b.Knob.Places))
	copy(levels, f.levels[b.Knob])
	f.levels[b.Knob] = levels
	l := &levels[rank]
	if scope == Cluster {
		if len(results) > 0 && !results[0].Default() {
			l.all, l.owners = []*Set{f.put(b.Knob, rank, refOf(place, ""), ValueText(results[0].Value))}, []int{-1}
		}
		return nil
	}
	if l.node = slices.Clone(l.node); l.node == nil {
		l.node = make([]*Set, len(f.nodes))
	}
	refs := own[refOf(place, "")]
	if refs == nil {
		for _, node := range f.nodes {
			refs = append(refs, refOf(place, node.Name))
		}
		own[refOf(place, "")] = refs
	}
	made := make([]Set, len(f.nodes))
	byVariant := map[string]*Set{}
	for n, r := range results {
		if r.Default() {
			continue
		}
		first := byVariant[r.Variant]
		if first == nil {
			first = f.put(b.Knob, rank, step.Ref{}, ValueText(r.Value))
			byVariant[r.Variant] = first
		}
		made[n] = *first
		made[n].Ref, made[n].on = refs[n], n
		l.node[n] = &made[n]
	}
	return nil
}

func refOf(place Place, node string) step.Ref {
	name := place.Object
	switch {
	case place.SelectorPath != "" && place.Object == "":
		name = "theseus-" + node
	case node != "":
		name = nodeName(place.Object, node)
	}
	return step.Ref{APIVersion: place.APIVersion, Kind: place.Kind, Namespace: place.Namespace, Name: name}
}

// uniform returns a finding if nodes get different values of a knob that cannot be set for one node.
func uniform(b Bound, results []*flagset.Result, why error) *finding.Finding {
	for _, r := range results {
		if r.Variant != results[0].Variant || r.Default() != results[0].Default() {
			return &finding.Finding{ID: "flags/scope", Severity: finding.Block,
				Subject: finding.Subject{Kind: "Flag", Name: b.Flag},
				Message: "nodes get different values, and " + why.Error(),
				Fix:     "give all nodes the same value, or remove this flag"}
		}
	}
	return nil
}
