package objects

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reference is what one object says of another. Not all who refer say the group.
type reference struct {
	Key
	anyGroup bool
}

// named are the fields whose text is the name of an object of a kind, wherever they stand.
func named() map[string]schema.GroupKind {
	return map[string]schema.GroupKind{
		"serviceAccountName": {Kind: "ServiceAccount"},
		"secretName":         {Kind: "Secret"},
		"claimName":          {Kind: "PersistentVolumeClaim"},
		"priorityClassName":  {Group: "scheduling.k8s.io", Kind: "PriorityClass"},
		"runtimeClassName":   {Group: "node.k8s.io", Kind: "RuntimeClass"},
		"storageClassName":   {Group: "storage.k8s.io", Kind: "StorageClass"},
		"ingressClassName":   {Group: "networking.k8s.io", Kind: "IngressClass"},
		"gatewayClassName":   {Group: "gateway.networking.k8s.io", Kind: "GatewayClass"},
		"serviceName":        {Kind: "Service"},
	}
}

// holders are the fields whose map, or list of maps, has a "name" of a kind.
func holders() map[string]schema.GroupKind {
	return map[string]schema.GroupKind{
		"configMap":        {Kind: "ConfigMap"},
		"configMapRef":     {Kind: "ConfigMap"},
		"configMapKeyRef":  {Kind: "ConfigMap"},
		"secretRef":        {Kind: "Secret"},
		"secretKeyRef":     {Kind: "Secret"},
		"imagePullSecrets": {Kind: "Secret"},
		"service":          {Kind: "Service"},
	}
}

// referencesOf are the objects that an object names: its owners, its CustomResourceDefinition is not among them.
// They are hints for the order and for what is needed, so one that leads nowhere does no harm.
func referencesOf(object Object) []reference {
	var found []reference
	namespace := object.GetNamespace()
	for _, owner := range object.GetOwnerReferences() {
		group, _, _ := strings.Cut(owner.APIVersion, "/")
		if !strings.Contains(owner.APIVersion, "/") {
			group = ""
		}
		found = append(found, reference{Key: Key{group, owner.Kind, namespace, owner.Name}})
	}
	walk := referenceWalk{namespace: namespace, named: named(), holders: holders()}
	for name, value := range object.Object {
		if name != "metadata" && name != "status" {
			walk.value(name, value)
		}
	}
	return append(found, walk.found...)
}

type referenceWalk struct {
	namespace string
	named     map[string]schema.GroupKind
	holders   map[string]schema.GroupKind
	found     []reference
}

func (w *referenceWalk) value(field string, value any) {
	switch value := value.(type) {
	case string:
		if kind, ok := w.named[field]; ok && value != "" {
			w.found = append(w.found, reference{Key: Key{kind.Group, kind.Kind, w.namespace, value}})
		}
	case []any:
		for _, item := range value {
			w.value(field, item)
		}
	case map[string]any:
		w.fields(field, value)
		for name, below := range value {
			w.value(name, below)
		}
	}
}

// fields takes a map that names an object by itself: by its kind, or by the field that holds it.
func (w *referenceWalk) fields(field string, value map[string]any) {
	name, _ := value["name"].(string)
	if name == "" {
		return
	}
	namespace, _ := value["namespace"].(string)
	if namespace == "" {
		namespace = w.namespace
	}
	if kind, _ := value["kind"].(string); kind != "" {
		group, known := groupOf(value)
		w.found = append(w.found, reference{Key{group, kind, namespace, name}, !known})
		return
	}
	if kind, ok := w.holders[field]; ok {
		w.found = append(w.found, reference{Key: Key{kind.Group, kind.Kind, namespace, name}})
	}
}

// groupOf is the group that a reference says, if it says one.
func groupOf(value map[string]any) (string, bool) {
	if version, ok := value["apiVersion"].(string); ok && version != "" {
		if group, _, ok := strings.Cut(version, "/"); ok {
			return group, true
		}
		return "", true
	}
	for _, name := range []string{"apiGroup", "group"} {
		if group, ok := value[name].(string); ok {
			return group, true
		}
	}
	return "", false
}

// index finds objects by what others say of them.
type index struct {
	exact  map[Key]Object
	byKind map[Key][]Key // without the group
}

func newIndex(objects []Object) index {
	in := index{make(map[Key]Object, len(objects)), map[Key][]Key{}}
	for _, object := range objects {
		key := KeyOf(object)
		in.exact[key] = object
		short := key
		short.Group = ""
		in.byKind[short] = append(in.byKind[short], key)
	}
	return in
}

// find returns the keys that a reference may mean: of its own namespace, and of the cluster.
func (in index) find(ref reference) []Key {
	var found []Key
	for _, namespace := range slices.Compact([]string{ref.Namespace, ""}) {
		key := ref.Key
		key.Namespace = namespace
		if _, ok := in.exact[key]; ok {
			found = append(found, key)
		} else if ref.anyGroup {
			key.Group = ""
			found = append(found, in.byKind[key]...)
		}
	}
	return found
}
