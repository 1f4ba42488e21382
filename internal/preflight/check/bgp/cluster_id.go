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

// ClusterID finds route reflectors without a cluster id, or with one that does harm.
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
			found = append(found, about(n.Name, finding.Warn, fmt.Sprintf("its cluster id %q is no IPv4 address: Calico takes the node for one without, and it reflects nothing", n.BadClusterID), ""))
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

// about is a finding whose fix is a cluster id: the one that the node had, or one that nobody has.
func about(node string, level finding.Severity, message, id string) finding.Finding {
	return finding.Finding{
		ID: clusterIDID, Severity: level, Subject: finding.Subject{Kind: "Node", Name: node}, Message: message,
		Fix: fmt.Sprintf("kubectl annotate node %s --overwrite %s", shell.Word(node), shell.Word(bgp.AnnotationClusterID+"="+cmp.Or(id, "244.0.0.1"))),
	}
}

// stray finds a reflector that is out of the mesh, and peers with nobody.
func (f *family) stray(i int, level finding.Severity) []finding.Finding {
	g := f.after
	if g.Degree(i) > 0 || len(g.Outside(i)) > 0 || len(g.Speakers()) == 1 {
		return nil
	}
	name, id := g.Nodes[i].Name, g.Nodes[i].ClusterID
	return []finding.Finding{{
		ID: clusterIDID, Severity: level, Subject: finding.Subject{Kind: "Node", Name: name},
		Message:  fmt.Sprintf("its cluster id %s keeps it out of the full mesh, and no BGPPeer makes a session with it: it has no %s routes", id, f.name),
		Evidence: map[string]any{"clusterID": id},
		Fix:      fmt.Sprintf("kubectl annotate node %s %s- (it goes back into the mesh), or label it as the BGPPeers' peerSelector wants it", shell.Word(name), bgp.AnnotationClusterID),
	}}
}

// hub finds a node without a cluster id whose neighbours do not learn each other's routes.
func (f *family) hub(i int, level finding.Severity) []finding.Finding {
	g := f.after
	a, b, found := f.unreflected(i)
	if !found {
		return nil
	}
	why := "it has no cluster id"
	if f.before.Nodes[i].ClusterID != "" {
		why = "the cluster id that it has today is gone"
	}
	name := g.Nodes[i].Name
	return []finding.Finding{about(name, level, fmt.Sprintf(
		"%d nodes peer with it as with a route reflector, and %s: it passes no routes on, such as those of %s to %s (%s)",
		g.Degree(i), why, g.Nodes[a].Name, g.Nodes[b].Name, f.name), f.before.Nodes[i].ClusterID)}
}

// unreflected finds two neighbours of a node of which one lacks the other's routes.
func (f *family) unreflected(i int) (a, b int, found bool) {
	const most = 50 // neighbours to look at: one witness is enough
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

// clashes finds reflectors of one cluster of which each has clients that the other has not.
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
				Message: fmt.Sprintf("it has the cluster id %s of %s, and not the same clients: a route that one of them reflected is not reflected by the other, so %s lacks those of %s (%s)",
					g.Nodes[i].ClusterID, g.Nodes[i].Name, g.Nodes[b].Name, g.Nodes[a].Name, f.name),
				Evidence: map[string]any{"clusterID": g.Nodes[i].ClusterID, "reflectors": []string{g.Nodes[i].Name, g.Nodes[j].Name}},
				Fix:      "give reflectors with different clients different cluster ids: kubectl annotate node " + shell.Word(g.Nodes[j].Name) + " --overwrite " + bgp.AnnotationClusterID + "=244.0.0.2",
			})
		}
	}
	return found
}

// split finds a client of one reflector and a client of another one that lacks its routes.
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
