package cilium

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// agentIn returns the DaemonSet that runs the agent, in any namespace and with any image registry.
func agentIn(snapshot *cluster.Snapshot) *appsv1.DaemonSet {
	for i := range snapshot.DaemonSets {
		if agentOf(&snapshot.DaemonSets[i].Spec.Template.Spec) != nil {
			return &snapshot.DaemonSets[i]
		}
	}
	return nil
}

func agentOf(pod *corev1.PodSpec) *corev1.Container {
	for i := range pod.Containers {
		if pod.Containers[i].Name == container {
			return &pod.Containers[i]
		}
	}
	return nil
}

// startHook is the postStart command of a container.
func startHook(c *corev1.Container) []string {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil || c.Lifecycle.PostStart.Exec == nil {
		return nil
	}
	return c.Lifecycle.PostStart.Exec.Command
}

func describe(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet) *cni.Installation {
	config := snapshot.ConfigMap(agent.Namespace, configName)
	s := read(config).scripted(startHook(agentOf(&agent.Spec.Template.Spec)))
	release := cluster.ImageOf(agentOf(&agent.Spec.Template.Spec).Image).Tag
	found := &cni.Installation{
		CNI:          "cilium",
		Version:      release,
		Agent:        cni.DaemonSetRef(agent),
		Selector:     cni.SelectorOf(agent),
		ConfFolder:   cni.HostFolder(agent, path.Clean(confDir)),
		PluginFolder: cni.HostFolder(agent, pluginDir),
		PodCIDRs:     s.pools(),
		Capabilities: s.capabilities(),
		Parts:        parts(snapshot, agent),
		Untried:      untried + s.alsoUntried(),
		Defect:       s.stale(release),
	}
	if s["ipam"] == "kubernetes" {
		found.PodCIDRs = cni.NodeRanges(snapshot)
	}
	mode := s["cni-chaining-mode"]
	switch chained := mode != "" && mode != "none"; {
	case chained:
		found.As = "Cilium chained to another network"
		found.Untried = "Cilium is chained behind another network here (cni-chaining-mode " + mode + "), which gives " +
			"pods their addresses: Theseus changes neither of the two"
		found.Instead = cni.Elsewhere + "; " + cni.Measured
		return found
	case clouds[s["ipam"]] != "":
		found.Untried = "Cilium gets the addresses of pods from " + clouds[s["ipam"]] + " here (ipam " + s["ipam"] +
			"): they belong to the nodes' own interfaces, and Theseus knows neither their ranges nor how to give " +
			"them back"
		found.Instead = cni.Elsewhere + "; " + cni.Measured
		return found
	case config == nil:
		found.Problems = append(found.Problems, "ConfigMap "+agent.Namespace+"/"+configName+
			" does not exist, so Theseus does not know Cilium's settings")
	default:
		found.Problems = append(found.Problems, s.odd()...)
	}
	if !slices.ContainsFunc(snapshot.Deployments,
		func(d appsv1.Deployment) bool { return d.Namespace == agent.Namespace && d.Name == "cilium-operator" }) {
		found.Problems = append(found.Problems, "the Deployment cilium-operator, which gives new nodes their ranges, "+
			"does not exist: Cilium was removed or installed only in part")
	}
	found.Problems = append(found.Problems, halfUpgraded(snapshot, agent, release)...)
	found.Problems = append(found.Problems, cni.Unfinished(agent, s["write-cni-conf-when-ready"])...)
	found.Problems = append(found.Problems, perNode(snapshot, s)...)
	found.Problems = append(found.Problems, cni.NotReady(snapshot, agent)...)
	return found
}

// clouds are those that give Cilium addresses, by its value of ipam.
var clouds = map[string]string{"eni": "AWS", "azure": "Azure", "alibabacloud": "Alibaba Cloud"}

// halfUpgraded reports an operator of another version than the agents. Helm applies both together, so an upgrade
// failed or was interrupted; Helm then keeps a release that is pending or failed. Helm stores that in Secrets alone,
// and Theseus reads no Secrets: who may list them can read all of them.
func halfUpgraded(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet, release string) []string {
	own, err := version.ParseSemantic(release)
	if err != nil {
		return nil
	}
	for i := range snapshot.Deployments {
		d := &snapshot.Deployments[i]
		if d.Namespace != agent.Namespace || d.Name != operatorName {
			continue
		}
		for _, c := range d.Spec.Template.Spec.Containers {
			tag := cluster.ImageOf(c.Image).Tag
			other, err := version.ParseSemantic(tag)
			if c.Name != operatorName || err != nil || other.EqualTo(own) {
				continue
			}
			return []string{fmt.Sprintf("the agents are of %s and the operator of %s: an upgrade failed or was "+
				"interrupted. Finish it or take it back with the tool that began it, such as helm history and helm "+
				"rollback", release, tag)}
		}
	}
	return nil
}

// telling are the keys that must be equal on all nodes: nodes with different values are effectively on different
// networks.
func telling() []string {
	return []string{"cni-chaining-mode", "cni-exclusive", "custom-cni-conf", "kube-proxy-replacement", "routing-mode",
		"tunnel-port", "tunnel-protocol", "write-cni-conf-when-ready"}
}

// perNode reports CiliumNodeConfigs that make the agents of some nodes differ from the others.
func perNode(snapshot *cluster.Snapshot, s settings) []string {
	var problems []string
	for _, object := range snapshot.OtherOf(group, "CiliumNodeConfig") {
		who := "CiliumNodeConfig " + object.GetNamespace() + "/" + object.GetName()
		var wanted metav1.LabelSelector
		field, _, _ := unstructured.NestedMap(object.Object, "spec", "nodeSelector")
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(field, &wanted)
		var chosen labels.Selector
		if err == nil {
			chosen, err = metav1.LabelSelectorAsSelector(&wanted)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf(
				"%s has a nodeSelector that cannot be read (%v), so Theseus does not know which nodes it "+
					"selects", who, err))
			continue
		}
		nodes := 0
		for i := range snapshot.Nodes {
			if chosen.Matches(labels.Set(snapshot.Nodes[i].Labels)) {
				nodes++
			}
		}
		defaults, _, _ := unstructured.NestedStringMap(object.Object, "spec", "defaults")
		var differ []string
		for _, key := range slices.Sorted(maps.Keys(defaults)) {
			if slices.Contains(telling(), key) && defaults[key] != s[key] {
				differ = append(differ, key+"="+defaults[key])
			}
		}
		if nodes > 0 && len(differ) > 0 {
			problems = append(problems, fmt.Sprintf("%s gives %d of %d nodes %s: a migration was begun and is not "+
				"finished, or the value still has to be made permanent in %s",
				who, nodes, len(snapshot.Nodes), strings.Join(differ, ", "), configName))
		}
	}
	return problems
}

// parts lists Cilium's objects in the order in which they can be deleted. Roles and ServiceAccounts are not in a
// snapshot; their names are the chart's, and deleting an object that does not exist is harmless.
func parts(snapshot *cluster.Snapshot, agent *appsv1.DaemonSet) []step.Ref {
	var all []step.Ref
	add := func(apiVersion, kind string, names ...string) {
		for _, name := range names {
			all = append(all, step.Ref{APIVersion: apiVersion, Kind: kind, Namespace: agent.Namespace, Name: name})
		}
	}
	for _, d := range snapshot.Deployments {
		if d.Namespace == agent.Namespace &&
			slices.Contains([]string{"cilium-operator", "hubble-relay", "hubble-ui"}, d.Name) {
			add("apps/v1", "Deployment", d.Name)
		}
	}
	all = append(all, cni.DaemonSetRef(agent))
	for _, d := range snapshot.DaemonSets {
		if d.Namespace == agent.Namespace && d.Name == "cilium-envoy" {
			all = append(all, cni.DaemonSetRef(&d))
		}
	}
	for _, s := range snapshot.Services {
		if s.Namespace == agent.Namespace && slices.Contains([]string{"cilium-agent", "cilium-envoy", "hubble-metrics",
			"hubble-peer", "hubble-relay", "hubble-ui"}, s.Name) {
			add("v1", "Service", s.Name)
		}
	}
	for _, name := range []string{configName, "cilium-envoy-config"} {
		if snapshot.ConfigMap(agent.Namespace, name) != nil {
			add("v1", "ConfigMap", name)
		}
	}
	for _, name := range []string{"cilium-config-agent", "cilium-operator-ztunnel"} {
		add(rbac, "RoleBinding", name)
		add(rbac, "Role", name)
	}
	all = append(all, cni.Rights(agent, agentName)...)
	all = append(all, step.Ref{APIVersion: rbac, Kind: "ClusterRoleBinding", Name: "cilium-operator"},
		step.Ref{APIVersion: rbac, Kind: "ClusterRole", Name: "cilium-operator"})
	add("v1", "ServiceAccount", "cilium-operator", "cilium-envoy")
	for _, n := range snapshot.Namespaces {
		if n.Name == secretsName && n.Labels["app.kubernetes.io/part-of"] == agentName {
			all = append(all, step.Ref{APIVersion: "v1", Kind: "Namespace", Name: n.Name}) // with the roles in it
		}
	}
	for _, crd := range snapshot.OtherOf("apiextensions.k8s.io", "CustomResourceDefinition") {
		if strings.HasSuffix(crd.GetName(), "."+group) {
			all = append(all, step.RefOf(&crd))
		}
	}
	return all
}
