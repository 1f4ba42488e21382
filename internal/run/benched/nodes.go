package benched

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Choose returns the client's node and, if there is one, another: the named ones, or else the first two by name that are Ready and that
// ordinary pods may use.
func Choose(nodes []corev1.Node, names []string) ([]corev1.Node, error) {
	if len(names) > 0 {
		return named(nodes, names)
	}
	usable := slices.DeleteFunc(slices.Clone(nodes), func(n corev1.Node) bool {
		return !cluster.NodeReady(&n) || n.Spec.Unschedulable || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
		})
	})
	slices.SortFunc(usable, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	if len(usable) == 0 {
		return nil, engine.WithHint(fmt.Errorf("none of %s is Ready, schedulable and without taints", cluster.Count(len(nodes), "node")),
			"name the nodes: --nodes NODE,NODE")
	}
	return usable[:min(2, len(usable))], nil
}

func named(nodes []corev1.Node, names []string) (chosen []corev1.Node, err error) {
	if len(names) > 2 || len(names) == 2 && names[0] == names[1] {
		return nil, engine.WithHint(fmt.Errorf("%s are no pair of nodes", strings.Join(names, ",")), "name one node, or two different ones: --nodes NODE,NODE")
	}
	for _, name := range names {
		at := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == name })
		if at < 0 {
			return nil, engine.WithHint(fmt.Errorf("there is no node %q", name), "kubectl get nodes lists them")
		}
		if !cluster.NodeReady(&nodes[at]) {
			return nil, engine.WithHint(fmt.Errorf("node %s is not Ready", name), "name nodes that are: kubectl get nodes")
		}
		chosen = append(chosen, nodes[at])
	}
	return chosen, nil
}
