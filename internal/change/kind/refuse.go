package kind

import (
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// Refusal says why Theseus makes no plan, and how the user can fix that.
type Refusal = cni.Refusal

// Refuse is a refusal, with what the user can do about it.
func Refuse(hint, format string, args ...any) error {
	return &Refusal{Message: fmt.Sprintf(format, args...), Hint: hint}
}

// InPlace finds the one network that the cluster runs on, where that was run with Theseus.
func InPlace(snapshot *cluster.Snapshot, drivers cni.Registry) (*cni.Installation, error) {
	source, err := InOrder(snapshot, drivers)
	if err == nil && source.Untried != "" {
		return nil, Refuse(source.Way(), "%s", source.Untried)
	}
	return source, err
}

// InOrder finds the one network that the cluster runs on.
func InOrder(snapshot *cluster.Snapshot, drivers cni.Registry) (*cni.Installation, error) {
	if err := UnderWay(snapshot); err != nil {
		return nil, err
	}
	found := drivers.Detect(snapshot)
	switch {
	case len(found) == 0:
		return nil, NoneKnown(snapshot, drivers)
	case len(found) > 1:
		return nil, Refuse("theseus check says which nodes each of them serves, and how to remove the one that is no "+
			"longer used",
			"two networks were found: %s", strings.Join(namesOf(found), " and "))
	}
	source := found[0]
	if source.Instead != "" {
		return nil, Refuse(source.Instead, "%s", source.Untried)
	}
	if len(source.Problems) > 0 {
		return nil, Refuse("repair it first; a migration starts from a network that works",
			"%s has a problem: %s", source.CNI, strings.Join(source.Problems, "; "))
	}
	return source, nil
}

// UnderWay refuses a cluster in the middle of a migration, by this or another tool: advice for a cluster that stands
// still would do harm.
func UnderWay(snapshot *cluster.Snapshot) error {
	if trace, remedy := halfMigrated(snapshot); trace != "" {
		return Refuse("if `theseus status` shows it, continue it (theseus resume) or roll it back (theseus "+
			"rollback); otherwise: "+remedy,
			"this cluster is in the middle of a migration: %s", trace)
	}
	return nil
}

// NoneKnown says what there is instead of a network that is known.
func NoneKnown(snapshot *cluster.Snapshot, drivers cni.Registry) error {
	hint := "Theseus recognises " + strings.Join(drivers.Names(), ", ") + "; docs/networks.md says which of them it " +
		"can replace; theseus check --only cni/unknown lists what it looked at"
	if len(snapshot.Facts) == 0 {
		hint = "a network that consists only of files on the nodes is visible only there: theseus snapshot --nodes " +
			"--agent-image IMAGE -o snapshot.json, then --from snapshot.json; " + hint
	}
	var seen []string
	for _, stranger := range cni.Strangers(snapshot, nil) {
		if stranger.Why != "" && !stranger.Chained {
			return Refuse(stranger.Instead, "this cluster runs %s, which Theseus cannot replace: %s", stranger,
				stranger.Why)
		}
		seen = append(seen, stranger.String())
	}
	if len(seen) > 0 {
		return Refuse(cni.Elsewhere+"; "+hint, "Theseus cannot change the network of this cluster, and found only "+
			"%s: Theseus changes only networks that it knows", Some(seen))
	}
	return Refuse(hint, "this cluster has no network that Theseus knows")
}

func namesOf(found []*cni.Installation) []string {
	var names []string
	for _, installation := range found {
		name := installation.CNI
		if len(installation.Problems) > 0 {
			name += " (" + installation.Problems[0] + ")"
		}
		names = append(names, name)
	}
	return names
}

// halfMigrated names a trace of a migration by this or another tool, and what removes it; empty when there is none.
func halfMigrated(snapshot *cluster.Snapshot) (trace, remedy string) {
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		for _, label := range append([]string{v1alpha1.LabelTarget}, cni.MigrationLabels()...) {
			if value, ok := node.Labels[label]; ok {
				return fmt.Sprintf("node %s has the label %s=%s", node.Name, label, value), "kubectl label node " +
					shell.Words(node.Name, label+"-")
			}
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == v1alpha1.TaintPending {
				return fmt.Sprintf("node %s has the taint %s", node.Name, taint.Key), "kubectl taint node " +
					shell.Words(node.Name, taint.Key+"-")
			}
		}
	}
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		if pod.Namespace == v1alpha1.Namespace && pod.Labels[v1alpha1.LabelProbe] != "" {
			return fmt.Sprintf("%s/%s is a probe pod of Theseus", pod.Namespace, pod.Name), "kubectl -n " +
				shell.Word(pod.Namespace) + " delete pod " + shell.Word(pod.Name)
		}
	}
	for i := range snapshot.DaemonSets {
		if set := &snapshot.DaemonSets[i]; set.Namespace == v1alpha1.Namespace {
			return fmt.Sprintf("DaemonSet %s/%s exists", set.Namespace, set.Name), "kubectl -n " +
				shell.Word(set.Namespace) + " delete daemonset " + shell.Word(set.Name)
		}
	}
	return "", ""
}

// ReadyOn is InPlace for what can be changed of one network alone, on nodes that can take part; hint says what that is.
func ReadyOn(network string, snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry,
	hint string) (*cni.Installation, error) {
	source, err := InPlace(snapshot, drivers)
	if err != nil {
		return nil, err
	}
	if source.CNI != network {
		return nil, Refuse(hint, "this cluster is on %s", source.CNI)
	}
	if err := NodesReady(snapshot, source); err != nil {
		return nil, err
	}
	return source, AgentGiven(change)
}

// Unknown refuses a network to come that no driver knows.
func Unknown(network string, drivers cni.Registry) error {
	return Refuse("known networks: "+strings.Join(drivers.Names(), ", ")+
		"; docs/networks.md lists the possible targets", "the network %q is not known", network)
}

// Linux refuses nodes of another operating system.
func Linux(snapshot *cluster.Snapshot) error {
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		if os := node.Labels["kubernetes.io/os"]; os != "" && os != "linux" {
			return Refuse("Theseus changes only clusters of Linux nodes; "+cni.Elsewhere,
				"node %s runs %s, not Linux", node.Name, os)
		}
	}
	return nil
}

// AgentGiven refuses a change without an image of the agent.
func AgentGiven(change v1alpha1.ChangeSpec) error {
	if change.AgentImage != "" {
		return nil
	}
	return Refuse("name an image of theseus-agent that the nodes can pull: --agent-image IMAGE",
		"no image of the agent is given")
}

// NodesReady refuses clusters with nodes that could not take part, or on a network whose addresses are not known.
func NodesReady(snapshot *cluster.Snapshot, source *cni.Installation) error {
	if err := EveryNodeReady(snapshot); err != nil {
		return err
	}
	if len(source.PodCIDRs) == 0 {
		return Refuse("the snapshot must contain the network's own configuration",
			"the address range of %s is not known", source.CNI)
	}
	return nil
}

// EveryNodeReady refuses clusters with nodes that could not take part.
func EveryNodeReady(snapshot *cluster.Snapshot) error {
	if len(snapshot.Nodes) == 0 {
		return Refuse("take the snapshot as a user who may list nodes", "the snapshot contains no nodes")
	}
	if err := Linux(snapshot); err != nil {
		return err
	}
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		if !cluster.NodeReady(node) {
			return Refuse("bring the node back, or remove it from the cluster: kubectl delete node "+
				shell.Word(node.Name),
				"node %s is not Ready, so Theseus can neither change nor measure it", node.Name)
		}
	}
	return nil
}

// Movable refuses pods that would be lost, and pods on an unknown network.
func Movable(outlook joint.Outlook, source *cni.Installation) error {
	var lost []string
	for _, w := range outlook.Workloads {
		if w.Treatment == joint.Refuse {
			lost = append(lost, fmt.Sprintf("%s/%s: %s", w.Namespace, w.Name, w.Note))
		}
	}
	if len(lost) > 0 {
		return Refuse("give them a Deployment, or delete those that are not needed",
			"%s cannot be moved: %s", cluster.Count(len(lost), "pod"), Some(lost))
	}
	if len(outlook.Strangers) > 0 {
		return Refuse("find out which network these pods are on; Theseus changes only networks that it knows",
			"%d pods have addresses outside of %s's range %s: %s", len(outlook.Strangers), source.CNI,
			strings.Join(source.PodCIDRs, ", "), Some(outlook.Strangers))
	}
	return nil
}

// Some names three of many.
func Some(items []string) string {
	if len(items) > 3 {
		return strings.Join(items[:3], "; ") + fmt.Sprintf("; and %d more", len(items)-3)
	}
	return strings.Join(items, "; ")
}
