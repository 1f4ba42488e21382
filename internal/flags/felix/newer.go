package felix

import (
	"slices"
	"strings"
)

// differences are what is known to matter of releases that the module proxy does not have: parameters whose values or
// defaults became others. From Calico's documentation of FelixConfiguration: nftablesMode Auto, the default since v3.32,
// follows kube-proxy; since v3.33 Felix writes the routes of IPIP pools, unless it is told otherwise.
var differences = []struct {
	release string
	changed []Parameter
}{
	{"v3.32.0", []Parameter{{Name: "NFTablesMode", Default: "Auto", Values: []string{"Auto", "Disabled", "Enabled"}}}},
	{"v3.33.0", []Parameter{{Name: "ProgramClusterRoutes", Default: "EnabledIPIPOnly",
		Values: []string{"Disabled", "Enabled", "EnabledIPIPOnly", "EnabledNoEncapOnly"}}}},
}

// newer are the tables of these releases: each is the one before it with what is known to differ.
func newer(table *Table) (tables []*Table) {
	for _, d := range differences {
		next := &Table{Release: d.release, Parameters: slices.Clone(table.Parameters)}
		for _, changed := range d.changed {
			at := slices.IndexFunc(next.Parameters, func(p Parameter) bool { return p.Name == changed.Name })
			p := &next.Parameters[at]
			p.Default, p.Values = changed.Default, changed.Values
			p.Schema = "One of: `" + strings.Join(changed.Values, "`, `") + "` (case insensitive)"
		}
		table = next.indexed()
		tables = append(tables, table)
	}
	return tables
}
