package bgp

import (
	"cmp"
	_ "embed"
	"fmt"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed cluster_id.md
var clusterIDDoc string

const clusterIDID = "bgp/cluster-id"

// ClusterID reports route reflectors without a cluster ID, or with a harmful one.
func ClusterID() check.Check {
	return check.Check{
		ID:    clusterIDID,
		Title: "A route reflector's cluster ID is missing, wrong, or shared with another reflector",
		Doc:   clusterIDDoc,
		Needs: []string{"nodes"},
		Lacks: modelled,
		Run:   clusterID,
	}
}

func clusterID(pass *check.Pass) []finding.Finding {
	g := graphsOf(pass)
	after := g.after
	if !pass.Snapshot.UsesCalico() || !after.Started() {
		return nil
	}
	var found []finding.Finding
	for i := range after.Nodes {
		if n := &after.Nodes[i]; n.BadClusterID != "" {
			found = append(found, about(n.Name, finding.Warn, fmt.Sprintf(
				"its cluster ID %q is not an IPv4 address: Calico ignores it, and the node reflects no routes",
				n.BadClusterID), ""))
		}
	}
	for _, f := range g.families {
		for _, i := range f.after.Speakers() {
			if f.after.Nodes[i].ClusterID == "" {
				found = append(found, f.hub(i, severity(after))...)
			} else if after.Mesh {
				found = append(found, f.stray(i, severity(after))...)
			}
		}
		found = append(found, f.clashes(severity(after))...)
	}
	return found
}

// about returns a finding whose fix is a cluster ID: the one that the node had, or an unused one.
func about(node string, level finding.Severity, message, id string) finding.Finding {
	return finding.Finding{
		ID: clusterIDID, Severity: level, Subject: finding.Subject{Kind: "Node", Name: node}, Message: message,
		Fix: fmt.Sprintf("kubectl annotate node %s --overwrite %s",
			shell.Word(node), shell.Word(bgp.AnnotationClusterID+"="+cmp.Or(id, "244.0.0.1"))),
	}
}

// stray reports a reflector that has left the mesh and has no peer.
func (f *family) stray(i int, level finding.Severity) []finding.Finding {
	g := f.after
	if g.Degree(i) > 0 || len(g.Outside(i)) > 0 || len(g.Speakers()) == 1 {
		return nil
	}
	name, id := g.Nodes[i].Name, g.Nodes[i].ClusterID
	return []finding.Finding{{
		ID: clusterIDID, Severity: level, Subject: finding.Subject{Kind: "Node", Name: name},
		Message: fmt.Sprintf("its cluster ID %s keeps it out of the full mesh, and no BGPPeer makes a session with "+
			"it: it has no %s routes", id, f.name),
		Evidence: map[string]any{"clusterID": id},
		Fix: fmt.Sprintf("kubectl annotate node %s %s- (it rejoins the mesh), or label it so that the "+
			"peerSelector of a BGPPeer matches it",
			shell.Word(name), bgp.AnnotationClusterID),
	}}
}

// hub reports a node without a cluster ID whose neighbours do not learn each other's routes.
func (f *family) hub(i int, level finding.Severity) []finding.Finding {
	g := f.after
	a, b, found := f.unreflected(i)
	if !found {
		return nil
	}
	why := "it has no cluster ID"
	if f.before.Nodes[i].ClusterID != "" {
		why = "the change removes its cluster ID"
	}
	name := g.Nodes[i].Name
	return []finding.Finding{about(name, level, fmt.Sprintf(
		"%d nodes peer with it as with a route reflector, but %s: it passes no routes on, for example "+
			"not those of %s to %s (%s)",
		g.Degree(i), why, g.Nodes[a].Name, g.Nodes[b].Name, f.name), f.before.Nodes[i].ClusterID)}
}

// unreflected returns two neighbours of a node, of which the second lacks the first's routes.
func (f *family) unreflected(i int) (a, b int, found bool) {
	const most = 50 // neighbours to look at: one example is enough
	peers := f.after.Peers(i)
	peers = peers[:min(len(peers), most)]
	for x, a := range peers {
		for _, b := range peers[x+1:] {
			if !f.then.Learns(b, a) {
				return a, b, true
			}
		}
	}
	return 0, 0, false
}

// clashes reports reflectors with the same cluster ID that each have clients which the other lacks.
func (f *family) clashes(level finding.Severity) []finding.Finding {
	g := f.after
	byID := map[string][]int{}
	for _, i := range g.Reflectors() {
		byID[g.Nodes[i].ClusterID] = append(byID[g.Nodes[i].ClusterID], i)
	}
	var found []finding.Finding
	for _, i := range g.Reflectors() {
		for _, j := range byID[g.Nodes[i].ClusterID] {
			if j <= i {
				continue
			}
			a, b, ok := f.split(i, j)
			if !ok {
				continue
			}
			found = append(found, finding.Finding{
				ID: clusterIDID, Severity: level, Subject: finding.Subject{Kind: "Node", Name: g.Nodes[j].Name},
				Message: fmt.Sprintf("it has the same cluster ID %s as %s, but other clients: neither "+
					"reflects a route that the other has reflected, so %s lacks the routes of %s (%s)",
					g.Nodes[i].ClusterID, g.Nodes[i].Name, g.Nodes[b].Name, g.Nodes[a].Name, f.name),
				Evidence: map[string]any{"clusterID": g.Nodes[i].ClusterID,
					"reflectors": []string{g.Nodes[i].Name, g.Nodes[j].Name}},
				Fix: "give reflectors with different clients different cluster IDs: kubectl annotate node " +
					shell.Word(g.Nodes[j].Name) +
					" --overwrite " + bgp.AnnotationClusterID + "=244.0.0.2",
			})
		}
	}
	return found
}

// split returns a client of one reflector, and a client of another that lacks its routes.
func (f *family) split(i, j int) (a, b int, found bool) {
	only := func(of, not int) []int {
		var clients []int
		for _, p := range f.after.Peers(of) {
			if p != not && f.after.Nodes[p].ClusterID == "" && !f.after.Connected(p, not) {
				clients = append(clients, p)
			}
		}
		return clients
	}
	left, right := only(i, j), only(j, i)
	if len(left) == 0 || len(right) == 0 || f.then.Learns(right[0], left[0]) {
		return 0, 0, false
	}
	return left[0], right[0], true
}
