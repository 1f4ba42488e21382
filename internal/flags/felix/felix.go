// Package felix knows the parameters of Felix, the agent of Calico: their names, their defaults, and which values Felix
// takes. The tables, one for each release that the module proxy has, are
// generated from those that Calico publishes (felix/docs/config-params.json); of newer releases newer.go knows what matters.
//
// Felix reads a parameter, from the weakest source to the strongest, from the FelixConfiguration "default", from those
// with a node selector (since v3.32), from "node.NAME", from a file, and from the environment (FELIX_NAME, in any
// case). A value that it cannot read is replaced by the default with a line in its log, or ends it.
package felix

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/theseus-cni/theseus/internal/cluster"
)

//go:generate go -C ../../lab run ./knobtables -o ../internal/flags/felix/params.json felix

//go:embed params.json
var params []byte

// Parameter is one setting.
type Parameter struct {
	// Name is that of configuration files; the environment variable is FELIX_ and the name, in any case.
	Name string `json:"name"`
	// Field is the one in the spec of a FelixConfiguration; empty when only files and the environment have it.
	Field string `json:"field"`
	// Kind is the type of the field: boolean, integer, string, "integer or string", array or object. Values are all that
	// the API server takes in it, where it is a string of a fixed set; the environment is not held to them.
	Kind   string   `json:"kind"`
	Values []string `json:"values"`
	// Schema is Calico's own text of what is taken.
	Schema  string `json:"schema"`
	Default string `json:"default"`
	// Fatal parameters end Felix when the value cannot be read; others take their default.
	Fatal bool `json:"fatal"`
	// Local parameters are ignored in a FelixConfiguration.
	Local bool `json:"local"`
	// About is Calico's own first sentence on it.
	About string `json:"about"`
}

// Table is the parameters of one release.
type Table struct {
	// Release is Calico's.
	Release    string
	Parameters []Parameter

	byName, byField map[string]Parameter
}

var load = sync.OnceValue(func() []*Table {
	var file struct {
		Releases   []struct{ Release string }
		Parameters []struct {
			First, Last int
			Parameter
		}
	}
	if err := json.Unmarshal(params, &file); err != nil {
		panic(fmt.Sprintf("the tables of Felix' parameters: %v", err)) // they are built in, and a test reads them
	}
	var tables []*Table
	for i, r := range file.Releases {
		t := &Table{Release: r.Release}
		for _, p := range file.Parameters {
			if p.First <= i && i <= p.Last {
				t.Parameters = append(t.Parameters, p.Parameter)
			}
		}
		tables = append(tables, t.indexed())
	}
	return append(tables, newer(tables[len(tables)-1])...)
})

func (t *Table) indexed() *Table {
	t.byName, t.byField = map[string]Parameter{}, map[string]Parameter{}
	for _, p := range t.Parameters {
		t.byName[strings.ToLower(p.Name)] = p
		if p.Field != "" {
			t.byField[p.Field] = p
		}
	}
	return t
}

// For is the table of a version of Calico: of its own minor release where it is known, or of the newest before it, or
// of the oldest. What is no version gets the newest.
func For(version string) *Table {
	tables := load()
	wanted := cluster.Minor(version)
	if wanted == nil {
		return tables[len(tables)-1]
	}
	found := tables[0]
	for _, t := range tables[1:] {
		if wanted.AtLeast(cluster.Minor(t.Release)) {
			found = t
		}
	}
	return found
}

// ByVariable finds the parameter of an environment variable; known is false for a variable of Felix that is none of its
// parameters, and felix for one that is not meant for Felix.
func (t *Table) ByVariable(variable string) (p Parameter, known, felix bool) {
	name, felix := strings.CutPrefix(strings.ToLower(variable), "felix_")
	p, known = t.byName[name]
	return p, known, felix
}

// ByField finds the parameter of a field of a FelixConfiguration.
func (t *Table) ByField(field string) (Parameter, bool) {
	p, ok := t.byField[field]
	return p, ok
}

// Variable is the parameter's environment variable, as it is usually written.
func (p Parameter) Variable() string { return "FELIX_" + strings.ToUpper(p.Name) }

// Words are the values of a parameter that takes one of a few, as a FelixConfiguration has them; nil for any other.
// What the field takes and Felix does not is left out: v3.31 knows nftablesMode Auto in the one and not in the other.
func (p Parameter) Words() []string {
	if !strings.HasPrefix(p.Schema, "One of: ") {
		return slices.Clone(p.Values)
	}
	words := quoted(p.Schema)
	for i, word := range words {
		if at := slices.IndexFunc(p.Values, func(value string) bool { return strings.EqualFold(value, word) }); at >= 0 {
			words[i] = p.Values[at]
		}
	}
	return words
}

// loaded is what Felix logs when it starts, with its whole configuration: a change of nearly all parameters ends it, so
// that the last such line tells what it runs with.
const loaded = "Successfully loaded configuration."

// InLog finds what a running Felix says of a parameter, in one line of its log; not ok for other lines. at is the line's
// own time, as written there.
func (p Parameter) InLog(line string) (value, at string, ok bool) {
	if !strings.Contains(line, loaded) {
		return "", "", false
	}
	_, rest, found := strings.Cut(line, " "+p.Name+":")
	if !found {
		return "", "", false
	}
	if quoted, isText := strings.CutPrefix(rest, `"`); isText {
		value, _, ok = strings.Cut(quoted, `"`)
	} else {
		value, _, ok = strings.Cut(rest, ",")
	}
	at, _, _ = strings.Cut(line, " [")
	return value, at, ok
}
