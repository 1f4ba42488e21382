package cni

import (
	_ "embed"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

//go:embed traces.md
var tracesDoc string

const tracesID = "cni/traces"

// Traces reports what removed networks left in the nodes' kernels.
func Traces() check.Check {
	return check.Check{
		ID:    tracesID,
		Title: "A kernel has rules, tables or blackholes of another network or of unknown origin",
		Doc:   tracesDoc,
		Needs: []string{"source", "nodes", "host"},
		Lacks: func(pass *check.Pass) string {
			for i := range pass.Snapshot.Facts {
				if pass.Snapshot.Facts[i].Host.Traces == nil {
					return "the facts of node " + pass.Snapshot.Facts[i].Node +
						" are of an older agent: run theseus snapshot --nodes again"
				}
			}
			return ""
		},
		Run: kernelTraces,
	}
}

// marks are the iptables chains (as Traces counts them) and the nftables tables that identify a network.
var marks = map[string]struct{ chains, tables []string }{
	"calico":      {[]string{"cali-"}, []string{"ip calico", "ip6 calico"}},
	"cilium":      {[]string{"CILIUM_", "OLD_"}, nil},
	"flannel":     {[]string{"FLANNEL-"}, []string{"ip flannel-ipv4", "ip6 flannel-ipv6"}},
	"kindnet":     {[]string{"KIND-"}, []string{"inet kindnet-network-policies"}},
	"kube-router": {[]string{"KUBE-ROUTER-"}, nil},
	"weave":       {[]string{"WEAVE", "WEAVE-"}, nil},
}

func kernelTraces(pass *check.Pass) []finding.Finding {
	var found []finding.Finding
	for _, name := range slices.Sorted(maps.Keys(marks)) {
		if !pass.Source.Runs(name) && !slices.ContainsFunc(pass.Found,
			func(n *cni.Installation) bool { return n.Runs(name) }) {
			found = append(found, strange(pass, name)...)
		}
	}
	dropped, ruled := map[string][]string{}, map[string][]string{} // nodes, by destination and by rule
	for i := range pass.Snapshot.Facts {
		facts := &pass.Snapshot.Facts[i]
		for _, to := range facts.Host.Traces.Blackholes {
			dropped[to] = append(dropped[to], facts.Node)
		}
		for _, rule := range facts.Host.Traces.Rules {
			ruled[rule] = append(ruled[rule], facts.Node)
		}
	}
	return append(append(found, blackholes(pass, dropped)...), rules(ruled)...)
}

// strange reports the rules of a network that does not run.
func strange(pass *check.Pass, name string) []finding.Finding {
	var nodes []string
	what := map[string]bool{}
	for i := range pass.Snapshot.Facts {
		had := len(what)
		traces := pass.Snapshot.Facts[i].Host.Traces
		seen := false
		for _, prefix := range marks[name].chains {
			if traces.Chains[prefix] > 0 {
				seen, what["chains "+prefix+"*"] = true, true
			}
		}
		for _, table := range marks[name].tables {
			if slices.Contains(traces.NFTables, table) {
				seen, what["the nft table "+table] = true, true
			}
		}
		if seen || len(what) > had {
			nodes = append(nodes, pass.Snapshot.Facts[i].Node)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	left := slices.Sorted(maps.Keys(what))
	f := finding.Finding{
		ID: tracesID, Severity: finding.Warn, Subject: finding.Subject{Kind: "Network", Name: name},
		Message: fmt.Sprintf("%s does not run, but its rules are in the kernels of %s (%s): %s. Packets still "+
			"traverse them, and no agent updates them",
			name, cluster.Count(len(nodes), "node"), check.Names(nodes), strings.Join(left, ", ")),
		Evidence: map[string]any{"nodes": nodes[:min(len(nodes), 20)], "count": len(nodes), "left": left},
		Fix: "if " + name + " was removed permanently, follow its own instructions for its removal, or " +
			"drain the node and restart it: that removes the rules too",
	}
	if name == pass.Change.To {
		f.Message += ". A new agent would treat them as its own"
	}
	return []finding.Finding{f}
}

// blackholes reports destinations to which packets are dropped, except those with which a network in the cluster
// protects its own unused addresses.
func blackholes(pass *check.Pass, dropped map[string][]string) []finding.Finding {
	var own []netip.Prefix
	for _, network := range networks(pass) {
		own = append(own, check.Prefixes(network.PodCIDRs...)...)
	}
	var target []string
	if pass.Target != nil {
		target = pass.Target.PodCIDRs
	}
	var found []finding.Finding
	for _, to := range slices.Sorted(maps.Keys(dropped)) {
		nodes := dropped[to]
		for _, prefix := range check.Prefixes(to) {
			if slices.ContainsFunc(own, prefix.Overlaps) {
				continue
			}
			f := finding.Finding{
				ID: tracesID, Severity: finding.Warn, Subject: finding.Subject{Kind: "Route", Name: to},
				Message: fmt.Sprintf("packets to %s are dropped on %s (%s), and it is not a range of %s: "+
					"the route is a leftover of a former network, or intentional",
					to, cluster.Count(len(nodes), "node"), check.Names(nodes), pass.Source.CNI),
				Evidence: map[string]any{"nodes": nodes[:min(len(nodes), 20)], "count": len(nodes)},
				Fix: "find the program that made the route (ip route show table all type blackhole " +
					"shows its table and protocol); if no program on the node uses it: ip route delete blackhole " + to,
			}
			if slices.ContainsFunc(check.Prefixes(target...), prefix.Overlaps) {
				f.Severity = finding.Block
				f.Message += "; the target's pods would get addresses in it"
			}
			found = append(found, f)
		}
	}
	return found
}

// rules reports policy routing rules, which take precedence over the routes of pods.
func rules(ruled map[string][]string) []finding.Finding {
	if len(ruled) == 0 {
		return nil
	}
	texts := slices.Sorted(maps.Keys(ruled))
	var nodes []string
	for _, text := range texts {
		nodes = append(nodes, ruled[text]...)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	return []finding.Finding{{
		ID: tracesID, Severity: finding.Info, Subject: finding.Subject{Kind: "Node", Name: nodes[0]},
		Message: fmt.Sprintf("on %s there are policy routing rules in addition to the kernel's own (%s), such as "+
			"%q: packets that match them bypass the routes of both networks in the main table",
			cluster.Count(len(nodes), "node"), check.Names(nodes), texts[0]),
		Evidence: map[string]any{"rules": texts[:min(len(texts), 20)], "count": len(texts)},
		Fix:      "find the program that made them (ip rule show), and check whether they match pods' packets",
	}}
}
