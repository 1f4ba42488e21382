// Package felix knows the parameters of Felix, Calico's agent: their names, their defaults, and which values Felix
// accepts. The tables, one for each release that the module proxy has, are generated from those that Calico publishes
// (felix/docs/config-params.json); newer.go adds the relevant differences of newer releases.
//
// Felix reads a parameter, from the weakest source to the strongest, from the FelixConfiguration "default", from those
// with a node selector (since v3.32), from "node.NAME", from a file, and from the environment (FELIX_NAME, in any
// case). If it cannot parse a value, it uses the default and logs that, or it exits.
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
	// Name is the name in configuration files; the environment variable is FELIX_ and the name, in any case.
	Name string `json:"name"`
	// Field is the field in the spec of a FelixConfiguration; empty if only files and the environment have the
	// parameter.
	Field string `json:"field"`
	// Kind is the type of the field: boolean, integer, string, "integer or string", array or object. Values are all
	// values that the API server accepts, if the field is an enum; they do not restrict the environment variable.
	Kind   string   `json:"kind"`
	Values []string `json:"values"`
	// Schema is Calico's own description of the accepted values.
	Schema  string `json:"schema"`
	Default string `json:"default"`
	// Fatal parameters make Felix exit if the value cannot be parsed; others use their default.
	Fatal bool `json:"fatal"`
	// Local parameters are ignored in a FelixConfiguration.
	Local bool `json:"local"`
	// About is the first sentence of Calico's own description.
	About string `json:"about"`
}

// Table is the parameters of one release.
type Table struct {
	// Release is the release of Calico.
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
		panic(fmt.Sprintf("the tables of Felix's parameters: %v", err)) // they are embedded, and a test reads them
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

// For returns the table for a version of Calico: that of its minor release, else of the newest earlier release, else
// the oldest table. A text that is not a version gets the newest table.
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

// ByVariable finds the parameter of an environment variable. felix is false if the variable does not have Felix's
// prefix; known is false if it is not one of Felix's parameters.
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

// Words returns the values of an enum parameter, as spelled in a FelixConfiguration; nil for any other parameter. It
// omits values that the field accepts but Felix does not: in v3.31, that is nftablesMode Auto.
func (p Parameter) Words() []string {
	if !strings.HasPrefix(p.Schema, "One of: ") {
		return slices.Clone(p.Values)
	}
	words := quoted(p.Schema)
	for i, word := range words {
		if at := slices.IndexFunc(p.Values,
			func(value string) bool { return strings.EqualFold(value, word) }); at >= 0 {
			words[i] = p.Values[at]
		}
	}
	return words
}

// loaded is the message with which Felix logs its whole configuration at startup. Felix restarts when nearly any
// parameter changes, so the last such line shows the current configuration.
const loaded = "Successfully loaded configuration."

// InLog finds the value of the parameter in one line of Felix's log; not ok for other lines. at is the line's own time,
// as written there.
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
