package cni

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

const rbac = "rbac.authorization.k8s.io/v1"

// ImageOf returns the image of the first container whose image name (without registry and tag) contains a word.
func ImageOf(containers []corev1.Container, word string) string {
	for _, container := range containers {
		if strings.Contains(cluster.ImageOf(container.Image).Base, word) {
			return container.Image
		}
	}
	return ""
}

// DaemonSetRef names a DaemonSet.
func DaemonSetRef(set *appsv1.DaemonSet) step.Ref {
	return step.Ref{APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: set.Namespace, Name: set.Name}
}

// HostFolder is the folder of the node that a DaemonSet's containers mount at a path; empty if none does.
func HostFolder(set *appsv1.DaemonSet, at string) string {
	pod := &set.Spec.Template.Spec
	for _, container := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
		for _, mount := range container.VolumeMounts {
			if path.Clean(mount.MountPath) != at {
				continue
			}
			for _, volume := range pod.Volumes {
				if volume.Name == mount.Name && volume.HostPath != nil {
					return path.Join(volume.HostPath.Path, mount.SubPath)
				}
			}
		}
	}
	return ""
}

// HostFolderIn is HostFolder for a DaemonSet in a manifest.
func HostFolderIn(workload *unstructured.Unstructured, at string) string {
	var set appsv1.DaemonSet
	if runtime.DefaultUnstructuredConverter.FromUnstructured(workload.Object, &set) != nil {
		return ""
	}
	return HostFolder(&set, at)
}

// SelectorOf is the selector of a DaemonSet's pods, as k=v,k=v.
func SelectorOf(set *appsv1.DaemonSet) string {
	if set.Spec.Selector == nil {
		return ""
	}
	return pairs(set.Spec.Selector.MatchLabels)
}

// SelectorText is SelectorOf for a workload in a manifest.
func SelectorText(workload *unstructured.Unstructured) string {
	matches, _, _ := unstructured.NestedStringMap(workload.Object, "spec", "selector", "matchLabels")
	return pairs(matches)
}

func pairs(matches map[string]string) string {
	var all []string
	for key, value := range matches {
		all = append(all, key+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// Rights returns a DaemonSet's ClusterRole, its binding, and its ServiceAccount.
func Rights(set *appsv1.DaemonSet, role string) []step.Ref {
	refs := []step.Ref{
		{APIVersion: rbac, Kind: "ClusterRoleBinding", Name: role},
		{APIVersion: rbac, Kind: "ClusterRole", Name: role},
	}
	if account := set.Spec.Template.Spec.ServiceAccountName; account != "" && account != "default" {
		refs = append(refs, step.Ref{APIVersion: "v1", Kind: "ServiceAccount", Namespace: set.Namespace, Name: account})
	}
	return refs
}

// Writers returns the DaemonSets that can write to the folder of CNI configurations on nodes: networks, and plugins
// that hook into them. It leaves out Theseus' own.
func Writers(snapshot *cluster.Snapshot) []*appsv1.DaemonSet {
	var found []*appsv1.DaemonSet
	read := func(folder string) bool {
		return strings.HasPrefix(folder+"/", "/etc/cni/") ||
			slices.ContainsFunc(snapshot.Facts, func(f cluster.NodeFacts) bool {
				return f.Folders != nil && f.Folders.Reads(folder)
			})
	}
	for i := range snapshot.DaemonSets {
		set := &snapshot.DaemonSets[i]
		if set.Namespace != v1alpha1.Namespace &&
			slices.ContainsFunc(set.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
				return v.HostPath != nil && read(v.HostPath.Path)
			}) {
			found = append(found, set)
		}
	}
	return found
}

// Strangers returns DaemonSets that write CNI configurations, and CNI configurations that runtimes use, which belong to
// none of the detected networks. What belongs to one recognised network is one entry.
func Strangers(snapshot *cluster.Snapshot, found []*Installation) []Foreign {
	var all []Foreign
	add := func(r *recognised, seen string) {
		if r == nil {
			all = append(all, Foreign{Seen: seen})
			return
		}
		if at := slices.IndexFunc(all, func(f Foreign) bool { return f.Name == r.name }); at >= 0 {
			all[at].Seen += "; " + seen
			return
		}
		all = append(all, r.foreign(seen))
	}
	writers, firewall := Writers(snapshot), Firewall(snapshot)
	for i := range snapshot.DaemonSets {
		set := &snapshot.DaemonSets[i]
		ref := DaemonSetRef(set)
		if slices.ContainsFunc(found, func(i *Installation) bool {
			return i.Agent == ref || i.PolicyAgent != nil && *i.PolicyAgent == ref || slices.Contains(i.Parts, ref)
		}) {
			continue
		}
		name := "DaemonSet " + set.Namespace + "/" + set.Name
		switch r := knownSet(set); {
		case set == firewall: // the network for which it enforces policy may be one of files on the nodes alone
			add(nil, "kube-router ("+name+"), which only enforces NetworkPolicy")
		case r != nil:
			add(r, name)
		case slices.Contains(writers, set):
			add(nil, name+" writes to the folder of CNI configurations")
		}
	}
	nodes, first := map[string]int{}, map[string]string{}
	for i := range snapshot.Facts {
		conf, ok := snapshot.Facts[i].Serving()
		if ok && !slices.ContainsFunc(found,
			func(i *Installation) bool { return i.Capabilities.ConfName == conf.File }) {
			what := fmt.Sprintf("%s (network %q, plugin %s)", conf.File, conf.Network, conf.Plugins[0])
			nodes[what]++
			first[what] = conf.Plugins[0]
		}
	}
	for _, what := range slices.Sorted(maps.Keys(nodes)) {
		r, on := knownPlugin(first[what]), nodes[what]
		if r == nil { // the agent of a recognised network may write a file for common plugins, such as bridge
			r = only(all)
		}
		if r != nil {
			what = what[:strings.Index(what, " (")]
		}
		add(r, fmt.Sprintf("%s serves new pods on %d of %d nodes", what, on, len(snapshot.Nodes)))
	}
	return all
}

// only is the one recognised network among what was found; nil if there is none or more than one.
func only(all []Foreign) *recognised {
	var one *recognised
	for _, f := range all {
		for i := range known {
			if known[i].name != f.Name || f.Chained {
				continue
			}
			if one != nil {
				return nil
			}
			one = &known[i]
		}
	}
	return one
}

// NotReady says on how many nodes a DaemonSet's pod is not ready, by its status, and names the nodes that are known
// from the snapshot's pods.
func NotReady(snapshot *cluster.Snapshot, set *appsv1.DaemonSet) []string {
	status := set.Status
	if status.NumberReady >= status.DesiredNumberScheduled {
		return nil
	}
	var nodes []string
	owners := snapshot.Owners()
	for i := range snapshot.Pods {
		pod := &snapshot.Pods[i]
		owner := owners(pod)
		if owner.Kind == "DaemonSet" && owner.Namespace == set.Namespace && owner.Name == set.Name &&
			!cluster.PodReady(pod) {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	where := ""
	if len(nodes) > 0 {
		slices.Sort(nodes)
		where = " (not on " + strings.Join(nodes[:min(len(nodes), 5)], ", ") + ")"
	}
	return []string{fmt.Sprintf("DaemonSet %s is ready on %d of %d nodes%s", set.Namespace+"/"+set.Name,
		status.NumberReady, status.DesiredNumberScheduled, where)}
}

// Unfinished reports an agent, or a CNI configuration, that has the form of an unfinished migration.
func Unfinished(agent *appsv1.DaemonSet, conf string) []string {
	if agent.Spec.Template.Spec.NodeSelector[v1alpha1.LabelTarget] == "" && !strings.HasSuffix(conf, StagedSuffix) {
		return nil
	}
	return []string{"DaemonSet " + agent.Namespace + "/" + agent.Name +
		" has the settings of a migration: one was begun here and is not finished"}
}
