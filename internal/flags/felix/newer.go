package felix

import (
	"slices"
	"strings"
)

// differences are the known relevant changes in releases that the module proxy does not have: parameters with new
// values or defaults. From Calico's documentation of FelixConfiguration: nftablesMode Auto, the default since v3.32,
// follows kube-proxy; since v3.33 Felix programs the routes of IPIP pools by default.
var differences = []struct {
	release string
	changed []Parameter
}{
	{"v3.32.0", []Parameter{{Name: "NFTablesMode", Default: "Auto", Values: []string{"Auto", "Disabled", "Enabled"}}}},
	{"v3.33.0", []Parameter{{Name: "ProgramClusterRoutes", Default: "EnabledIPIPOnly",
		Values: []string{"Disabled", "Enabled", "EnabledIPIPOnly", "EnabledNoEncapOnly"}}}},
}

// newer makes the tables of these releases: each is the previous table with the known differences.
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
