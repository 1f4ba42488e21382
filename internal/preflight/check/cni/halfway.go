package cni

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed half_way.md
var halfWayDoc string

const halfWayID = "cni/half-way"

// HalfWay reports a cluster whose pods or nodes are on different networks.
func HalfWay() check.Check {
	return check.Check{
		ID:    halfWayID,
		Title: "The cluster is half-way between two networks",
		Doc:   halfWayDoc,
		Needs: []string{"nodes", "pods", "source"},
		Run:   halfWay,
	}
}

func halfWay(pass *check.Pass) []finding.Finding {
	return slices.Concat(mixedPods(pass), mixedNodes(pass), twoFiles(pass))
}

// share is the pods of one network.
type share struct {
	pods  []string
	nodes map[string]bool
}

func (s share) String() string {
	return cluster.Count(len(s.pods), "pod") + " on " + cluster.Count(len(s.nodes), "node")
}

// mixedPods assigns pods to networks by their addresses, and reports pods on different networks.
func mixedPods(pass *check.Pass) []finding.Finding {
	all := networks(pass)
	ranges := map[string][]netip.Prefix{}
	for _, network := range all {
		ranges[network.CNI] = check.Prefixes(network.PodCIDRs...)
		if len(ranges[network.CNI]) == 0 {
			return nil // then the network of a pod is unknown
		}
	}
	const nobody = "" // sorts first
	shares := map[string]*share{}
	for i := range pass.Snapshot.Pods {
		pod := &pass.Snapshot.Pods[i]
		address, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil || !check.Moves(pod) {
			continue
		}
		whose := nobody
		for _, network := range all { // the plain bridge, whose ranges are the nodes' own, is the last
			if whose == nobody && slices.ContainsFunc(ranges[network.CNI],
				func(p netip.Prefix) bool { return p.Contains(address) }) {
				whose = network.CNI
			}
		}
		if shares[whose] == nil {
			shares[whose] = &share{nodes: map[string]bool{}}
		}
		shares[whose].pods = append(shares[whose].pods, pod.Namespace+"/"+pod.Name)
		shares[whose].nodes[pod.Spec.NodeName] = true
	}
	var found []finding.Finding
	if lost := shares[nobody]; lost != nil {
		delete(shares, nobody)
		found = append(found, finding.Finding{
			ID: halfWayID, Severity: blocking(pass), Subject: finding.Subject{Kind: "Network", Name: pass.Source.CNI},
			Message: fmt.Sprintf("the addresses of %s belong to no detected network (%s): the network was removed, "+
				"or Theseus does not know it",
				lost, check.Names(lost.pods)),
			Evidence: map[string]any{"pods": lost.pods[:min(len(lost.pods), 20)], "count": len(lost.pods)},
			Fix: "make sure that " + pass.Source.CNI +
				" serves their nodes: on a node that has another network's file in " + confFolder(pass) +
				", move it out first (theseus snapshot --nodes shows it); then restart their workloads one by one. " +
				"A pod without a controller does not come back",
		})
	}
	if len(shares) < 2 {
		return found
	}
	sorted := slices.Sorted(maps.Keys(shares))
	most := slices.MaxFunc(sorted, func(a, b string) int { return len(shares[a].pods) - len(shares[b].pods) })
	var parts []string
	fewer := map[string][]string{}
	for _, name := range sorted {
		part := fmt.Sprintf("%s has %s", name, shares[name])
		if name != most {
			pods := shares[name].pods
			part += " (" + check.Names(pods) + ")"
			fewer[name] = pods[:min(len(pods), 20)]
		}
		parts = append(parts, part)
	}
	return append(found, finding.Finding{
		ID: halfWayID, Severity: blocking(pass), Subject: finding.Subject{Kind: "Network", Name: pass.Source.CNI},
		Message: "pods are on more than one network: " + strings.Join(parts, ", ") +
			"; pods of different networks may not reach each other, and removing a network cuts off its pods",
		Evidence: map[string]any{"shares": parts, "pods": fewer},
		Fix:      wayOut(pass),
	})
}

// wayOut is the order in which a cluster returns to one network without cutting pods off.
func wayOut(pass *check.Pass) string {
	return "if Theseus began it: theseus status, then theseus resume or theseus rollback. If not, return " +
		"to the network that stays: on nodes where the other network's configuration sorts first, move it out of " +
		confFolder(pass) + "; restart the workloads with pods on the other network one by one; when it " +
		"has no pod left, remove it, and check the nodes for its leftovers (theseus snapshot --nodes)"
}

// confFolder names the folder from which the nodes' runtimes take CNI configurations.
func confFolder(pass *check.Pass) string {
	folder := ""
	for i := range pass.Snapshot.Facts {
		if now := pass.Snapshot.Facts[i].ConfFolder(); folder == "" {
			folder = now
		} else if folder != now {
			return "the runtime's CNI folder"
		}
	}
	return cmp.Or(folder, cluster.DefaultConfFolder)
}

func blocking(pass *check.Pass) finding.Severity {
	if pass.Change.To != "" {
		return finding.Block
	}
	return finding.Warn
}

// mixedNodes reports nodes whose CNI configurations serve different networks.
func mixedNodes(pass *check.Pass) []finding.Finding {
	serving := map[string][]string{}
	for i := range pass.Snapshot.Facts {
		if conf, ok := pass.Snapshot.Facts[i].Serving(); ok {
			serving[conf.File] = append(serving[conf.File], pass.Snapshot.Facts[i].Node)
		}
	}
	if len(serving) < 2 {
		return nil
	}
	var parts []string
	for _, file := range slices.Sorted(maps.Keys(serving)) {
		parts = append(parts, fmt.Sprintf("%s on %s (%s)", file, cluster.Count(len(serving[file]), "node"),
			check.Names(serving[file])))
	}
	return []finding.Finding{{
		ID: halfWayID, Severity: blocking(pass), Subject: finding.Subject{Kind: "Network", Name: pass.Source.CNI},
		Message:  "which network new pods are on depends on their node: " + strings.Join(parts, ", "),
		Evidence: map[string]any{"serving": parts},
		Fix:      wayOut(pass),
	}}
}

// twoFiles reports nodes with several CNI configurations, on which only the order of names decides which one serves.
func twoFiles(pass *check.Pass) []finding.Finding {
	several := map[string][]string{}
	for i := range pass.Snapshot.Facts {
		var files []string
		for _, conf := range pass.Snapshot.Facts[i].Confs {
			if conf.Problem == "" && len(conf.Plugins) > 0 && conf.Plugins[0] != "loopback" {
				files = append(files, conf.File)
			}
		}
		if conf, ok := pass.Snapshot.Facts[i].Serving(); ok && strings.HasPrefix(conf.Plugins[0], "multus") {
			continue // it calls the other file's network, and cni/unknown reports it
		}
		if len(files) > 1 {
			list := strings.Join(files, ", ")
			several[list] = append(several[list], pass.Snapshot.Facts[i].Node)
		}
	}
	var found []finding.Finding
	for _, list := range slices.Sorted(maps.Keys(several)) {
		nodes := several[list]
		first, rest, _ := strings.Cut(list, ", ")
		fix := "on each node, if no network in use needs it, move out of " + confFolder(pass) + ": " + rest
		if first != pass.Source.Capabilities.ConfName { // another network has taken over
			fix = wayOut(pass)
		}
		found = append(found, finding.Finding{
			ID: halfWayID, Severity: finding.Warn, Subject: finding.Subject{Kind: "Node", Name: nodes[0]},
			Message: fmt.Sprintf("on %s (%s) there is more than one CNI configuration: %s serves because it sorts "+
				"first, and %s would serve without it",
				cluster.Count(len(nodes), "node"), check.Names(nodes), first, rest),
			Evidence: map[string]any{"files": list, "nodes": nodes[:min(len(nodes), 20)], "count": len(nodes)},
			Fix:      fix,
		})
	}
	return found
}
