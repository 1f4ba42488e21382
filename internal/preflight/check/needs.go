package check

import (
	"cmp"
	"slices"
	"strings"
)

// Missing returns why a check cannot answer on this pass; empty if it can.
func (c Check) Missing(pass *Pass) string {
	if why := pass.lacks(c.Needs); why != "" {
		return why
	}
	if len(c.Some) > 0 && len(pass.there(c.Some)) == 0 {
		return pass.lacks(c.Some)
	}
	if c.Lacks != nil {
		return c.Lacks(pass)
	}
	return ""
}

// Partly returns which of the evidence that is not needed for every finding is missing; empty if none is.
func (c Check) Partly(pass *Pass) string {
	if why := pass.lacks(c.Some); why != "" || c.Part == nil {
		return why
	}
	return c.Part(pass)
}

// lacks names everything that is missing of needs, with the reason; resources with the same reason are listed together.
func (p *Pass) lacks(needs []string) string {
	var reasons []string
	alike := map[string][]string{}
	for _, need := range needs {
		name, why, resource := strings.Cut(p.missing(need), ": ")
		resource = resource && name == need
		switch {
		case name == "":
			continue
		case !resource:
			why = p.missing(need)
		}
		if !slices.Contains(reasons, why) {
			reasons = append(reasons, why)
		}
		if resource {
			alike[why] = append(alike[why], name)
		}
	}
	for i, why := range reasons {
		if names := alike[why]; len(names) > 0 {
			reasons[i] = strings.Join(names, ", ") + ": " + why
		}
	}
	return strings.Join(reasons, "; ")
}

// there returns the resources of needs that the snapshot has.
func (p *Pass) there(needs []string) []string {
	return slices.DeleteFunc(slices.Clone(needs), func(need string) bool { return p.missing(need) != "" })
}

func (p *Pass) missing(need string) string {
	switch need {
	case "source":
		if p.Source == nil {
			return "the cluster has no network that Theseus knows"
		}
		return ""
	case "target":
		switch {
		case p.Target != nil:
			return ""
		case p.Change.To == "":
			return "the change names no target network (--to)"
		case len(p.Manifest) == 0:
			return "the change names no manifest of " + p.Change.To + " (--manifest)"
		}
		return "the manifests do not show how " + p.Change.To + " would run here" + because(p.NoTarget)
	case "facts":
		return p.missingFacts()
	case "host":
		return p.missingHost()
	case "plan":
		if p.Steps == nil {
			return "there is no plan: " + cmp.Or(p.NoPlan, "theseus plan makes one")
		}
		return ""
	case "rights":
		if len(p.Snapshot.Rights) == 0 {
			return "the input lacks this user's rights"
		}
		return ""
	}
	if ok, why := p.Snapshot.Has(need); !ok {
		return need + ": " + why
	}
	return ""
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// missingFacts requires facts of every node: a node without facts proves nothing.
func (p *Pass) missingFacts() string {
	if len(p.Snapshot.Facts) == 0 {
		return "the input lacks facts of the nodes: run theseus snapshot --nodes"
	}
	facts := p.Facts()
	for i := range p.Snapshot.Nodes {
		if facts[p.Snapshot.Nodes[i].Name] == nil {
			return "the input lacks facts of node " + p.Snapshot.Nodes[i].Name
		}
	}
	return ""
}

// missingHost requires cluster.Host of every node.
func (p *Pass) missingHost() string {
	if why := p.missingFacts(); why != "" {
		return why
	}
	for i := range p.Snapshot.Facts {
		if p.Snapshot.Facts[i].Host == nil {
			return "the facts of node " + p.Snapshot.Facts[i].Node +
				" are of an older agent: run theseus snapshot --nodes again"
		}
	}
	return ""
}
