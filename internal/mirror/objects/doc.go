// Package objects decides what a mirror cluster gets of the original's objects: which of them, with which of their
// fields, in which order, and what must not run twice. It reads and writes plain objects and nothing else.
//
//	originals -> Make -> Plan (what goes over, what stays and why, what a person has to decide)
//	Plan + the mirror's objects -> Against -> what to apply, what to delete, what stands in the way
package objects

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What Theseus writes on the objects of the mirror, and reads on those of the original.
const (
	// Manager is the field manager of everything that is copied.
	Manager = "theseus-mirror"
	// MarkLabel is on every object that was copied; its value says from which cluster.
	MarkLabel = "mirror.theseus.dev/of"
	// SumAnnotation holds a digest of what was applied.
	SumAnnotation = "mirror.theseus.dev/applied"
	// DecideAnnotation on an object of the original says what happens to it: an Action.
	DecideAnnotation = "mirror.theseus.dev/action"
)

// Object is an object of an API server, as its JSON.
type Object = *unstructured.Unstructured

// Key names an object within one cluster, whatever the version of its API.
type Key struct{ Group, Kind, Namespace, Name string }

// KeyOf is the key of an object.
func KeyOf(object Object) Key {
	return Key{object.GroupVersionKind().Group, object.GetKind(), object.GetNamespace(), object.GetName()}
}

// GroupKind is the kind without its version.
func (k Key) GroupKind() schema.GroupKind { return schema.GroupKind{Group: k.Group, Kind: k.Kind} }

// String is how people see the key: Deployment.apps shop/web.
func (k Key) String() string {
	name := k.GroupKind().String() + " "
	if k.Namespace != "" {
		name += k.Namespace + "/"
	}
	return name + k.Name
}

// Some names the first of many objects.
func Some(keys []Key) string {
	var names []string
	for _, key := range keys[:min(len(keys), 3)] {
		names = append(names, key.String())
	}
	text := strings.Join(names, ", ")
	if more := len(keys) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func compareKeys(a, b Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Kind, b.Kind),
		strings.Compare(a.Group, b.Group), strings.Compare(a.Name, b.Name))
}

// at is the value at a path of maps, or nil.
func at(object Object, path ...string) any {
	var value any = object.Object
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return value
}

func text(object Object, path ...string) string {
	value, _ := at(object, path...).(string)
	return value
}

// remove takes a field away, and leaves the maps above it.
func remove(object Object, path ...string) {
	unstructured.RemoveNestedField(object.Object, path...)
}

// set writes a field. What stands in the way of the path is replaced.
func set(object Object, value any, path ...string) {
	fields := object.Object
	for _, name := range path[:len(path)-1] {
		below, ok := fields[name].(map[string]any)
		if !ok {
			below = map[string]any{}
			fields[name] = below
		}
		fields = below
	}
	fields[path[len(path)-1]] = value
}
