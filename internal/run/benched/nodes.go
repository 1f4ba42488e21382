package benched

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// Choose returns the client's node and, if there is one, another: the named ones, or else the first two by name, those
// of the control plane last. All are fit for load.
func Choose(nodes []corev1.Node, names []string) ([]corev1.Node, error) {
	if len(names) > 0 {
		return named(nodes, names)
	}
	usable := slices.DeleteFunc(slices.Clone(nodes), func(n corev1.Node) bool { return unfit(&n) != "" })
	slices.SortFunc(usable, func(a, b corev1.Node) int {
		if a, b := controls(&a), controls(&b); a != b {
			if b {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	if len(usable) == 0 {
		return nil, engine.WithHint(fmt.Errorf("none of %s is Ready, schedulable, without taints and without pressure",
			cluster.Count(len(nodes), "node")),
			"kubectl describe nodes says what is wrong with each")
	}
	return usable[:min(2, len(usable))], nil
}

func named(nodes []corev1.Node, names []string) (chosen []corev1.Node, err error) {
	if len(names) > 2 || len(names) == 2 && names[0] == names[1] {
		return nil, engine.WithHint(fmt.Errorf("--nodes %s is not one or two different "+
			"nodes", strings.Join(names, ",")),
			"name one node, or two different ones: --nodes NODE,NODE")
	}
	for _, name := range names {
		at := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == name })
		if at < 0 {
			return nil, engine.WithHint(fmt.Errorf("there is no node %q", name), "kubectl get nodes lists them")
		}
		if why := unfit(&nodes[at]); why != "" {
			return nil, engine.WithHint(fmt.Errorf("node %s %s", name, why),
				"name nodes that others may use: kubectl get nodes")
		}
		chosen = append(chosen, nodes[at])
	}
	return chosen, nil
}

// controls reports whether a node is of the control plane, by the labels that installers give it.
func controls(node *corev1.Node) bool {
	_, is := node.Labels["node-role.kubernetes.io/control-plane"]
	_, was := node.Labels["node-role.kubernetes.io/master"]
	return is || was
}

// unfit says why a node must not have load; empty if it may.
func unfit(node *corev1.Node) string {
	switch {
	case node.DeletionTimestamp != nil:
		return "is being deleted"
	case !cluster.NodeReady(node):
		return "is not Ready"
	case node.Spec.Unschedulable:
		return "is cordoned"
	}
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute {
			return "has the taint " + taint.ToString()
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady && condition.Status == corev1.ConditionTrue &&
			slices.Contains(ills, condition.Type) {
			return "has the condition " + string(condition.Type)
		}
	}
	if system := node.Labels[corev1.LabelOSStable]; system != "" && system != "linux" {
		return "runs " + system
	}
	return ""
}

// ills are the conditions of a node that has too little of something.
var ills = []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure,
	corev1.NodeNetworkUnavailable}
