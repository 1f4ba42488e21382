// Package felix knows the parameters of Felix, the agent of Calico: their names, their defaults, and which values Felix
// takes. The table is generated from the one that Calico's own module carries (felix/docs/config-params.json).
//
// Felix reads a parameter, from the weakest source to the strongest, from the FelixConfiguration "default", from those
// with a node selector (since v3.32), from "node.NAME", from a file, and from the environment (FELIX_NAME, in any
// case). A value that it cannot read is replaced by the default with a line in its log, or ends it.
package felix

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

//go:generate go -C ../../lab run ./felixparams -release v3.31.0 -o ../internal/felix/params.json

//go:embed params.json
var table []byte

// Parameter is one setting.
type Parameter struct {
	// Name is that of configuration files; the environment variable is FELIX_ and the name, in any case.
	Name string `json:"name"`
	// Field is the one in the spec of a FelixConfiguration; empty when only files and the environment have it.
	Field string `json:"field"`
	// Schema is Calico's own text of what is taken.
	Schema  string `json:"schema"`
	Default string `json:"default"`
	// Fatal parameters end Felix when the value cannot be read; others take their default.
	Fatal bool `json:"fatal"`
	// Local parameters are ignored in a FelixConfiguration.
	Local bool `json:"local"`
}

type catalogue struct {
	Release    string      `json:"release"`
	Parameters []Parameter `json:"parameters"`

	byName, byField map[string]Parameter
}

var load = sync.OnceValue(func() *catalogue {
	c := &catalogue{byName: map[string]Parameter{}, byField: map[string]Parameter{}}
	if err := json.Unmarshal(table, c); err != nil {
		panic(fmt.Sprintf("the table of Felix' parameters: %v", err)) // it is built in, and a test reads it
	}
	for _, p := range c.Parameters {
		c.byName[strings.ToLower(p.Name)] = p
		if p.Field != "" {
			c.byField[p.Field] = p
		}
	}
	return c
})

// Release is the release of Calico that the table is of.
func Release() string { return load().Release }

// ByVariable finds the parameter of an environment variable; known is false for a variable of Felix that is none of its
// parameters, and felix for one that is not meant for Felix.
func ByVariable(variable string) (p Parameter, known, felix bool) {
	name, felix := strings.CutPrefix(strings.ToLower(variable), "felix_")
	p, known = load().byName[name]
	return p, known, felix
}

// ByField finds the parameter of a field of a FelixConfiguration.
func ByField(field string) (Parameter, bool) {
	p, ok := load().byField[field]
	return p, ok
}

// Variable is the parameter's environment variable, as it is usually written.
func (p Parameter) Variable() string { return "FELIX_" + strings.ToUpper(p.Name) }
