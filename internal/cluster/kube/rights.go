package kube

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/bgp"
	"github.com/theseus-cni/theseus/internal/step"
)

// Rights asks the API server whether this user may execute and roll back steps, and returns the answers that are not
// among those known. uses are those of actions whose operations do not say them. It does not check commands, DNS names
// and second clusters.
func Rights(ctx context.Context, client *Client, known []cluster.Right, steps []step.Step,
	uses ...step.Use) ([]cluster.Right, error) {
	resources := resources{client.Mapper, defined(steps)}
	var asked []need
	add := func(n need) {
		if !slices.Contains(asked, n) && !slices.ContainsFunc(known, n.answered) {
			asked = append(asked, n)
		}
	}
	uses = slices.DeleteFunc(slices.Clone(uses), func(use step.Use) bool { return !resources.served(use) })
	for _, n := range resources.needs(steps, uses) {
		for _, verb := range strings.Fields(n.verbs) {
			add(need{n.group, n.resource, n.namespace, verb})
		}
	}
	reader := reader{client: client}
	grants, err := reader.grants(ctx, steps)
	if err != nil {
		return nil, err
	}
	for _, n := range grants {
		add(n)
	}
	return reader.ask(ctx, asked)
}

// NeededRights asks the API server whether this user has the permissions that every run needs.
func NeededRights(ctx context.Context, client *Client) ([]cluster.Right, error) {
	reader := reader{client: client}
	return reader.ask(ctx, needs())
}

// answered reports whether a right covers a need.
func (n need) answered(r cluster.Right) bool {
	return n.group == r.Group && n.resource == r.Resource && n.verbs == r.Verb &&
		(n.namespace == r.Namespace || r.Namespace == "" && r.Allowed)
}

// want is the use of a kind of objects. The name is ignored.
type want struct {
	step.Ref
	sub, verbs string
}

// wantsOf returns what steps do through the API, without duplicates, and without Theseus' own objects, which every
// change has.
func wantsOf(steps []step.Step) []want {
	seen := map[want]bool{}
	var all []want
	add := func(some ...want) {
		for _, w := range some {
			if w.Name = ""; !seen[w] {
				seen[w] = true
				all = append(all, w)
			}
		}
	}
	for i := range steps {
		s := &steps[i]
		for _, action := range slices.Concat(s.Actions, s.Undo) {
			add(ofAction(&action)...)
		}
		for _, c := range slices.Concat(s.Before, s.After) {
			add(ofCondition(c)...)
		}
		if s.Gate != nil && s.Gate.Sessions != nil {
			for _, kind := range bgp.Kinds {
				add(want{Ref: step.Ref{Kind: kind}, verbs: "list"})
			}
		}
	}
	return all
}

// anyKind in a want stands for the kinds of all API groups.
const anyKind = "*"

// core makes a want for a kind of the core API, apps for a kind of apps/v1.
func core(kind, namespace, sub, verbs string) want {
	return want{step.Ref{APIVersion: "v1", Kind: kind, Namespace: namespace}, sub, verbs}
}

func apps(kind, namespace, verbs string) want {
	return want{step.Ref{APIVersion: "apps/v1", Kind: kind, Namespace: namespace}, "", verbs}
}

// ofAction returns what the actor does for an action and for its inverse.
func ofAction(a *step.Action) []want {
	switch do := a.Do.(type) {
	case step.Apply:
		return []want{{step.RefOf(do.Object), "", "get create patch delete"}}
	case step.Delete:
		return []want{{do.Ref, "", "get create patch delete"}}
	case step.Patch:
		return []want{{do.Ref, "", "get patch"}}
	case step.Evict:
		return []want{core("Pod", "", "", "get list"), core("Pod", "", "eviction", "create"),
			apps("ReplicaSet", "", "get"), apps("Deployment", "", "get"), apps("StatefulSet", "", "get"),
			apps("DaemonSet", "", "get"), {step.Ref{Kind: anyKind}, "scale", "get"}}
	case step.Restart:
		return []want{apps("DaemonSet", do.Ref.Namespace, "get"), apps("ControllerRevision", do.Ref.Namespace, "list"),
			core("Pod", do.Ref.Namespace, "", "list delete patch")} // nudge patches, too
	case step.Wait:
		return ofCondition(do.Condition)
	case step.Taint, step.Untaint:
		return []want{core("Node", "", "", "get update")}
	case step.Node:
		return onNode(do)
	case step.Hook:
		return []want{core("Node", "", "", "get list update delete"), core("Pod", "", "", "list delete")}
	}
	return nil
}

// onNode returns what the actor itself does for a verb of an agent: with the keys on the Node object that a residue
// names (nodeVerb).
func onNode(do step.Node) []want {
	var residue step.Residue
	if !step.Takes[step.Residue](do.Verb) || json.Unmarshal(do.Args, &residue) != nil {
		return nil // the run reports arguments that cannot be read
	}
	_, object := residue.Split()
	switch {
	case object.Count() == 0 || do.Verb == step.VerbInventory:
		return nil // every change may get nodes
	case len(object.Farewells) > 0:
		return []want{core("Node", "", "", "patch"), core("Node", "", "status", "patch")}
	}
	return []want{core("Node", "", "", "patch")}
}

func ofCondition(c step.Condition) []want {
	switch c.Is.(type) {
	case step.Established, step.Rolled, step.Renders, step.Reports, step.Has, step.Gone:
		return []want{{c.Ref(), "", "get"}}
	case step.PodReady, step.PodGone, step.NoPods:
		return []want{core("Pod", c.Namespace(), "", "list")}
	case step.Held:
		return []want{core("Pod", c.Namespace(), "", "list delete")}
	case step.AgentSays:
		return []want{core("Pod", c.Namespace(), "", "list"), core("Pod", c.Namespace(), "log", "get")}
	case step.NodeReady:
		return []want{core("Node", "", "", "get")}
	case step.NodesAmong:
		return []want{core("Node", "", "", "list")}
	}
	return nil
}

// resources finds the resource of a kind, including kinds that the steps define.
type resources struct {
	mapper  meta.RESTMapper
	defined map[schema.GroupKind]definition
}

// definition is the plural and the scope of a kind.
type definition struct {
	plural string
	global bool // its objects are in no namespace
}

// served reports whether the cluster has the resource of a use. A run leaves out the others.
func (r resources) served(use step.Use) bool {
	if use.Group == "*" {
		return true
	}
	resource, _, _ := strings.Cut(use.Resource, "/")
	_, err := r.mapper.ResourceFor(schema.GroupVersionResource{Group: use.Group, Resource: resource})
	return !meta.IsNoMatchError(err)
}

// needs returns what steps and uses do through the API, and where.
func (r resources) needs(steps []step.Step, uses []step.Use) []need {
	var all []need
	for _, w := range wantsOf(steps) {
		resource := r.of(w.APIVersion, w.Kind)
		if r.global(w.APIVersion, w.Kind) {
			w.Namespace = "" // the API server ignores it
		}
		if w.sub != "" {
			resource.Resource += "/" + w.sub
		}
		all = append(all, need{resource.Group, resource.Resource, w.Namespace, w.verbs})
	}
	for _, use := range uses {
		all = append(all, need{use.Group, use.Resource, use.Namespace, use.Verbs})
	}
	return all
}

// defined returns the kinds that steps define.
func defined(steps []step.Step) map[schema.GroupKind]definition {
	kinds := map[schema.GroupKind]definition{}
	for i := range steps {
		for _, action := range steps[i].Actions {
			if o := action.Object(); o != nil && o.GetKind() == "CustomResourceDefinition" {
				text := func(fields ...string) string {
					s, _, _ := unstructured.NestedString(o.Object, append([]string{"spec"}, fields...)...)
					return s
				}
				kinds[schema.GroupKind{Group: text("group"), Kind: text("names", "kind")}] = definition{
					text("names", "plural"), text("scope") == "Cluster"}
			}
		}
	}
	return kinds
}

// global reports whether objects of a kind are known to be in no namespace. Manifests may name one all the same.
func (r resources) global(apiVersion, kind string) bool {
	gv, _ := schema.ParseGroupVersion(apiVersion)
	group := schema.GroupKind{Group: gv.Group, Kind: kind}
	if known, ok := r.defined[group]; ok {
		return known.global
	}
	if mapping, err := r.mapper.RESTMapping(group, gv.Version); err == nil {
		return mapping.Scope.Name() == meta.RESTScopeNameRoot
	}
	return slices.Contains(globalKinds(), group)
}

// globalKinds are the cluster-scoped kinds of Kubernetes that a manifest of a network may have, for where no API server
// can be asked.
func globalKinds() []schema.GroupKind {
	return []schema.GroupKind{
		{Kind: "Namespace"}, {Kind: "Node"}, {Kind: "PersistentVolume"},
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"},
		{Group: "apiregistration.k8s.io", Kind: "APIService"},
		{Group: "scheduling.k8s.io", Kind: "PriorityClass"}, {Group: "node.k8s.io", Kind: "RuntimeClass"},
		{Group: "storage.k8s.io", Kind: "StorageClass"}, {Group: "networking.k8s.io", Kind: "IngressClass"},
		{Group: rbacv1.GroupName, Kind: "ClusterRole"}, {Group: rbacv1.GroupName, Kind: "ClusterRoleBinding"},
		{Group: "admissionregistration.k8s.io", Kind: "ValidatingWebhookConfiguration"},
		{Group: "admissionregistration.k8s.io", Kind: "MutatingWebhookConfiguration"},
		{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"},
		{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"},
	}
}

func (r resources) of(apiVersion, kind string) schema.GroupVersionResource {
	if kind == anyKind {
		return schema.GroupVersionResource{Group: "*", Resource: "*"}
	}
	gv, _ := schema.ParseGroupVersion(apiVersion) // an invalid version has no resource; the action itself reports it
	versions := []schema.GroupVersion{gv}
	if apiVersion == "" { // one of the kinds that the session gate reads
		versions = bgp.Versions
	}
	for _, gv := range versions {
		if d := r.defined[schema.GroupKind{Group: gv.Group, Kind: kind}]; d.plural != "" {
			return gv.WithResource(d.plural)
		}
		if mapping, err := r.mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: kind}, gv.Version); err == nil {
			return mapping.Resource
		}
	}
	guess, _ := meta.UnsafeGuessKindToResource(versions[0].WithKind(kind))
	return guess
}
