// Package bgp checks what BGP makes of a cluster on Calico, as it is and as a change would leave it.
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

// family is the graph of one address family, now and as the change leaves it; both are the same without one.
type family struct {
	name          string
	before, after *bgp.Graph
	now, then     *bgp.Routes
}

// lacking says what is missing of Calico's objects for an answer. A cluster without Calico has none to ask for.
func lacking(resources ...string) func(*check.Pass) string {
	return func(pass *check.Pass) string {
		if !pass.Snapshot.UsesCalico() {
			if ok, why := pass.Snapshot.Has("daemonsets"); !ok {
				return "daemonsets: " + why + ", so it is not known whether Calico runs here"
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

// modelled says what is missing for a graph: Calico's objects, or one that is small enough.
func modelled(pass *check.Pass) string {
	if why := lacking("bgppeers", "bgpconfigurations")(pass); why != "" || !pass.Snapshot.UsesCalico() {
		return why
	}
	return graphsOf(pass).unmodelled
}

// graphs are what BGP is made of, now and as the change leaves it (both are the same without one), and what
// it makes of that for those address families that nodes have addresses of.
type graphs struct {
	before, after *bgp.Input
	families      []family
	// unmodelled says why a family is not among them.
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

// model makes the families.
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
			g.unmodelled = fmt.Sprintf("the BGPPeers multiply to more than %d peerings (%s), which are not modelled: give nodes a few reflectors "+
				"as their peers, rather than one another", bgp.MaxPeerings, f.name)
			continue
		}
		f.now = f.before.Routes()
		if f.then = f.now; f.after != f.before {
			f.then = f.after.Routes()
		}
		g.families = append(g.families, f)
	}
}

// loss is how many ordered pairs of nodes have a route now and will have none, and the nodes that lose some
// or all of theirs.
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

// onFelix reports whether pods do without BGP's routes, because Felix programs those of every pool.
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

// severity is that of routes that are missing.
func severity(in *bgp.Input) finding.Severity {
	if onFelix(in) {
		return finding.Warn
	}
	return finding.Block
}

// meaning is what it is to have no routes, by pool.
func meaning(in *bgp.Input) string {
	if onFelix(in) {
		return "pods keep talking, since Felix and not BGP programs the routes of every IPPool here; what BGP announces to the outside is lost"
	}
	var felix []string
	for _, p := range in.Pools {
		if p.Felix && !p.Disabled {
			felix = append(felix, p.Name)
		}
	}
	text := "pods stay Running and calico-node stays Ready, while packets between the nodes' pods go nowhere"
	if len(felix) > 0 {
		text += " (except those of " + check.Names(felix) + ", whose routes Felix programs)"
	}
	return text
}

// afterwards says when: as the change leaves it, or now.
func afterwards(pass *check.Pass) string {
	switch {
	case pass.WhatIf == nil:
		return "now"
	case pass.Change.KubernetesTo != "":
		return "after the upgrade to Kubernetes " + pass.Change.KubernetesTo
	case pass.Change.ReplaceNodes != "":
		return "once the nodes are replaced"
	case len(pass.Change.ClusterIDs) > 0:
		return "with other cluster ids"
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

// repairs are the commands that make the selectors of BGPPeers pick the same nodes before the change and
// after; empty when the change takes no label that they go by, or nothing simple helps.
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
			patch = append(patch, fmt.Sprintf("kubectl patch %s --type merge -p %s", shell.Words("bgppeers."+group, object.GetName()), shell.JSON(map[string]any{"spec": changes})))
		}
	}
	slices.Sort(label)
	return strings.Join(append(slices.Compact(label), patch...), " && ")
}

// picks evaluates a selector by other keys, each of which is parsed once.
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
