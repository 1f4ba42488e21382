package setting

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/felix"
)

//go:embed catalogue/*.yaml
var files embed.FS

// Components lists the components that have a catalogue.
func Components() []string {
	return []string{"calico", "cilium", "antrea", "flannel", "weave", "kube-proxy"}
}

// Catalogue holds the knobs of the components, each in one version.
type Catalogue struct {
	knobs []*Knob
	byID  map[string]*Knob
	names map[string][]*Knob // by name and alias, in lower case
	notes []string
}

// New makes the catalogue for the given versions, by component. A component without a version gets the newest known
// one.
func New(versions map[string]string) *Catalogue {
	c := &Catalogue{byID: map[string]*Knob{}, names: map[string][]*Knob{}}
	for _, component := range Components() {
		version := versions[component]
		knobs, mayDiffer := catalogueFiles()[component].knobs, catalogueFiles()[component].mayDiffer
		switch component {
		case "calico":
			table := felix.For(version)
			c.note("Calico", version, table.Release)
			knobs = joined(ofFelix(table), knobs)
		case "cilium":
			generated, release := ofCilium(version)
			c.note("Cilium", version, release)
			knobs = joined(generated, knobs)
		}
		for _, k := range knobs {
			if within(k.Since, k.Before, version) {
				own := *k // the entries read from the file are shared
				own.MayDiffer = mayDiffer[k.Name]
				own.Places = slices.DeleteFunc(slices.Clone(k.Places), func(p Place) bool {
					return !within(p.Since, "", version)
				})
				c.add(&own)
			}
		}
	}
	return c
}

// note records that the table used is that of another release.
func (c *Catalogue) note(component, version, release string) {
	if minor := cluster.Minor(version); minor != nil && !minor.EqualTo(cluster.Minor(release)) {
		c.notes = append(c.notes, fmt.Sprintf("there is no table for %s %s: using the table of %s",
			component, version, release))
	}
}

func (c *Catalogue) add(k *Knob) {
	c.knobs = append(c.knobs, k)
	c.byID[k.ID()] = k
	for _, name := range append([]string{k.Name, k.ID()}, k.Aliases...) {
		name = strings.ToLower(name)
		c.names[name] = append(c.names[name], k)
	}
}

// within reports whether a version has a setting that was added in since and removed in before.
func within(since, before, version string) bool {
	minor := cluster.Minor(version)
	if minor == nil {
		return true
	}
	return (since == "" || minor.AtLeast(cluster.Minor(since))) &&
		(before == "" || minor.LessThan(cluster.Minor(before)))
}

// entry is a knob in a catalogue file. It may take its places from a template of the file, in which $at and $argument
// are replaced.
type entry struct {
	Knob     `json:",inline"`
	Use      string `json:"use"`
	At       string `json:"at"`
	Argument string `json:"argument"`
}

// fileContent is a parsed catalogue file: the knobs, and by name the reason why nodes may have different values.
type fileContent struct {
	knobs     []*Knob
	mayDiffer map[string]string
}

// catalogueFiles are the parsed files, by component. Callers must not modify them.
var catalogueFiles = sync.OnceValue(func() map[string]fileContent {
	all := map[string]fileContent{}
	for _, component := range Components() {
		all[component] = readFile(component)
	}
	return all
})

func readFile(component string) fileContent {
	data, err := files.ReadFile("catalogue/" + component + ".yaml")
	var file struct {
		Templates map[string][]Place `json:"templates"`
		Knobs     []entry            `json:"knobs"`
		MayDiffer []struct {
			Why   string   `json:"why"`
			Names []string `json:"names"`
		} `json:"apart"`
	}
	if err == nil {
		err = yaml.UnmarshalStrict(data, &file)
	}
	if err != nil {
		panic(fmt.Sprintf("the catalogue of %s: %v", component, err)) // the file is embedded, and a test reads it
	}
	w := fileContent{mayDiffer: map[string]string{}}
	for _, group := range file.MayDiffer {
		for _, name := range group.Names {
			w.mayDiffer[name] = group.Why
		}
	}
	for _, e := range file.Knobs {
		k := e.Knob
		k.Component = component
		fill := strings.NewReplacer("$at", e.At, "$argument", e.Argument).Replace
		for _, p := range file.Templates[e.Use] {
			p.Inside, p.Env, p.Argument = fill(p.Inside), fill(p.Env), fill(p.Argument)
			k.Places = append(k.Places, p)
		}
		k.effect()
		w.knobs = append(w.knobs, &k)
	}
	return w
}

// effect copies the knob's own effect to its places.
func (k *Knob) effect() {
	for i := range k.Places {
		if k.Effect != "" {
			k.Places[i].Effect = k.Effect
		}
	}
}

// joined extends generated knobs with the facts from the file, and appends the knobs that only the file has.
func joined(generated, more []*Knob) []*Knob {
	extra := map[string]*Knob{}
	var alone []*Knob
	for _, m := range more {
		if len(m.Places) == 0 {
			extra[m.Name] = m // ignored if this release does not have the knob
		} else {
			alone = append(alone, m)
		}
	}
	for _, k := range generated {
		m := extra[k.Name]
		if m == nil {
			continue
		}
		k.Title, k.Refuses, k.Effect, k.Couples = m.Title, m.Refuses, m.Effect, m.Couples
		k.Proofs, k.Rollback = append(slices.Clone(m.Proofs), k.Proofs...),
			append(slices.Clone(m.Rollback), k.Rollback...)
		k.Sources, k.Aliases = append(k.Sources, m.Sources...), append(k.Aliases, m.Aliases...)
		if m.Type != "" {
			k.Type, k.Values, k.Takes, k.AnyCase = m.Type, m.Values, m.Takes, m.AnyCase
		}
		k.effect()
	}
	return append(generated, alone...)
}

// All returns the knobs, by component.
func (c *Catalogue) All() []*Knob { return c.knobs }

// Notes say which versions the catalogue has no table for.
func (c *Catalogue) Notes() []string { return c.notes }

// Get finds a knob by its ID.
func (c *Catalogue) Get(id string) (*Knob, bool) {
	k, ok := c.byID[id]
	return k, ok
}

// Reads reports whether a setting can be set by an environment variable of that name, ignoring case.
func (c *Catalogue) Reads(variable string) bool {
	return slices.ContainsFunc(c.knobs, func(k *Knob) bool {
		return slices.ContainsFunc(k.Places, func(p Place) bool {
			return p.Env != "" && strings.EqualFold(p.Env, variable)
		})
	})
}

// Find finds a knob by its ID, by its name if only one component has it, or by an alias, ignoring case.
func (c *Catalogue) Find(name string) (*Knob, error) {
	found := c.names[strings.ToLower(name)]
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		advice := "theseus flags explain lists all flags"
		if near := c.Near(name); near != "" {
			advice = "did you mean " + near + "?"
		}
		return nil, fail(advice, "there is no flag %q in the catalogue", name)
	}
	var ids []string
	for _, k := range found {
		ids = append(ids, k.ID())
	}
	return nil, fail("use one of "+strings.Join(ids, ", "), "several networks have a flag %q", name)
}

// Near returns the ID of the knob whose name is most similar to a text; empty if none is similar.
func (c *Catalogue) Near(text string) string {
	best, id := 1+len(text)/4, ""
	component, bare, ok := strings.Cut(strings.ToLower(text), "/")
	if !ok {
		component, bare = "", component
	}
	for _, k := range c.knobs {
		if component != "" && k.Component != component {
			continue
		}
		for _, name := range append([]string{k.Name}, k.Aliases...) {
			if d := distance(bare, strings.ToLower(name), best); d < best {
				best, id = d, k.ID()
			}
		}
	}
	return id
}

// distance is the Levenshtein distance of two strings, but at most limit.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost++
			}
			corner = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
