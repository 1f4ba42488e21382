package joint

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/step"
)

// Limits bound which nodes of a wave are changed at once.
//
// Budgets are no limit here: evictions that run at once, on whatever nodes, move one pod of a workload at a time
// (kube.Actor), and the eviction API holds those that a PodDisruptionBudget does not allow yet.
type Limits struct {
	// Most is the largest number of nodes.
	Most int
	// Domains are the failure domains by node; nil if all nodes are in one.
	Domains map[string]string
	// Reflecting are the BGP route reflectors, of which only one is changed at a time.
	Reflecting []string
}

// LimitsOf returns the limits of a change in a cluster.
func LimitsOf(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec) Limits {
	return Limits{
		Most:       cmp.Or(change.MaxParallel, min(max(len(snapshot.Nodes)/20, step.FewAtOnce), step.MostAtOnce)),
		Domains:    Domains(snapshot, change.DomainLabel),
		Reflecting: bgp.FromSnapshot(snapshot).Reflecting(),
	}
}

// DomainLabel is the label that names failure domains, unless the change names another.
func DomainLabel(label string) string { return cmp.Or(label, corev1.LabelTopologyZone) }

// Domains returns the failure domain of each node by a label, empty for nodes without the label; nil if all nodes are
// in one domain.
func Domains(snapshot *cluster.Snapshot, label string) map[string]string {
	domains, several := map[string]string{}, false
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		domains[node.Name] = node.Labels[DomainLabel(label)]
		several = several || domains[node.Name] != domains[snapshot.Nodes[0].Name]
	}
	if !several {
		return nil
	}
	return domains
}

// Groups divides nodes, in their order, into those that are changed at once: at most Most nodes, all of one failure
// domain, with at most one reflector.
func (l Limits) Groups(nodes []string) [][]string {
	var groups [][]string
	start, reflects := 0, false
	for i, node := range nodes {
		reflector := slices.Contains(l.Reflecting, node)
		if i > start && (i-start >= l.Most || l.Domains[node] != l.Domains[nodes[start]] || reflector && reflects) {
			groups, start, reflects = append(groups, nodes[start:i]), i, false
		}
		reflects = reflects || reflector
	}
	if start < len(nodes) {
		groups = append(groups, nodes[start:])
	}
	return groups
}
