package plan

import (
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/safeio/shell"
	"github.com/theseus-cni/theseus/internal/step"
)

// inPlace finds the one network that the cluster runs on, where that was run with Theseus.
func inPlace(snapshot *cluster.Snapshot, drivers cni.Registry) (*cni.Installation, error) {
	source, err := inOrder(snapshot, drivers)
	if err == nil && source.Untried != "" {
		return nil, refuse(cni.Elsewhere, "%s", source.Untried)
	}
	return source, err
}

// inOrder finds the one network that the cluster runs on.
func inOrder(snapshot *cluster.Snapshot, drivers cni.Registry) (*cni.Installation, error) {
	if err := UnderWay(snapshot); err != nil {
		return nil, err
	}
	found := drivers.Detect(snapshot)
	switch {
	case len(found) == 0:
		return nil, unknown(snapshot, drivers)
	case len(found) > 1:
		return nil, refuse("theseus check says what each of them serves, and in which order the one that is not used any more goes",
			"two networks were found: %s", strings.Join(namesOf(found), " and "))
	}
	source := found[0]
	if len(source.Problems) > 0 {
		return nil, refuse("repair it first; a migration starts from a network that works",
			"%s is not in order: %s", source.CNI, strings.Join(source.Problems, "; "))
	}
	return source, nil
}

// UnderWay refuses a cluster in the middle of a migration, by this or another tool: advice for a cluster that stands still would do harm.
func UnderWay(snapshot *cluster.Snapshot) error {
	if trace, remedy := halfMigrated(snapshot); trace != "" {
		return refuse("if `theseus status` knows it, finish it (theseus resume) or take it back (theseus rollback); if not: "+remedy,
			"this cluster is in the middle of a migration: %s", trace)
	}
	return nil
}

// unknown says what there is instead of a network that is known.
func unknown(snapshot *cluster.Snapshot, drivers cni.Registry) error {
	hint := "those that it changes are " + strings.Join(drivers.Names(), ", ") + "; theseus check --only cni/unknown says what was looked at"
	if len(snapshot.Facts) == 0 {
		hint = "a network that only nodes' own files make is seen on them alone: theseus snapshot --nodes --agent-image IMAGE -o snapshot.json, " +
			"then --from snapshot.json; " + hint
	}
	if strangers := cni.Strangers(snapshot, nil); len(strangers) > 0 {
		return refuse(cni.Elsewhere+"; "+hint, "no network that Theseus changes was found in this cluster, but %s: Theseus moves only what it understands", some(strangers))
	}
	return refuse(hint, "no network that Theseus knows was found in this cluster")
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
		for _, label := range []string{
			v1alpha1.LabelTarget,
			"projectcalico.org/node-network-during-migration", "projectcalico.org/node-flannel-migration-in-progress", // Calico's own controller
		} {
			if value, ok := node.Labels[label]; ok {
				return fmt.Sprintf("node %s has the label %s=%s", node.Name, label, value), "kubectl label node " + shell.Words(node.Name, label+"-")
			}
		}
		for _, taint := range node.Spec.Taints {
			if taint.Key == v1alpha1.TaintPending {
				return fmt.Sprintf("node %s has the taint %s", node.Name, taint.Key), "kubectl taint node " + shell.Words(node.Name, taint.Key+"-")
			}
		}
	}
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		if pod.Namespace == v1alpha1.Namespace && pod.Labels[v1alpha1.LabelProbe] != "" {
			return fmt.Sprintf("pod %s/%s measures a network", pod.Namespace, pod.Name), "kubectl -n " + shell.Word(pod.Namespace) + " delete pod " + shell.Word(pod.Name)
		}
	}
	for i := range snapshot.DaemonSets {
		if set := &snapshot.DaemonSets[i]; set.Namespace == v1alpha1.Namespace {
			return fmt.Sprintf("DaemonSet %s/%s is there", set.Namespace, set.Name), "kubectl -n " + shell.Word(set.Namespace) + " delete daemonset " + shell.Word(set.Name)
		}
	}
	return "", ""
}

// agentGiven refuses a change without an image of the agent.
func agentGiven(change v1alpha1.ChangeSpec) error {
	if change.AgentImage != "" {
		return nil
	}
	return refuse("say --agent-image with an image of theseus-agent that the nodes can pull", "no image of the agent is given")
}

// nodesReady refuses clusters with nodes that could not take part.
func nodesReady(snapshot *cluster.Snapshot, source *cni.Installation) error {
	if len(snapshot.Nodes) == 0 {
		return refuse("take the snapshot with the right to list nodes", "the snapshot holds no nodes")
	}
	if err := linux(snapshot); err != nil {
		return err
	}
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		if !cluster.NodeReady(node) {
			return refuse("bring the node back, or remove it from the cluster: kubectl delete node "+shell.Word(node.Name),
				"node %s is not Ready, so nothing can be done or measured there", node.Name)
		}
	}
	if len(source.PodCIDRs) == 0 {
		return refuse("the snapshot must hold the network's own configuration", "the address range of %s is not known", source.CNI)
	}
	return nil
}

// movable refuses pods that would be lost, and pods on a network that nobody knows of.
func movable(outlook joint.Outlook, source *cni.Installation) error {
	var lost []string
	for _, w := range outlook.Workloads {
		if w.Treatment == joint.Refuse {
			lost = append(lost, fmt.Sprintf("%s/%s %s", w.Namespace, w.Name, w.Note))
		}
	}
	if len(lost) > 0 {
		return refuse("give them a Deployment, or delete those that are not needed",
			"%s cannot be moved: %s", cluster.Count(len(lost), "pod"), some(lost))
	}
	if len(outlook.Strangers) > 0 {
		return refuse("find out which network these pods are on; Theseus moves only what it understands",
			"%d pods have addresses outside of %s's range %s: %s", len(outlook.Strangers), source.CNI,
			strings.Join(source.PodCIDRs, ", "), some(outlook.Strangers))
	}
	return nil
}

// housed refuses a target with objects in a namespace that neither the cluster nor its manifest has, as charts leave it to helm.
// A snapshot without any namespace does not tell.
func housed(snapshot *cluster.Snapshot, target *cni.Target) error {
	known := map[string]bool{"": true}
	for i := range snapshot.Namespaces {
		known[snapshot.Namespaces[i].Name] = true
	}
	if len(snapshot.Namespaces) == 0 {
		return nil
	}
	for i := range target.Objects {
		if target.Objects[i].GetKind() == "Namespace" {
			known[target.Objects[i].GetName()] = true
		}
	}
	for i := range target.Objects {
		if name := target.Objects[i].GetNamespace(); !known[name] {
			return refuse(fmt.Sprintf("kubectl create namespace %s && kubectl label namespace %s pod-security.kubernetes.io/enforce=privileged, or add it to the manifest", shell.Word(name), shell.Word(name)),
				"%s is of namespace %s, which neither the cluster nor the manifest has", joint.Name(step.RefOf(&target.Objects[i])), name)
		}
	}
	return nil
}

// dispensable refuses a network with which something would go that users wrote.
func dispensable(source *cni.Installation) error {
	if len(source.Written) == 0 {
		return nil
	}
	var names []string
	for _, ref := range source.Written {
		names = append(names, joint.Name(ref))
	}
	return refuse("keep them in a file (kubectl get KIND NAME -o yaml), write those again that are needed as what the next network reads, and delete them",
		"%s that users wrote would go with %s: %s", cluster.Count(len(names), "object"), source.CNI, some(names))
}

func some(items []string) string {
	if len(items) > 3 {
		return strings.Join(items[:3], "; ") + fmt.Sprintf("; and %d more", len(items)-3)
	}
	return strings.Join(items, "; ")
}
