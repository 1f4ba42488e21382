package check

import (
	"slices"
	"strings"
)

// Missing says why a check cannot answer on this pass; empty when it can.
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

// Partly says which of the resources of Some a check does without; empty when all are there.
func (c Check) Partly(pass *Pass) string { return pass.lacks(c.Some) }

// lacks names everything that is missing of needs, with the reason; resources that are missing for one reason stand together.
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

// there are the resources of needs that the snapshot has.
func (p *Pass) there(needs []string) []string {
	return slices.DeleteFunc(slices.Clone(needs), func(need string) bool { return p.missing(need) != "" })
}

func (p *Pass) missing(need string) string {
	switch need {
	case "source":
		if p.Source == nil {
			return "no network that Theseus knows was found in the cluster"
		}
		return ""
	case "target":
		switch {
		case p.Target != nil:
			return ""
		case p.Change.To == "":
			return "no target network is named (--to)"
		case len(p.Manifest) == 0:
			return "how " + p.Change.To + " will be installed is not known: name its manifests (--manifest)"
		}
		return "what " + p.Change.To + " would be here cannot be told from its manifests: theseus plan says why"
	case "facts":
		return p.missingFacts()
	case "host":
		return p.missingHost()
	case "rights":
		if len(p.Snapshot.Rights) == 0 {
			return "the input does not say what this user may do"
		}
		return ""
	}
	if ok, why := p.Snapshot.Has(need); !ok {
		return need + ": " + why
	}
	return ""
}

// missingFacts demands facts of every node: a node that nobody looked at is no evidence.
func (p *Pass) missingFacts() string {
	if len(p.Snapshot.Facts) == 0 {
		return "the nodes were not looked at: theseus snapshot --nodes does that"
	}
	facts := p.Facts()
	for i := range p.Snapshot.Nodes {
		if facts[p.Snapshot.Nodes[i].Name] == nil {
			return "no facts of node " + p.Snapshot.Nodes[i].Name
		}
	}
	return ""
}

// missingHost demands of every node what stands in cluster.Host.
func (p *Pass) missingHost() string {
	if why := p.missingFacts(); why != "" {
		return why
	}
	for i := range p.Snapshot.Facts {
		if p.Snapshot.Facts[i].Host == nil {
			return "an older agent looked at node " + p.Snapshot.Facts[i].Node + ": theseus snapshot --nodes again"
		}
	}
	return ""
}
