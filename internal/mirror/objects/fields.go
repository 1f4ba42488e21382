package objects

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// servers are the field managers that are the cluster itself: the mirror's own managers write what only they wrote.
func servers() []string {
	return []string{
		"kube-controller-manager", "kube-scheduler", "kube-apiserver", "kubelet", "cloud-controller-manager",
		"csi-provisioner", "csi-attacher", "csi-resizer", "external-provisioner",
		"cainjector", "cert-manager-cainjector",
	}
}

func isServer(manager string) bool {
	for _, name := range servers() {
		if manager == name {
			return true
		}
	}
	return strings.HasSuffix(manager, "-cloud-controller-manager")
}

// owned keeps the fields of an object that a user owns, by its managedFields: neither what the cluster's own
// controllers wrote nor what the API server filled in. It changes nothing and returns false where the managers
// do not tell: there are none, or one wrote through another version of the API, whose paths may be others.
// Names, labels and annotations of the server are for the table per kind; type, name and namespace always stay.
func owned(object Object, writers []writer) bool {
	users, cluster := &fieldpath.Set{}, &fieldpath.Set{}
	known := false
	for _, w := range writers {
		if w.subresource != "" && w.subresource != "scale" {
			continue
		}
		fields, err := setOf(w.fields)
		if err != nil {
			return false
		}
		if isServer(w.manager) {
			cluster = cluster.Union(fields)
			continue
		}
		if w.version != object.GetAPIVersion() {
			return false
		}
		if w.subresource == "" {
			known = true
		}
		users = users.Union(fields)
	}
	if !known {
		return false
	}
	kept, _ := keep(object.Object, users, cluster.Difference(users)).(map[string]any)
	for _, always := range []string{"apiVersion", "kind"} {
		kept[always] = object.Object[always]
	}
	meta, _ := kept["metadata"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
		kept["metadata"] = meta
	}
	original, _ := object.Object["metadata"].(map[string]any)
	for _, always := range []string{"name", "namespace", "ownerReferences"} {
		if value, ok := original[always]; ok {
			meta[always] = value
		}
	}
	keepReplicas(object, kept)
	object.Object = kept
	return true
}

// keepReplicas keeps the number of replicas, no matter which manager set it: an autoscaler's number is what the
// traffic needs.
func keepReplicas(object Object, kept map[string]any) {
	replicas := at(object, "spec", "replicas")
	spec, ok := kept["spec"].(map[string]any)
	if ok && replicas != nil {
		spec["replicas"] = replicas
	}
}

// keep returns the part of a value that the users own. cluster is what only the cluster owns.
func keep(v any, users, cluster *fieldpath.Set) any {
	switch v := v.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, below := range v {
			if value, ok := child(below, fieldpath.FieldNameElement(name), users, cluster); ok {
				kept[name] = value
			}
		}
		return kept
	case []any:
		kept := []any{}
		for i, item := range v {
			for _, element := range elements(users, i, item) {
				if value, ok := child(item, element, users, cluster); ok {
					kept = append(kept, value)
					break
				}
			}
		}
		return kept
	}
	return v
}

// child is what the users own of one field or item, and whether they own anything of it.
func child(v any, element fieldpath.PathElement, users, cluster *fieldpath.Set) (any, bool) {
	member := users.Members.Has(element)
	below, deeper := users.Children.Get(element)
	theirs, _ := cluster.Children.Get(element)
	if theirs == nil {
		theirs = &fieldpath.Set{}
	}
	switch {
	case deeper:
		return keep(v, below, theirs), true
	case member: // a scalar, an atomic list or map, or a map that was empty when they wrote it
		return without(v, theirs), true
	}
	return nil, false
}

// without takes what the cluster owns out of a value.
func without(v any, cluster *fieldpath.Set) any {
	fields, ok := v.(map[string]any)
	if !ok || cluster.Empty() {
		return v
	}
	kept := map[string]any{}
	for name, below := range fields {
		element := fieldpath.FieldNameElement(name)
		if cluster.Members.Has(element) {
			continue
		}
		if deeper, ok := cluster.Children.Get(element); ok {
			below = without(below, deeper)
		}
		kept[name] = below
	}
	return kept
}

// elements are the names under which a set may know an item of a list.
func elements(set *fieldpath.Set, i int, item any) []fieldpath.PathElement {
	found := []fieldpath.PathElement{fieldpath.IndexElement(i)}
	match := func(element fieldpath.PathElement) {
		switch {
		case element.Key != nil && hasKey(item, *element.Key):
			found = append(found, element)
		case element.Value != nil && value.Equals(*element.Value, value.NewValueInterface(item)):
			found = append(found, element)
		}
	}
	set.Children.Iterate(match)
	if len(found) == 1 {
		set.Members.Iterate(match)
	}
	return found
}

// hasKey says whether an item of an associative list has a key. A field of the key that has a default may be
// missing in the item only in theory: the server fills it in before it notes the owners.
func hasKey(item any, key value.FieldList) bool {
	fields, ok := item.(map[string]any)
	if !ok {
		return false
	}
	for _, field := range key {
		have, ok := fields[field.Name]
		if !ok || !value.Equals(field.Value, value.NewValueInterface(have)) {
			return false
		}
	}
	return true
}

// writer is an entry of managedFields.
type writer struct {
	manager, subresource, version, time string
	fields                              map[string]any // fieldsV1
}

// writersOf reads managedFields as they are: by way of their Go type it takes longer than all else that is done with an
// object.
func writersOf(object Object) []writer {
	entries, _ := at(object, "metadata", "managedFields").([]any)
	var found []writer
	for _, one := range entries {
		entry, _ := one.(map[string]any)
		text := func(name string) string {
			value, _ := entry[name].(string)
			return value
		}
		if fields, ok := entry["fieldsV1"].(map[string]any); ok {
			found = append(found,
				writer{text("manager"), text("subresource"), text("apiVersion"), text("time"), fields})
		}
	}
	return found
}

// setOf is what fieldpath.Set.FromJSON makes of fieldsV1, without its text.
func setOf(fields map[string]any) (*fieldpath.Set, error) {
	set := &fieldpath.Set{}
	for name, value := range fields {
		if name == "." {
			continue // of the element above
		}
		element, err := fieldpath.DeserializePathElement(name)
		if errors.Is(err, fieldpath.ErrUnknownPathElementType) {
			continue // of a later version
		}
		if err != nil {
			return nil, err
		}
		below, ok := value.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s of managedFields is no map", name)
		}
		children, err := setOf(below)
		if err != nil {
			return nil, err
		}
		if _, itself := below["."]; itself || children.Empty() {
			set.Members.Insert(element)
		}
		if !children.Empty() {
			*set.Children.Descend(element) = *children
		}
	}
	return set, nil
}

// ownersOf are the managers of the fields of an object, by what they wrote, for those who ask who changed it.
func ownersOf(object Object) []owner {
	var owners []owner
	for _, w := range writersOf(object) {
		if fields, err := setOf(w.fields); err == nil {
			at, _ := time.Parse(time.RFC3339, w.time) // zero: it does not say
			owners = append(owners, owner{w.manager, at, fields})
		}
	}
	return owners
}

type owner struct {
	manager string
	at      time.Time
	fields  *fieldpath.Set
}
