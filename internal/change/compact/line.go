package compact

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// plain are texts that YAML takes for text as they stand, also between brackets, but for its own words.
var plain = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9._-]*|[0-9.hmnuµ]+s)$`)

// words are those that YAML takes for something else than text.
var words = []string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}

func isPlain(text string) bool {
	return plain.MatchString(text) && !slices.Contains(words, strings.ToLower(text))
}

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
		if !isPlain(value) {
			return "", false
		}
	}
	return "{" + strings.Join(fields, ", ") + "}", true
}
