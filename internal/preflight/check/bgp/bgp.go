// Package bgp checks the BGP sessions and routes of a cluster on Calico, as they are and as a change would leave them.
package bgp

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/selector"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// family is the graph of one address family, now and after the change. Without a change both are the same.
type family struct {
	name          string
	before, after *bgp.Graph
	now, then     *bgp.Routes
}

// lacking returns which of Calico's objects are missing for an answer. A cluster without Calico needs none.
func lacking(resources ...string) func(*check.Pass) string {
	return func(pass *check.Pass) string {
		if !pass.Snapshot.UsesCalico() {
			if ok, why := pass.Snapshot.Has("daemonsets"); !ok {
				return "daemonsets: " + why + ", so it is unknown whether Calico runs here"
			}
			return ""
		}
		for _, resource := range resources {
			if why := pass.MissingCalico(resource); why != "" {
				return fmt.Sprintf("%s (kubectl get %s -o yaml)", why, pass.Snapshot.CalicoResource(resource))
			}
		}
		return ""
	}
}

// modelled returns why there is no graph: Calico's objects are missing, or the graph would be too large.
func modelled(pass *check.Pass) string {
	if why := lacking("bgppeers", "bgpconfigurations")(pass); why != "" || !pass.Snapshot.UsesCalico() {
		return why
	}
	return graphsOf(pass).unmodelled
}

// graphs are the inputs of BGP, now and after the change (without a change both are the same), and its graphs for
// each address family of which nodes have addresses.
type graphs struct {
	before, after *bgp.Input
	families      []family
	// unmodelled is why a family has no graph.
	unmodelled string
}

func graphsOf(pass *check.Pass) graphs {
	return check.Memo(pass, "bgp", func() graphs {
		g := graphs{before: bgp.FromSnapshot(pass.Snapshot)}
		g.after = g.before
		if pass.WhatIf != nil {
			g.after = bgp.FromSnapshot(pass.WhatIf.After)
		}
		g.model()
		return g
	})
}

// model builds the families.
func (g *graphs) model() {
	for _, six := range []bool{false, true} {
		if !g.before.Speaks(six) {
			continue
		}
		f := family{name: "IPv4", before: bgp.Build(g.before, six)}
		if six {
			f.name = "IPv6"
		}
		if f.after = f.before; g.after != g.before {
			f.after = bgp.Build(g.after, six)
		}
		if f.before == nil || f.after == nil {
			g.unmodelled = fmt.Sprintf("the BGPPeers make more than %d peerings (%s), too many to be "+
				"modelled: let nodes peer with a few reflectors rather than with each other", bgp.MaxPeerings, f.name)
			continue
		}
		f.now = f.before.Routes()
		if f.then = f.now; f.after != f.before {
			f.then = f.after.Routes()
		}
		g.families = append(g.families, f)
	}
}

// loss returns how many ordered pairs of nodes have a route now and will have none, and the nodes that lose some or
// all of their routes.
func (f *family) loss() (pairs int, some, all []string) {
	pairs = max(f.then.Missing()-f.now.Missing(), 0)
	others := len(f.after.Speakers()) - 1
	for _, i := range f.after.Speakers() {
		now, then := f.now.Lacks(i), f.then.Lacks(i)
		if then <= now {
			continue
		}
		some = append(some, f.after.Nodes[i].Name)
		if then == others {
			all = append(all, f.after.Nodes[i].Name)
		}
	}
	return pairs, some, all
}

// onFelix reports whether pods need no routes from BGP, because Felix programs the routes of every pool.
func onFelix(in *bgp.Input) bool {
	enabled := 0
	for _, p := range in.Pools {
		if p.Disabled {
			continue
		}
		if enabled++; !p.Felix {
			return false
		}
	}
	return enabled > 0
}

// severity returns how severe missing routes are.
func severity(in *bgp.Input) finding.Severity {
	if onFelix(in) {
		return finding.Warn
	}
	return finding.Block
}

// meaning returns the consequence of missing routes, by pool.
func meaning(in *bgp.Input) string {
	if onFelix(in) {
		return "pods still reach each other, since Felix and not BGP programs the routes of every IPPool here; " +
			"routes that BGP announces to the outside are lost"
	}
	var felix []string
	for _, p := range in.Pools {
		if p.Felix && !p.Disabled {
			felix = append(felix, p.Name)
		}
	}
	text := "pods stay Running and calico-node stays Ready, but packets between pods on these nodes are lost"
	if len(felix) > 0 {
		text += " (except in the pools " + check.Names(felix) + ", whose routes Felix programs)"
	}
	return text
}

// afterwards returns the time that a finding is about: after the change, or now.
func afterwards(pass *check.Pass) string {
	switch {
	case pass.WhatIf == nil:
		return "now"
	case pass.Change.KubernetesTo != "":
		return "after the upgrade to Kubernetes " + pass.Change.KubernetesTo
	case pass.Change.ReplaceNodes != "":
		return "after the nodes are replaced"
	case len(pass.Change.ClusterIDs) > 0:
		return "with the new cluster IDs"
	}
	return "after the change of labels"
}

func nodeNames(g *bgp.Graph, nodes []int) []string {
	found := make([]string, 0, len(nodes))
	for _, i := range nodes {
		found = append(found, g.Nodes[i].Name)
	}
	return found
}

// repairs returns the commands after which the selectors of BGPPeers match the same nodes before and after the
// change. It is empty if the change removes no label that they use, or if there is no simple repair.
func repairs(pass *check.Pass, peers ...unstructured.Unstructured) string {
	if pass.WhatIf == nil {
		return ""
	}
	var label, patch []string
	for _, object := range peers {
		changes := map[string]any{}
		for _, field := range []string{"nodeSelector", "peerSelector"} {
			text, _, _ := unstructured.NestedString(object.Object, "spec", field)
			parsed, err := selector.Parse(text)
			if text == "" || err != nil {
				continue
			}
			repair := pass.WhatIf.Repair(parsed.Keys(), "route-reflector", picks(parsed))
			if repair == nil {
				continue
			}
			label = append(label, repair.Commands...)
			if len(repair.Rename) > 0 {
				changes[field] = parsed.Rename(repair.Rename).Text()
			}
		}
		if len(changes) > 0 {
			group := object.GroupVersionKind().Group
			patch = append(patch, fmt.Sprintf("kubectl patch %s --type merge -p %s",
				shell.Words("bgppeers."+group, object.GetName()), shell.JSON(map[string]any{"spec": changes})))
		}
	}
	slices.Sort(label)
	return strings.Join(append(slices.Compact(label), patch...), " && ")
}

// picks evaluates a selector with its keys renamed; each renaming is parsed once.
func picks(s *selector.Selector) func(map[string]string, *corev1.Node) bool {
	cache := map[string]*selector.Selector{}
	return func(rename map[string]string, n *corev1.Node) bool {
		if len(rename) == 0 {
			return s.Matches(n.Labels)
		}
		key := fmt.Sprint(rename)
		if cache[key] == nil {
			cache[key] = s.Rename(rename)
		}
		return cache[key].Matches(n.Labels)
	}
}
