package bgp

import (
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed single_reflector.md
var singleReflectorDoc string

const singleReflectorID = "bgp/single-reflector"

// SingleReflector reports nodes whose routes depend on one reflector, or on two that fail together.
func SingleReflector() check.Check {
	return check.Check{
		ID:    singleReflectorID,
		Title: "The loss of one route reflector removes routes from other nodes",
		Doc:   singleReflectorDoc,
		Needs: []string{"nodes"},
		Lacks: modelled,
		Run:   singleReflector,
	}
}

func singleReflector(pass *check.Pass) []finding.Finding {
	g := graphsOf(pass)
	if !pass.Snapshot.UsesCalico() || onFelix(g.after) {
		return nil
	}
	var found []finding.Finding
	for _, f := range g.families {
		one, all := f.after.Losses(1)
		alone := map[int]bool{}
		for _, loss := range one {
			alone[loss.Down[0]] = true
			found = append(found, hangs(pass, f, loss, finding.Warn))
		}
		two, both := f.after.Losses(2)
		for _, loss := range two {
			if !alone[loss.Down[0]] && !alone[loss.Down[1]] {
				found = append(found, hangs(pass, f, loss, finding.Info))
				break // the worst is enough
			}
		}
		if carriers := f.after.Carriers(mostCarriers); len(carriers) > 1 {
			found = append(found, carried(f, carriers))
		}
		if !all || !both {
			found = append(found, finding.Finding{
				ID: singleReflectorID, Severity: finding.Info,
				Subject: finding.Subject{Kind: "Network", Name: "calico"}, Message: fmt.Sprintf(
					"the loss of two reflectors was not simulated for every pair: there are %d reflectors (%s)",
					len(f.after.Reflectors()), f.name),
			})
		}
	}
	return found
}

// mostCarriers is the largest set that is reported: more nodes are unlikely to fail at once.
const mostCarriers = 5

// carried reports the nodes on which all routes depend.
func carried(f family, carriers []int) finding.Finding {
	names := nodeNames(f.after, carriers)
	return finding.Finding{
		ID: singleReflectorID, Severity: finding.Info, Subject: finding.Subject{Kind: "Network", Name: "calico"},
		Message: fmt.Sprintf("all routes depend on %d nodes (%s): without them no other node has an %s "+
			"route to another node's pods. Anything that affects all of them at once, such as a change of "+
			"the label that selects them, ends all traffic between nodes",
			len(names), check.Names(names), f.name),
		Evidence: map[string]any{"carriers": names},
		Fix:      "nothing, if this is intended: never change them together",
	}
}

func hangs(pass *check.Pass, f family, loss bgp.Loss, level finding.Severity) finding.Finding {
	down, cut := nodeNames(f.after, loss.Down), nodeNames(f.after, loss.Cut)
	subject := finding.Subject{Kind: "Node", Name: down[0]}
	text := fmt.Sprintf("if the reflector %s is down, ", down[0])
	if len(down) > 1 {
		subject = finding.Subject{Kind: "Network", Name: "calico"}
		text = fmt.Sprintf("if the reflectors %s are down together, ", check.Names(down))
	}
	return finding.Finding{
		ID: singleReflectorID, Severity: level, Subject: subject,
		Message: fmt.Sprintf("%s, %s%d other nodes lose %s routes to each other's pods (%s), %s of nodes in all",
			afterwards(pass), text, len(cut), f.name, check.Names(cut), cluster.Count(loss.Pairs, "pair")),
		Evidence: map[string]any{"down": down, "nodes": cut, "pairs": loss.Pairs,
			"reflectors": nodeNames(f.after, f.after.Reflectors())},
		Fix: "give these nodes a session with one more reflector: kubectl annotate node NODE " +
			bgp.AnnotationClusterID +
			"=244.0.0.1, then label it so that the BGPPeers' peerSelector matches it (a node that becomes a " +
			"reflector leaves the full mesh at once, and has no routes for about 2 seconds)",
	}
}
