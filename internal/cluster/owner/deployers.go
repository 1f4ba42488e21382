package owner

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

// Kind is a kind of object by which Argo CD or Flux deploys others.
type Kind struct {
	Group, Kind, Resource string
	Tool                  Tool
	path                  []string // the field that suspends
	value                 any      // its value then; nil if it is absent
}

// Kinds are the kinds that are known.
func Kinds() []Kind {
	return []Kind{
		{"argoproj.io", "Application", "applications", ArgoCD, []string{"spec", "syncPolicy", "automated"}, nil},
		{"kustomize.toolkit.fluxcd.io", "Kustomization", "kustomizations", Flux, []string{"spec", "suspend"}, true},
		{"helm.toolkit.fluxcd.io", "HelmRelease", "helmreleases", Flux, []string{"spec", "suspend"}, true},
	}
}

func kindOf(key Key) (Kind, bool) {
	kinds := Kinds()
	at := slices.IndexFunc(kinds, func(k Kind) bool { return k.Group == key.Group && k.Kind == key.Kind })
	if at < 0 {
		return Kind{}, false
	}
	return kinds[at], true
}

// Suspends returns the field that suspends an object of Argo CD or Flux, and its value then; nil means that the field
// is absent. known is false for other kinds.
func Suspends(object *unstructured.Unstructured) (path []string, value any, known bool) {
	kind, known := kindOf(KeyOf(object))
	return kind.path, kind.value, known
}

// Reconciles reports whether an object of Argo CD or Flux reconciles by itself, and when it reverts a write of another.
func Reconciles(object *unstructured.Unstructured) (when string, by bool) {
	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	switch object.GetKind() {
	case "Application":
		automated, found, _ := unstructured.NestedMap(spec, "syncPolicy", "automated")
		enabled, said := automated["enabled"].(bool)
		if !found || said && !enabled || object.GetAnnotations()["argocd.argoproj.io/skip-reconcile"] == "true" {
			return "", false
		}
		if heals, _ := automated["selfHeal"].(bool); heals {
			return "within seconds (selfHeal)", true
		}
		return "when its source changes next", true
	case "Kustomization", "HelmRelease":
		if suspended, _ := spec["suspend"].(bool); suspended {
			return "", false
		}
		if mode, _, _ := unstructured.NestedString(spec, "driftDetection", "mode"); object.GetKind() == "HelmRelease" &&
			mode != "enabled" {
			return "at its next upgrade", true
		}
		return "at its next interval", true
	}
	return "", false
}

// Here reports whether an object of Argo CD or Flux deploys to the cluster that it is in.
func Here(object *unstructured.Unstructured) bool {
	if object.GetKind() != "Application" {
		_, elsewhere, _ := unstructured.NestedMap(object.Object, "spec", "kubeConfig")
		return !elsewhere
	}
	text := func(field string) string {
		value, _, _ := unstructured.NestedString(object.Object, "spec", "destination", field)
		return value
	}
	server, name := text("server"), text("name")
	return server == "https://kubernetes.default.svc" || name == "in-cluster" || server == "" && name == ""
}

// Inventory returns the objects that a Kustomization or an Application lists as its own.
func Inventory(object *unstructured.Unstructured) []Key {
	var found []Key
	resources, _, _ := unstructured.NestedSlice(object.Object, "status", "resources")
	for _, one := range resources {
		fields, _ := one.(map[string]any)
		text := func(name string) string { value, _ := fields[name].(string); return value }
		found = append(found, Key{text("group"), text("kind"), text("namespace"), text("name")})
	}
	entries, _, _ := unstructured.NestedSlice(object.Object, "status", "inventory", "entries")
	for _, entry := range entries {
		fields, _ := entry.(map[string]any)
		id, _ := fields["id"].(string)
		if key, ok := entryOf(id); ok {
			found = append(found, key)
		}
	}
	return found
}

// entryOf parses an entry of Flux' inventory, NAMESPACE_NAME_GROUP_KIND; a colon in the name is written as two
// underscores.
func entryOf(id string) (Key, bool) {
	namespace, rest, ok := strings.Cut(id, "_")
	last := strings.LastIndex(rest, "_")
	if !ok || last < 0 {
		return Key{}, false
	}
	rest, kind := rest[:last], rest[last+1:]
	last = strings.LastIndex(rest, "_")
	if last < 0 {
		return Key{}, false
	}
	return Key{rest[last+1:], kind, namespace, strings.ReplaceAll(rest[:last], "__", ":")}, true
}

// Deployers are the objects of Argo CD and Flux in a cluster.
type Deployers struct {
	known map[Key]*unstructured.Unstructured
	lists map[Key][]Key // by object, the deployers that list it
}

// Deploying finds the objects of Argo CD and Flux among others.
func Deploying(objects []unstructured.Unstructured) *Deployers {
	d := &Deployers{known: map[Key]*unstructured.Unstructured{}, lists: map[Key][]Key{}}
	for i := range objects {
		by := KeyOf(&objects[i])
		if _, known := kindOf(by); !known {
			continue
		}
		d.known[by] = &objects[i]
		if Here(&objects[i]) {
			for _, of := range Inventory(&objects[i]) {
				d.lists[of] = append(d.lists[of], by)
			}
		}
	}
	return d
}

// Find returns the object of Argo CD or Flux with a name, or nil.
func (d *Deployers) Find(key Key) *unstructured.Unstructured { return d.known[key] }

// Of returns the owners of an object: those that its metadata names, and those that list it. The object may be nil if
// there is none.
func (d *Deployers) Of(key Key, object metav1.Object) []Owner {
	var all []Owner
	if object != nil {
		all = Marks(key, object)
		if app, ok := d.instanceOf(key, object); ok {
			all = append(all, Owner{Tool: ArgoCD, Key: app, Mark: "label " + instance})
		}
	}
	for i := range all {
		all[i].Key = d.complete(all[i].Key)
	}
	for _, by := range d.lists[key] {
		kind, _ := kindOf(by)
		all = append(all, Owner{Tool: kind.Tool, Key: by, Mark: "status of " + by.String()})
	}
	var once []Owner
	for _, o := range all {
		if !slices.ContainsFunc(once, func(known Owner) bool { return known.Tool == o.Tool && known.Key == o.Key }) {
			once = append(once, o)
		}
	}
	return once
}

// instanceOf returns the Application that the label app.kubernetes.io/instance of an object names. Charts set this
// label too, so it is Argo CD's only if such an Application deploys the object, and no other mark of Argo CD says more.
func (d *Deployers) instanceOf(key Key, object metav1.Object) (Key, bool) {
	named := application(object.GetLabels()[instance])
	if _, tracked := tracked(key, object.GetAnnotations()[trackingID]); tracked || named.Name == "" {
		return Key{}, false
	}
	var found []Key
	for app, by := range d.known {
		if app.Kind == named.Kind && app.Name == named.Name &&
			(named.Namespace == "" || app.Namespace == named.Namespace) && deploys(by, key) {
			found = append(found, app)
		}
	}
	if len(found) == 0 {
		return Key{}, false
	}
	return slices.MinFunc(found, func(a, b Key) int { return cmp.Compare(a.Namespace, b.Namespace) }), true
}

// deploys reports whether an Application deploys an object: it lists it; or it lists nothing, and its destination has
// the object.
func deploys(app *unstructured.Unstructured, key Key) bool {
	if listed := Inventory(app); len(listed) > 0 {
		return slices.Contains(listed, key)
	}
	namespace, _, _ := unstructured.NestedString(app.Object, "spec", "destination", "namespace")
	return Here(app) && (key.Namespace == "" || namespace == "" || namespace == key.Namespace)
}

// complete adds the namespace of an Application that a mark names without it.
func (d *Deployers) complete(key Key) Key {
	if key.Kind != "Application" || key.Namespace != "" {
		return key
	}
	for known := range d.known {
		if known.Kind == key.Kind && known.Group == key.Group && known.Name == key.Name &&
			(key.Namespace == "" || known.Namespace < key.Namespace) {
			key.Namespace = known.Namespace
		}
	}
	return key
}

// Command suspends a deployer, and Back puts back what was there.
type Command struct {
	Do, Back string
	// Unread is true if what was there is not known: Back removes the field.
	Unread bool
}

// Suspend returns the commands that suspend a deployer, and before it those that deploy it and would resume it.
func (d *Deployers) Suspend(key Key) []Command { return d.suspend(key, map[Key]bool{}) }

func (d *Deployers) suspend(key Key, seen map[Key]bool) []Command {
	object := d.known[key]
	if object == nil || seen[key] {
		return nil
	}
	seen[key] = true
	var commands []Command
	for _, by := range d.Of(key, object) {
		if by.Key.Kind == "ApplicationSet" {
			field := []string{"spec", "syncPolicy", "applicationsSync"}
			commands = append(commands, Command{patch("applicationsets.argoproj.io", by.Key, field, "create-only"),
				patch("applicationsets.argoproj.io", by.Key, field, nil), true})
		}
		commands = append(commands, d.suspend(by.Key, seen)...)
	}
	if _, runs := Reconciles(object); runs {
		kind, _ := kindOf(key)
		before, _, _ := unstructured.NestedFieldNoCopy(object.Object, kind.path...) // nil if it is absent
		resource := kind.Resource + "." + kind.Group
		commands = append(commands,
			Command{patch(resource, key, kind.path, kind.value), patch(resource, key, kind.path, before), false})
	}
	return commands
}

// patch is the command that sets a field, or removes it if the value is nil.
func patch(resource string, key Key, path []string, value any) string {
	for _, name := range slices.Backward(path) {
		value = map[string]any{name: value}
	}
	merge, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding plain data: %v", err))
	}
	return "kubectl -n " + shell.Words(key.Namespace, "patch", resource, key.Name, "--type",
		"merge", "-p", string(merge))
}

// Trim removes everything from an object of Argo CD or Flux that this package does not read: values of charts and
// parameters may be secret. Other objects stay as they are.
func Trim(object *unstructured.Unstructured) {
	if _, known := kindOf(KeyOf(object)); !known {
		return
	}
	kept := map[string]any{"apiVersion": object.GetAPIVersion(), "kind": object.GetKind()}
	if metadata, ok := object.Object["metadata"]; ok {
		kept["metadata"] = metadata
	}
	bare := &unstructured.Unstructured{Object: kept}
	for _, path := range [][]string{{"spec", "syncPolicy", "automated"}, {"spec", "destination"}, {"spec", "suspend"},
		{"spec", "targetNamespace"},
		{"spec", "driftDetection", "mode"}} {
		if value, found, err := unstructured.NestedFieldNoCopy(object.Object, path...); found && err == nil {
			_ = unstructured.SetNestedField(bare.Object, value, path...) // the path is new
		}
	}
	if !Here(object) && object.GetKind() != "Application" {
		_ = unstructured.SetNestedMap(bare.Object, map[string]any{}, "spec", "kubeConfig")
	}
	trimList(object, bare, []string{"group", "kind", "namespace", "name"}, "status", "resources")
	trimList(object, bare, []string{"id"}, "status", "inventory", "entries")
	object.Object = kept
}

// trimList copies a list, and of its items only some fields.
func trimList(from, to *unstructured.Unstructured, fields []string, path ...string) {
	list, found, err := unstructured.NestedFieldNoCopy(from.Object, path...)
	items, ok := list.([]any)
	if !found || err != nil || !ok {
		return
	}
	kept := make([]any, 0, len(items))
	for _, item := range items {
		one, short := map[string]any{}, map[string]any{}
		if m, ok := item.(map[string]any); ok {
			one = m
		}
		for _, name := range fields {
			if value, ok := one[name]; ok {
				short[name] = value
			}
		}
		kept = append(kept, short)
	}
	_ = unstructured.SetNestedSlice(to.Object, kept, path...) // the path is new
}
