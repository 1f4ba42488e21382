// Package owner finds what maintains an object of a cluster: Argo CD, Flux, Helm, the addon-manager, an operator. Its
// evidence is the object's metadata, and the objects by which Argo CD and Flux deploy. How those are suspended belongs
// here too.
package owner

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tool is what maintains objects.
type Tool string

// The tools of which it is known how they reconcile, and how that is suspended.
const (
	ArgoCD       Tool = "Argo CD"
	Flux         Tool = "Flux"
	Helm         Tool = "Helm"
	AddonManager Tool = "the addon-manager"
	Operator     Tool = "an operator"
)

// The modes of the addon-manager: it reverts each change of an object, or only creates a missing one.
const (
	Reconcile    = "Reconcile"
	EnsureExists = "EnsureExists"
)

const (
	trackingID   = "argocd.argoproj.io/tracking-id"
	argoInstance = "argocd.argoproj.io/instance"
	instance     = "app.kubernetes.io/instance"
	managedBy    = "app.kubernetes.io/managed-by"
	kustomized   = "kustomize.toolkit.fluxcd.io/"
	helmed       = "helm.toolkit.fluxcd.io/"
	helmRelease  = "meta.helm.sh/release-name"
	helmSpace    = "meta.helm.sh/release-namespace"
	addonMode    = "addonmanager.kubernetes.io/mode"
)

// Key names an object, in any version of its kind.
type Key struct{ Group, Kind, Namespace, Name string }

// KeyOf names an object that is at hand.
func KeyOf(object *unstructured.Unstructured) Key {
	gvk := object.GroupVersionKind()
	return Key{gvk.Group, gvk.Kind, object.GetNamespace(), object.GetName()}
}

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + "/" + k.Name
	}
	return k.Kind + "/" + k.Namespace + "/" + k.Name
}

// Owner is what maintains an object.
type Owner struct {
	Tool Tool
	// Key names the object by which the tool does so: an Application, Kustomization or HelmRelease, the owner in
	// ownerReferences. Of Helm it names the release, of the addon-manager and of other tools nothing.
	Key Key
	// Mode is the addon-manager's.
	Mode string
	// Mark is the evidence, such as "label helm.toolkit.fluxcd.io/name".
	Mark string
}

// others are the marks of tools of which a cluster's objects do not show whether they reconcile by themselves.
var others = []struct {
	prefix string
	tool   Tool
}{
	{"fleet.cattle.io/", "Rancher Fleet"}, {"configsync.gke.io/", "Config Sync"},
	{"configmanagement.gke.io/", "Config Sync"}, {"objectset.rio.cattle.io/", "Rancher or K3s"},
	{"addon.kops.k8s.io/", "kOps"}, {"kapp.k14s.io/", "kapp"},
}

// marked are further keys by which tools mark what they keep; nothing reconciles by these alone.
var marked = []string{"argocd.argoproj.io/", kustomized, helmed, "meta.helm.sh/", managedBy,
	"operator.tigera.io/", "applyset.kubernetes.io/", "addonmanager.kubernetes.io/"}

// Marked reports whether a tool maintains an object, and so would restore it.
func Marked(object metav1.Object) bool {
	if len(object.GetOwnerReferences()) > 0 {
		return true
	}
	for _, set := range []map[string]string{object.GetLabels(), object.GetAnnotations()} {
		for key := range set {
			if slices.ContainsFunc(marked, func(mark string) bool { return strings.HasPrefix(key, mark) }) ||
				other(key) != "" {
				return true
			}
		}
	}
	return false
}

func other(key string) Tool {
	for _, one := range others {
		if strings.HasPrefix(key, one.prefix) {
			return one.tool
		}
	}
	return ""
}

// Marks returns the owners that an object's own metadata names.
func Marks(key Key, object metav1.Object) []Owner {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	var all []Owner
	if app, ok := tracked(key, annotations[trackingID]); ok {
		all = append(all, Owner{Tool: ArgoCD, Key: application(app), Mark: "annotation " + trackingID})
	} else if app := labels[argoInstance]; app != "" {
		all = append(all, Owner{Tool: ArgoCD, Key: application(app), Mark: "label " + argoInstance})
	}
	for _, flux := range []struct{ prefix, kind string }{{kustomized, "Kustomization"}, {helmed, "HelmRelease"}} {
		if name := labels[flux.prefix+"name"]; name != "" && labels[flux.prefix+"reconcile"] != "disabled" &&
			annotations[flux.prefix+"reconcile"] != "disabled" {
			all = append(all, Owner{Tool: Flux,
				Key:  Key{strings.TrimSuffix(flux.prefix, "/"), flux.kind, labels[flux.prefix+"namespace"], name},
				Mark: "label " + flux.prefix + "name"})
		}
	}
	if release := annotations[helmRelease]; release != "" && labels[helmed+"name"] == "" {
		all = append(all, Owner{Tool: Helm, Key: Key{Kind: "release", Namespace: annotations[helmSpace], Name: release},
			Mark: "annotation " + helmRelease})
	}
	if mode := labels[addonMode]; mode != "" {
		all = append(all, Owner{Tool: AddonManager, Mode: mode, Mark: "label " + addonMode})
	}
	if by := metav1.GetControllerOfNoCopy(object); by != nil {
		gv, _ := schema.ParseGroupVersion(by.APIVersion) // the API server admits no invalid one
		all = append(all, Owner{Tool: Operator, Key: Key{gv.Group, by.Kind, key.Namespace, by.Name},
			Mark: "ownerReferences"})
	}
	for _, set := range []map[string]string{labels, annotations} {
		for name := range set {
			if tool := other(name); tool != "" &&
				!slices.ContainsFunc(all, func(o Owner) bool { return o.Tool == tool }) {
				all = append(all, Owner{Tool: tool, Mark: name})
			}
		}
	}
	return all
}

// tracked parses Argo CD's tracking ID, APPLICATION:GROUP/KIND:NAMESPACE/NAME. Argo CD ignores one that a copy of an
// object carries.
func tracked(key Key, id string) (app string, ok bool) {
	parts := strings.SplitN(id, ":", 3)
	if len(parts) != 3 || parts[1] != key.Group+"/"+key.Kind {
		return "", false
	}
	namespace, name, _ := strings.Cut(parts[2], "/") // of an object without a namespace it has the Application's
	return parts[0], name == key.Name && (key.Namespace == "" || namespace == key.Namespace)
}

// application names an Application as Argo CD's marks do: NAME, or NAMESPACE_NAME.
func application(text string) Key {
	key := Key{Group: "argoproj.io", Kind: "Application", Name: text}
	if namespace, name, ok := strings.Cut(text, "_"); ok {
		key.Namespace, key.Name = namespace, name
	}
	return key
}

// Writer returns the tool that wrote an object by its managedFields, where no mark says so; ok is false if none is
// known. It looks at the last write of each manager, but of none to a subresource.
func Writer(object metav1.Object) (tool Tool, last metav1.ManagedFieldsEntry, ok bool) {
	for _, entry := range object.GetManagedFields() {
		by := writerOf(entry.Manager)
		if by == "" || entry.Subresource != "" || ok && !last.Time.Before(entry.Time) {
			continue
		}
		tool, last, ok = by, entry, true
	}
	return tool, last, ok
}

func writerOf(manager string) Tool {
	switch {
	case manager == "argocd-controller", manager == "argocd-application-controller":
		return ArgoCD
	case manager == "kustomize-controller", manager == "helm-controller":
		return Flux
	case manager == "fleetagent":
		return "Rancher Fleet"
	case manager == "configsync":
		return "Config Sync"
	case manager == "operator", strings.HasSuffix(manager, "-operator"):
		return Operator
	}
	return ""
}
