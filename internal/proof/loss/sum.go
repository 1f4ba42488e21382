package loss

// Sum adds paths up.
type Sum struct {
	// Paths counts those that were measured.
	Paths int
	Counts
	Gaps int
	// LongestMillis is the longest gap of a path that should answer, LongestLeakMillis the longest leak of a denied
	// one, in ms.
	LongestMillis, LongestLeakMillis float64
	// Stalls counts the times in which the source of a path was stalled, and LongestStallMillis is the longest, in ms.
	Stalls             int
	LongestStallMillis float64
}

// Add adds a path.
func (s *Sum) Add(p *PathAccount) {
	if p.Sent > 0 {
		s.Paths++
	}
	s.Counts.Add(p.Counts)
	s.Gaps += len(p.Gaps)
	for _, gap := range p.Gaps {
		if p.Denied {
			s.LongestLeakMillis = max(s.LongestLeakMillis, gap.Millis)
		} else {
			s.LongestMillis = max(s.LongestMillis, gap.Millis)
		}
	}
	s.Stalls += len(p.Stalls)
	for _, stall := range p.Stalls {
		s.LongestStallMillis = max(s.LongestStallMillis, stall.Millis)
	}
}

// Sum adds all paths up.
func (a Account) Sum() Sum {
	var s Sum
	for _, p := range a {
		s.Add(p)
	}
	return s
}

// Nodes adds up the paths that begin or end on each node; a path that does both counts once. Stalls and
// late answers are those of the node's own senders.
func (a Account) Nodes() map[string]Sum {
	nodes := map[string]Sum{}
	add := func(node string, p *PathAccount) {
		if node != "" {
			s := nodes[node]
			s.Add(p)
			nodes[node] = s
		}
	}
	for _, p := range a {
		add(p.Source.Node, p)
		if p.Target.Node != p.Source.Node {
			arriving := *p
			arriving.Late, arriving.Stalls = 0, nil
			add(p.Target.Node, &arriving)
		}
	}
	return nodes
}
