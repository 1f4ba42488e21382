package bgp

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed partition.md
var partitionDoc string

const partitionID = "bgp/partition"

// Partition reports nodes that do not learn each other's routes.
func Partition() check.Check {
	return check.Check{
		ID:    partitionID,
		Title: "Nodes do not learn each other's routes by BGP",
		Doc:   partitionDoc,
		Needs: []string{"nodes"},
		Lacks: modelled,
		Run:   partition,
	}
}

func partition(pass *check.Pass) []finding.Finding {
	g := graphsOf(pass)
	if !pass.Snapshot.UsesCalico() || !g.after.Started() {
		return nil // bgp/not-started reports it
	}
	var found []finding.Finding
	for _, f := range g.families {
		if f.then.Missing() > 0 {
			found = append(found, partitioned(pass, g.before, f))
		}
	}
	return append(found, filtered(pass, g.before)...)
}

// filtered reports the BGPPeers between nodes that have filters, which the graph ignores.
func filtered(pass *check.Pass, in *bgp.Input) []finding.Finding {
	var found []finding.Finding
	for _, object := range pass.Snapshot.Calico("BGPPeer") {
		filters, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "filters")
		at := slices.IndexFunc(in.Peers, func(p bgp.Peer) bool { return p.Name == object.GetName() })
		peer := &in.Peers[at]
		between := peer.PeerSelector != nil || peer.IP.IsValid() && slices.ContainsFunc(in.Nodes,
			func(n bgp.Node) bool { return n.IPv4 == peer.IP || n.IPv6 == peer.IP })
		if len(filters) == 0 || !between {
			continue
		}
		found = append(found, finding.Finding{
			ID: partitionID, Severity: finding.Info, Subject: subjectOf(object),
			Message: fmt.Sprintf("its filters (%s) decide which routes pass between nodes: the check ignores "+
				"filters, and assumes that all routes pass", check.Names(filters)),
			Evidence: map[string]any{"filters": filters},
			Fix: fmt.Sprintf("check that no rule rejects the pods' ranges: kubectl get bgpfilters.%s %s -o yaml",
				object.GroupVersionKind().Group, shell.Words(filters...)),
		})
	}
	return found
}

func partitioned(pass *check.Pass, in *bgp.Input, g family) finding.Finding {
	missing, now := g.then.Missing(), g.now.Missing()
	alone, some := g.without(g.after, g.then)
	f := finding.Finding{
		ID: partitionID, Severity: severity(in), Subject: finding.Subject{Kind: "Network", Name: "calico"},
		Message: fmt.Sprintf("%s, in %d of %d pairs of nodes the first has no %s route to the second's pods",
			afterwards(pass), missing, g.then.Pairs(), g.name),
		Evidence: map[string]any{
			"pairs": g.then.Pairs(), "missingBefore": now, "missingAfter": missing,
			"sessionsBefore": g.before.Sessions(), "sessionsAfter": g.after.Sessions(),
			"nodesWithoutAnyRoute": alone, "nodesThatLackRoutes": some,
			"reflectors": nodeNames(g.before, g.before.Reflectors()),
		},
	}
	if pass.WhatIf != nil {
		f.Message += fmt.Sprintf(" (today %d)", now)
	}
	if len(alone) > 0 {
		f.Message += fmt.Sprintf("; %d of %d nodes have none at all (%s)",
			len(alone), len(g.after.Speakers()), check.Names(alone))
	}
	if carriers := g.before.Reflectors(); len(carriers) > 0 && missing > now {
		f.Message += fmt.Sprintf("; today the routes depend on %s: %s",
			cluster.Count(len(carriers), "node"), check.Names(nodeNames(g.before, carriers)))
	}
	why := reasons(g.after, g.then)
	if len(why) > 0 {
		f.Message += ": " + strings.Join(why, "; ")
		f.Evidence["reasons"] = why
	}
	f.Message += ". " + strings.ToUpper(meaning(in)[:1]) + meaning(in)[1:]
	if f.Fix = repairs(pass, pass.Snapshot.Calico("BGPPeer")...); f.Fix == "" {
		f.Fix = g.identify()
	}
	if f.Fix == "" {
		f.Fix = "give each node sessions with two reflectors, and the reflectors cluster IDs and " +
			"sessions with each other; draw the graph: theseus check -o svg > bgp.svg"
	}
	return f
}

// identify returns the commands that restore cluster IDs which the change removes.
func (f *family) identify() string {
	var commands []string
	for i := range f.after.Nodes {
		if had := f.before.Nodes[i].ClusterID; had != "" && f.after.Nodes[i].ClusterID == "" {
			commands = append(commands, fmt.Sprintf("kubectl annotate node %s --overwrite %s",
				shell.Word(f.after.Nodes[i].Name), shell.Word(bgp.AnnotationClusterID+"="+had)))
		}
	}
	return strings.Join(commands, " && ")
}

// without returns the nodes that have no route at all, and those that lack some.
func (f *family) without(g *bgp.Graph, r *bgp.Routes) (alone, some []string) {
	speakers := g.Speakers()
	for _, i := range speakers {
		switch lacks := r.Lacks(i); {
		case lacks == len(speakers)-1:
			alone = append(alone, g.Nodes[i].Name)
		case lacks > 0:
			some = append(some, g.Nodes[i].Name)
		}
	}
	return alone, some
}

// reasons returns known mistakes that explain missing routes.
func reasons(g *bgp.Graph, r *bgp.Routes) []string {
	var why []string
	reflectors := g.Reflectors()
	for i, a := range reflectors {
		for _, b := range reflectors[i+1:] {
			if !g.Connected(a, b) && !r.Learns(a, b) && len(g.Peers(a)) > 0 && len(g.Peers(b)) > 0 && len(why) < 5 {
				why = append(why, fmt.Sprintf("the reflectors %s and %s have no session with each other",
					g.Nodes[a].Name, g.Nodes[b].Name))
			}
		}
	}
	for _, half := range g.Halves() {
		if len(why) == 5 {
			break
		}
		from, to := g.Nodes[half.From].Name, g.Nodes[half.To].Name
		if half.Mismatch {
			why = append(why,
				fmt.Sprintf("%s and %s peer, but each expects another AS number than the other has", from, to))
		} else {
			why = append(why, fmt.Sprintf("%s peers with %s, which does not peer back", from, to))
		}
	}
	if mesh := g.MeshSize(); mesh == 1 {
		why = append(why, "only one node is in the full mesh, since all others have a cluster ID")
	}
	return why
}
