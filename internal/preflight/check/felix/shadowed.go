package felix

import (
	"cmp"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/selector"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

//go:embed shadowed_config.md
var shadowedConfigDoc string

const shadowedID = "felix/shadowed-config"

// ShadowedConfig reports FelixConfigurations that select nodes which an older one selects too.
func ShadowedConfig() check.Check {
	return check.Check{
		ID:    shadowedID,
		Title: "Several FelixConfigurations select the same node, and only the oldest applies",
		Doc:   shadowedConfigDoc,
		Needs: []string{"nodes"},
		Lacks: lacks,
		Run:   shadowedConfig,
	}
}

// chosen is a FelixConfiguration that selects nodes.
type chosen struct {
	object   unstructured.Unstructured
	selector *selector.Selector
}

func shadowedConfig(pass *check.Pass) []finding.Finding {
	var all []chosen
	for _, object := range pass.Snapshot.Calico("FelixConfiguration") {
		text, _, _ := unstructured.NestedString(object.Object, "spec", "nodeSelector")
		parsed, err := selector.Parse(text)
		if text != "" && err == nil {
			all = append(all, chosen{object, parsed})
		}
	}
	slices.SortStableFunc(all, func(a, b chosen) int {
		return cmp.Or(a.object.GetCreationTimestamp().Compare(b.object.GetCreationTimestamp().Time),
			strings.Compare(a.object.GetName(), b.object.GetName()))
	})
	nodes := pass.Snapshot.Nodes
	if pass.WhatIf != nil {
		nodes = pass.WhatIf.After.Nodes
	}
	type pair struct{ ignored, counts string }
	shadowed := map[pair][]string{}
	var order []pair
	for i := range nodes {
		counts := ""
		for _, one := range all {
			switch name := one.object.GetName(); {
			case !one.selector.Matches(nodes[i].Labels):
			case counts == "":
				counts = name
			default:
				p := pair{name, counts}
				if shadowed[p] == nil {
					order = append(order, p)
				}
				shadowed[p] = append(shadowed[p], nodes[i].Name)
			}
		}
	}
	var found []finding.Finding
	for _, p := range order {
		found = append(found, finding.Finding{
			ID: shadowedID, Severity: finding.Warn,
			Subject: finding.Subject{Kind: "FelixConfiguration", Name: p.ignored},
			Message: fmt.Sprintf("it has no effect on %s (%s): %s is older and also selects them, and "+
				"Felix uses only the oldest%s",
				cluster.Count(len(shadowed[p]), "node"), check.Names(shadowed[p]), p.counts,
				afterwards(pass, shadowed[p], p.ignored, all)),
			Evidence: map[string]any{"nodes": shadowed[p], "counts": p.counts},
			Fix: "change the selectors so that no two select the same node: kubectl edit " +
				shell.Words(pass.Snapshot.CalicoResource("felixconfigurations"), p.ignored),
		})
	}
	return found
}

// afterwards returns on how many of the nodes a configuration applies today, if the change replaces it there.
func afterwards(pass *check.Pass, nodes []string, name string, all []chosen) string {
	if pass.WhatIf == nil {
		return ""
	}
	lost := 0
	for i := range pass.WhatIf.Before.Nodes {
		n := &pass.WhatIf.Before.Nodes[i]
		if slices.Contains(nodes, n.Name) && firstOf(all, n) == name {
			lost++
		}
	}
	if lost == 0 {
		return ""
	}
	return fmt.Sprintf("; today it applies on %d of them", lost)
}

// firstOf returns the name of the one that applies on a node; empty if none does.
func firstOf(all []chosen, n *corev1.Node) string {
	at := slices.IndexFunc(all, func(one chosen) bool { return one.selector.Matches(n.Labels) })
	if at < 0 {
		return ""
	}
	return all[at].object.GetName()
}
