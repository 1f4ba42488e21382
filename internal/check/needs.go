package check

// Missing says why a check cannot answer on this pass; empty when it can.
func (c Check) Missing(pass *Pass) string {
	for _, need := range c.Needs {
		if why := pass.missing(need); why != "" {
			return why
		}
	}
	if c.Lacks != nil {
		return c.Lacks(pass)
	}
	return ""
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
