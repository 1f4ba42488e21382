package flannel

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// agentsOf are the DaemonSets that run flanneld: one, or one per architecture in old manifests.
func agentsOf(snapshot *cluster.Snapshot) []*appsv1.DaemonSet {
	var found []*appsv1.DaemonSet
	for i := range snapshot.DaemonSets {
		set := &snapshot.DaemonSets[i]
		if imageOf(set.Spec.Template.Spec.Containers, "flannel") != "" {
			found = append(found, set)
		}
	}
	return found
}

// imageOf is the image of the first container whose image's own name (without registry and tag) contains a word.
func imageOf(containers []corev1.Container, word string) string {
	for _, container := range containers {
		name, _ := splitImage(container.Image)
		if strings.Contains(name[strings.LastIndex(name, "/")+1:], word) {
			return container.Image
		}
	}
	return ""
}

func splitImage(image string) (name, tag string) {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[:colon], image[colon+1:]
	}
	return image, ""
}

func configOf(snapshot *cluster.Snapshot, namespaces ...string) *corev1.ConfigMap {
	for _, namespace := range namespaces {
		if found := snapshot.ConfigMap(namespace, configMap); found != nil {
			return found
		}
	}
	return nil
}

// embeddedOn names a node on which k3s runs flannel within its own process. Annotations alone prove
// nothing: they outlive flannel.
func embeddedOn(snapshot *cluster.Snapshot) string {
	for i := range snapshot.Nodes {
		node := &snapshot.Nodes[i]
		if node.Annotations[annotations+"backend-type"] != "" && strings.Contains(node.Status.NodeInfo.KubeletVersion, "+k3s") {
			return node.Name
		}
	}
	return ""
}

func describe(snapshot *cluster.Snapshot, agents []*appsv1.DaemonSet) *cni.Installation {
	agent := agents[0]
	_, version := splitImage(imageOf(agent.Spec.Template.Spec.Containers, "flannel"))
	found := &cni.Installation{
		CNI:      "flannel",
		Version:  version,
		Agent:    daemonSetRef(agent),
		Selector: selectorOf(agent),
	}
	conf, problems := readNetConf(configOf(snapshot, agent.Namespace, ownSpace, "kube-system"))
	found.Problems = problems
	found.PodCIDRs = conf.networks()
	found.Capabilities = capabilities(conf, confFile(agent))
	found.Capabilities.MTU = podMTU(snapshot, conf)
	if image := imageOf(agent.Spec.Template.Spec.Containers, "node"); strings.Contains(image, "calico") {
		found.Problems = append(found.Problems, "DaemonSet "+refName(agent)+" runs Calico beside flannel in one pod (Canal), which is a network of its own")
	}
	for _, set := range agents {
		found.Problems = append(found.Problems, notReady(snapshot, set)...)
	}
	router := policyAgent(snapshot)
	if router != nil {
		ref := daemonSetRef(router)
		found.PolicyAgent = &ref
		found.Capabilities.Policy = cni.PolicyKubernetes
		found.Problems = append(found.Problems, notReady(snapshot, router)...)
	}
	found.Parts = parts(snapshot, agents, router)
	return found
}

func daemonSetRef(set *appsv1.DaemonSet) step.Ref {
	return step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: set.Namespace, Name: set.Name}
}

func refName(set *appsv1.DaemonSet) string { return set.Namespace + "/" + set.Name }

func selectorOf(set *appsv1.DaemonSet) string {
	if set.Spec.Selector == nil {
		return ""
	}
	var pairs []string
	for key, value := range set.Spec.Selector.MatchLabels {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// confFile is the name under which the init container copies the CNI configuration.
func confFile(set *appsv1.DaemonSet) string {
	for _, container := range set.Spec.Template.Spec.InitContainers {
		for _, word := range append(container.Command, container.Args...) {
			if strings.HasSuffix(word, ".conflist") || strings.HasSuffix(word, ".conf") {
				return word[strings.LastIndex(word, "/")+1:]
			}
		}
	}
	return confName
}

// notReady says on how many nodes a DaemonSet's pod is not ready, by its own status, and names those
// that the snapshot's pods show.
func notReady(snapshot *cluster.Snapshot, set *appsv1.DaemonSet) []string {
	status := set.Status
	if status.NumberReady >= status.DesiredNumberScheduled {
		return nil
	}
	var nodes []string
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		owner := snapshot.OwnerOf(pod)
		if owner.Kind == "DaemonSet" && owner.Namespace == set.Namespace && owner.Name == set.Name && !ready(pod) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	where := ""
	if len(nodes) > 0 {
		slices.Sort(nodes)
		where = " (not on " + strings.Join(nodes[:min(len(nodes), 5)], ", ") + ")"
	}
	return []string{fmt.Sprintf("DaemonSet %s is ready on %d of %d nodes%s", refName(set),
		status.NumberReady, status.DesiredNumberScheduled, where)}
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// policyAgent is a kube-router that enforces policy and neither routes nor proxies.
func policyAgent(snapshot *cluster.Snapshot) *appsv1.DaemonSet {
	for i := range snapshot.DaemonSets {
		set := &snapshot.DaemonSets[i]
		containers := set.Spec.Template.Spec.Containers
		if imageOf(containers, "kube-router") == "" {
			continue
		}
		for _, container := range containers {
			args := append(slices.Clone(container.Command), container.Args...)
			if flag(args, "run-firewall") && !flag(args, "run-router") && !flag(args, "run-service-proxy") {
				return set
			}
		}
	}
	return nil
}

// flag reads a boolean flag of kube-router, all of which are true unless they are set.
func flag(args []string, name string) bool {
	for _, arg := range args {
		word := strings.TrimLeft(arg, "-")
		if word == name+"=false" {
			return false
		}
	}
	return true
}
