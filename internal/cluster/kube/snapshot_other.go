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

// networkDefinitions keeps the CRDs of network groups and of policies, without their schemas, which are long.
func networkDefinitions(all []unstructured.Unstructured) []unstructured.Unstructured {
	var kept []unstructured.Unstructured
	for _, definition := range all {
		group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
		if policy, _ := cluster.DefinesPolicy(&definition); !policy && !slices.Contains(networkGroups(), group) {
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

// extra is a resource, and what is done with its objects before they are kept; nil if nothing.
type extra struct {
	group, resource string
	trim            func(*unstructured.Unstructured)
}

// deployers are the objects by which Argo CD and Flux deploy.
func deployers() []extra {
	var all []extra
	for _, kind := range owner.Kinds() {
		all = append(all, extra{kind.Group, kind.Resource, owner.Trim})
	}
	return all
}

// otherPolicies are the kinds of policies of groups of which not all resources are read.
func otherPolicies() []extra {
	var all []extra
	for _, kind := range cluster.PolicyKinds() {
		if !slices.Contains(networkGroups(), kind.Group) {
			all = append(all, extra{group: kind.Group, resource: kind.Resource})
		}
	}
	return all
}

// namedTasks read resources of groups that the API server has. The sources say for each group whether discovery
// answered.
func (r reader) namedTasks(wanted []extra, keep keepFunc) ([]task, []cluster.Source) {
	var tasks []task
	var sources []cluster.Source
	served, err := r.client.Discovery.ServerGroups()
	said := map[string]bool{}
	for _, one := range wanted {
		var resources []schema.GroupVersionResource
		failed := err
		if failed == nil {
			resources, failed = r.resourcesOf(served, one.group)
		}
		switch {
		case said[one.group]:
		case failed != nil:
			sources = append(sources, unread(one.group, failed))
		default:
			sources = append(sources, cluster.Source{Resource: one.group, From: FromLive})
		}
		said[one.group] = true
		for _, resource := range resources {
			if failed == nil && resource.Resource == one.resource {
				tasks = append(tasks,
					r.other(one.resource+"."+one.group, resource, func(found []unstructured.Unstructured) {
						for i := range found {
							if one.trim != nil {
								one.trim(&found[i])
							}
						}
						keep(found)
					}))
			}
		}
	}
	return tasks, sources
}

// resourcesOf returns the resources of a group that can be listed; none if it is not served. A resource comes in the
// group's preferred version if that has it, or else in the first one that does: versions of one group need not have
// the same resources.
func (r reader) resourcesOf(served *metav1.APIGroupList, group string) ([]schema.GroupVersionResource, error) {
	at := slices.IndexFunc(served.Groups, func(g metav1.APIGroup) bool { return g.Name == group })
	if at < 0 {
		return nil, nil
	}
	var found []schema.GroupVersionResource
	preferred := served.Groups[at].PreferredVersion
	for i, version := range append([]metav1.GroupVersionForDiscovery{preferred}, served.Groups[at].Versions...) {
		if i > 0 && version == preferred {
			continue
		}
		list, err := r.client.Discovery.ServerResourcesForGroupVersion(version.GroupVersion)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "list") ||
				slices.ContainsFunc(found, func(had schema.GroupVersionResource) bool {
					return had.Resource == resource.Name
				}) {
				continue
			}
			found = append(found, schema.GroupVersionResource{Group: group, Version: version.Version,
				Resource: resource.Name})
		}
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
