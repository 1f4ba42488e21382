package bgp

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed sessions_down.md
var sessionsDownDoc string

const sessionsDownID = "bgp/sessions-down"

// SessionsDown reports nodes whose BIRD lacks sessions that it should have.
func SessionsDown() check.Check {
	return check.Check{
		ID:    sessionsDownID,
		Title: "A node's BIRD lacks some or all of its BGP sessions",
		Doc:   sessionsDownDoc,
		Needs: []string{"nodes"},
		Lacks: unwatched,
		Run:   sessionsDown,
	}
}

// unwatched returns on which nodes the state of BIRD is unknown.
func unwatched(pass *check.Pass) string {
	if why := modelled(pass); why != "" || !pass.Snapshot.UsesCalico() {
		return why
	}
	in := graphsOf(pass).before
	if !in.Started() {
		return ""
	}
	seen := bgp.Watch(pass.Snapshot)
	var unseen []string
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if _, ok := seen[n.Name]; !ok && (n.IPv4.IsValid() || n.IPv6.IsValid()) {
			unseen = append(unseen, n.Name)
		}
	}
	if len(unseen) == 0 {
		return ""
	}
	return fmt.Sprintf("the input lacks the sessions of BIRD on %s (%s): run theseus snapshot --nodes, "+
		"or create a CalicoNodeStatus for each node that is kept up to date (classes Agent, BGP and Routes)",
		cluster.Count(len(unseen), "node"), check.Names(unseen))
}

func sessionsDown(pass *check.Pass) []finding.Finding {
	graphs := graphsOf(pass)
	if !pass.Snapshot.UsesCalico() || !graphs.before.Started() {
		return nil // bgp/not-started reports it
	}
	seen := bgp.Watch(pass.Snapshot)
	var found []finding.Finding
	for _, f := range graphs.families {
		if len(f.before.Speakers()) > 1 {
			found = append(found, compare(f.name, f.before, graphs.before, seen)...)
		}
	}
	return found
}

// compare compares the sessions and routes that exist with those that should exist.
func compare(family string, g *bgp.Graph, in *bgp.Input, seen map[string]bgp.Seen) []finding.Finding {
	var alone, some, short []string
	details := map[string]any{}
	routes, counted := 0, true
	for _, lack := range g.Compare(in, seen) {
		switch {
		case lack.Up == 0:
			alone = append(alone, lack.Node)
		case len(lack.Missing) > 0 || lack.Seen.Down != "":
			some = append(some, lack.Node)
		default:
			short = append(short, lack.Node)
		}
		routes, counted = routes+lack.Seen.Routes, counted && lack.Seen.Routes >= 0
		detail := map[string]any{"up": lack.Up, "configured": len(lack.Seen.Peers), "missing": lack.Missing}
		if lack.Seen.Down != "" {
			detail["down"] = lack.Seen.Down
		}
		if lack.Seen.Routes >= 0 {
			detail["routes"] = lack.Seen.Routes
		}
		if lack.Owed > 0 {
			detail["routesOwed"] = lack.Owed
		}
		details[lack.Node] = detail
	}
	speakers := len(g.Speakers())
	what := finding.Finding{
		ID: sessionsDownID, Subject: finding.Subject{Kind: "Network", Name: "calico"},
		Evidence: map[string]any{"nodes": details},
		Fix: "ask BIRD on one of them: kubectl -n kube-system exec CALICO-NODE-POD -c calico-node -- birdcl -s " +
			"/var/run/calico/bird.ctl show protocols; if no session is configured there, look at labels and " +
			"BGPPeers: theseus check --only bgp",
	}
	switch {
	case len(alone) > 0:
		what.Severity = severity(in)
		what.Message = fmt.Sprintf("BIRD has no %s session that is up on %d of %d nodes (%s)",
			family, len(alone), speakers, check.Names(alone))
		if counted && len(some) == 0 {
			what.Message += fmt.Sprintf(", and the kernel has %d routes from it", routes)
		}
		if len(some) > 0 {
			what.Message += fmt.Sprintf(", and lacks some on %d more (%s)", len(some), check.Names(some))
		}
		what.Message += ": " + meaning(in)
	case len(short) > 0:
		what.Severity = severity(in)
		what.Message = fmt.Sprintf(
			"the %s sessions are up, but on %d of %d nodes (%s) the kernel lacks routes that they announce: "+
				"packets to pods on other nodes follow the default route",
			family, len(short), speakers, check.Names(short))
		what.Fix = "compare on one of them: ip route show proto bird, and kubectl -n kube-system exec " +
			"CALICO-NODE-POD -c calico-node -- birdcl -s /var/run/calico/bird.ctl show route; a daemon " +
			"that manages links may remove BIRD's routes (node/link-manager)"
	case len(some) > 0:
		what.Severity = finding.Warn
		what.Message = fmt.Sprintf(
			"BIRD lacks %s sessions on %d of %d nodes (%s): the remaining sessions still carry all routes",
			family, len(some), speakers, check.Names(some))
	default:
		return nil
	}
	return []finding.Finding{what}
}
