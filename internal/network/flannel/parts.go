package flannel

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// parts lists flannel's objects in the order in which they can be deleted. Roles are not in a snapshot; their names are
// upstream's, and deleting an object that does not exist is harmless.
func parts(snapshot *cluster.Snapshot, agents []*appsv1.DaemonSet, router *appsv1.DaemonSet) []step.Ref {
	all, rights := cni.FirewallParts(router)
	for _, agent := range agents {
		all = append(all, cni.DaemonSetRef(agent))
	}
	namespace := agents[0].Namespace
	if config := configOf(snapshot, namespace); config != nil {
		all = append(all, step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: config.Name})
	}
	all = append(all, cni.Rights(agents[0], "flannel")...)
	all = append(all, rights...)
	if onlyFlannel(snapshot, namespace, all) {
		all = append(all, step.Ref{APIVersion: "v1", Kind: "Namespace", Name: namespace})
	}
	return all
}

// onlyFlannel reports whether the namespace is flannel's own and has no other objects. A snapshot does not contain all
// kinds (such as Secrets), which is why only flannel's own namespace is considered.
func onlyFlannel(snapshot *cluster.Snapshot, namespace string, own []step.Ref) bool {
	if namespace != ownSpace {
		return false
	}
	foreign := func(kind, in, name string) bool {
		return in == namespace && !slices.ContainsFunc(own, func(r step.Ref) bool {
			return r.Kind == kind && r.Namespace == namespace && r.Name == name
		})
	}
	owners := snapshot.Owners()
	for i := range snapshot.Pods {
		owner := owners(&snapshot.Pods[i])
		if foreign(owner.Kind, owner.Namespace, owner.Name) {
			return false
		}
	}
	for _, set := range snapshot.DaemonSets {
		if foreign("DaemonSet", set.Namespace, set.Name) {
			return false
		}
	}
	for _, config := range snapshot.ConfigMaps {
		if config.Name != "kube-root-ca.crt" && foreign("ConfigMap", config.Namespace, config.Name) {
			return false
		}
	}
	for _, d := range snapshot.Deployments {
		if d.Namespace == namespace {
			return false
		}
	}
	for _, s := range snapshot.StatefulSets {
		if s.Namespace == namespace {
			return false
		}
	}
	for _, s := range snapshot.Services {
		if s.Namespace == namespace {
			return false
		}
	}
	for _, j := range snapshot.Jobs {
		if j.Namespace == namespace {
			return false
		}
	}
	return true
}
