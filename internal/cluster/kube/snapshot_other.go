package kube

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/owner"
)

// networkGroups are the API groups of networks and load balancers of which all resources are read.
func networkGroups() []string {
	return []string{"crd.projectcalico.org", "projectcalico.org", "operator.tigera.io", "cilium.io", "metallb.io",
		"k8s.cni.cncf.io", "sriovnetwork.openshift.io"}
}

// changedGroups are the network groups in which changes write objects.
func changedGroups() []string { return networkGroups()[:4] }

// onePerPod are resources of these groups with one object per pod, which Theseus does not need.
func onePerPod() []string {
	return []string{"ipamhandles", "workloadendpoints", "ciliumendpoints", "ciliumendpointslices", "ciliumidentities"}
}

type keepFunc func([]unstructured.Unstructured)

// registrationTasks read the registrations of extensions (CRDs, webhooks, aggregated APIs), the ranges of
// Services, volumes, and the bounds of namespaces.
func (r reader) registrationTasks(keep keepFunc) []task {
	return []task{
		r.other("customresourcedefinitions", schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
			Resource: "customresourcedefinitions"}, func(found []unstructured.Unstructured) {
			keep(networkDefinitions(found))
		}),
		r.other("validatingwebhookconfigurations", schema.GroupVersionResource{Group: "admissionregistration.k8s.io",
			Version: "v1", Resource: "validatingwebhookconfigurations"}, keep),
		r.other("mutatingwebhookconfigurations", schema.GroupVersionResource{Group: "admissionregistration.k8s.io",
			Version: "v1", Resource: "mutatingwebhookconfigurations"}, keep),
		r.other("persistentvolumes", schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, keep),
		r.other("resourcequotas", schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}, keep),
		r.other("limitranges", schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}, keep),
		r.other("servicecidrs", schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1",
			Resource: "servicecidrs"}, keep),
		r.other("apiservices", schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1",
			Resource: "apiservices"}, func(found []unstructured.Unstructured) {
			keep(aggregated(found))
		}),
	}
}

// networkDefinitions keeps the CRDs of network groups, without their schemas, which are long.
func networkDefinitions(all []unstructured.Unstructured) []unstructured.Unstructured {
	var kept []unstructured.Unstructured
	for _, definition := range all {
		group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
		if !slices.Contains(networkGroups(), group) {
			continue
		}
		versions, _, _ := unstructured.NestedSlice(definition.Object, "spec", "versions")
		for i := range versions {
			if version, ok := versions[i].(map[string]any); ok {
				delete(version, "schema")
			}
		}
		_ = unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions")
		kept = append(kept, definition)
	}
	return kept
}

// aggregated keeps the APIs that a Service of the cluster serves; the API server itself serves the others.
func aggregated(all []unstructured.Unstructured) []unstructured.Unstructured {
	return slices.DeleteFunc(all, func(service unstructured.Unstructured) bool {
		_, found, err := unstructured.NestedMap(service.Object, "spec", "service")
		return !found || err != nil
	})
}

// networkTasks asks discovery which resources the network groups have, from CRDs or from an aggregated API,
// and makes a task for each. The sources say for each group whether discovery answered.
func (r reader) networkTasks(keep keepFunc) ([]task, []cluster.Source) {
	var tasks []task
	var sources []cluster.Source
	served, err := r.client.Discovery.ServerGroups()
	for _, group := range networkGroups() {
		if err != nil {
			sources = append(sources, unread(group, err))
			continue
		}
		resources, err := r.resourcesOf(served, group)
		if err != nil {
			sources = append(sources, unread(group, err))
			continue
		}
		sources = append(sources, cluster.Source{Resource: group, From: FromLive})
		for _, resource := range resources {
			name := resource.Resource + "." + resource.Group
			if slices.Contains(onePerPod(), resource.Resource) {
				sources = append(sources,
					cluster.Source{Resource: name, Missing: "not read: there is one for each pod"})
				continue
			}
			tasks = append(tasks, r.other(name, resource, keep))
		}
	}
	return tasks, sources
}

// deployerTasks read the objects by which Argo CD and Flux deploy, of groups that the API server has. The sources say
// for each group whether discovery answered.
func (r reader) deployerTasks(keep keepFunc) ([]task, []cluster.Source) {
	var tasks []task
	var sources []cluster.Source
	served, err := r.client.Discovery.ServerGroups()
	for _, kind := range owner.Kinds() {
		var resources []schema.GroupVersionResource
		failed := err
		if failed == nil {
			resources, failed = r.resourcesOf(served, kind.Group)
		}
		if failed != nil {
			sources = append(sources, unread(kind.Group, failed))
			continue
		}
		sources = append(sources, cluster.Source{Resource: kind.Group, From: FromLive})
		for _, resource := range resources {
			if resource.Resource == kind.Resource {
				tasks = append(tasks,
					r.other(kind.Resource+"."+kind.Group, resource, func(found []unstructured.Unstructured) {
						for i := range found {
							owner.Trim(&found[i])
						}
						keep(found)
					}))
			}
		}
	}
	return tasks, sources
}

// resourcesOf returns the resources of a group that can be listed, in its preferred version; none if it is not served.
func (r reader) resourcesOf(served *metav1.APIGroupList, group string) ([]schema.GroupVersionResource, error) {
	at := slices.IndexFunc(served.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
	if at < 0 {
		return nil, nil
	}
	preferred := served.Groups[at].PreferredVersion
	list, err := r.client.Discovery.ServerResourcesForGroupVersion(preferred.GroupVersion)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []schema.GroupVersionResource
	for _, resource := range list.APIResources {
		if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "list") {
			continue
		}
		found = append(found,
			schema.GroupVersionResource{Group: group, Version: preferred.Version, Resource: resource.Name})
	}
	return found, nil
}

// other returns the task that lists any resource unchanged.
func (r reader) other(name string, resource schema.GroupVersionResource, keep keepFunc) task {
	return func(ctx context.Context) cluster.Source {
		found, version, err := pages(ctx, r.client, r.client.Dynamic.Resource(resource).List,
			func(l *unstructured.UnstructuredList) []unstructured.Unstructured { return l.Items })
		if err != nil {
			return unread(name, err)
		}
		keep(found)
		return cluster.Source{Resource: name, From: FromLive, ResourceVersion: version}
	}
}
