package bgp

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed sessions_reset.md
var sessionsResetDoc string

const sessionsResetID = "bgp/sessions-reset"

// SessionsReset reports routes that exist before and after the change, but not in between.
func SessionsReset() check.Check {
	return check.Check{
		ID:    sessionsResetID,
		Title: "The change resets BGP sessions, and routes are missing until they are up again",
		Doc:   sessionsResetDoc,
		Needs: []string{"nodes"},
		Lacks: modelled,
		Run:   sessionsReset,
	}
}

func sessionsReset(pass *check.Pass) []finding.Finding {
	g := graphsOf(pass)
	if !pass.Snapshot.UsesCalico() || !g.after.Started() || pass.WhatIf == nil {
		return nil
	}
	var found []finding.Finding
	for _, f := range g.families {
		kept := f.before.Kept(f.after)
		if kept.Sessions() == f.after.Sessions() {
			continue // no session is reset
		}
		pairs, nodes := bgp.Interrupted(f.now, kept.Routes(), f.then)
		if pairs == 0 {
			continue
		}
		names := nodeNames(f.after, nodes)
		level := finding.Warn
		if onFelix(g.after) {
			level = finding.Info
		}
		found = append(found, finding.Finding{
			ID: sessionsResetID, Severity: level, Subject: finding.Subject{Kind: "Network", Name: "calico"},
			Message: fmt.Sprintf("the change ends %d of %d %s sessions, and their replacements begin about 2 "+
				"seconds later: until then, in %d of %d pairs of nodes the first has no route to the second's "+
				"pods, on %s (%s), although it has one before and after",
				f.before.Sessions()-kept.Sessions(), f.before.Sessions(), f.name, pairs, f.then.Pairs(),
				cluster.Count(len(names), "node"), check.Names(names)),
			Evidence: map[string]any{"sessions": f.before.Sessions(), "kept": kept.Sessions(),
				"after": f.after.Sessions(), "pairs": pairs, "nodes": names},
			Fix: "give every node a second path in the meantime: change one reflector at a time, begin with a " +
				"drained node (kubectl drain), and create the BGPPeers with the new reflectors " +
				"before any node leaves the mesh",
		})
	}
	return found
}
