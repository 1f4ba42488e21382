package compact

import (
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/document"
)

// Line is the row as one line of YAML; ok is false where a name would have to be quoted.
func (r Row) Line() (text string, ok bool) {
	fields := []string{"procedure: " + r.Procedure}
	all := []string{r.Procedure}
	add := func(key, value string) {
		if value != "" {
			fields, all = append(fields, key+": "+value), append(all, value)
		}
	}
	add("wave", r.Wave)
	add("part", r.Part)
	add("node", r.Node)
	if r.Nodes != nil {
		add("nodes", r.Nodes.Name)
		if r.Nodes.Name == "" {
			fields, all = append(fields, "nodes: ["+strings.Join(r.Nodes.List, ", ")+"]"), append(all, r.Nodes.List...)
		}
	}
	if r.Estimate != nil {
		add("estimate", time.Duration(*r.Estimate).String())
	}
	for _, value := range all {
		if !safe(value) || !document.IsText(value) {
			return "", false
		}
	}
	return "{" + strings.Join(fields, ", ") + "}", true
}
