package setting

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/safeio/bounded"
	"github.com/theseus-cni/theseus/internal/step"
	"sigs.k8s.io/yaml"
)

// Aim says which nodes an edit applies to.
type Aim struct {
	Scope Scope
	// Node is the node's name, for the scope Node.
	Node string
	// Object names the object to create, and Selector selects the nodes, for the scope Selector: in Calico's selector
	// syntax for Calico, and as comma-separated pairs k=v for Cilium.
	Object   string
	Selector string
	// CalicoAPI is the API version of Calico's objects; empty means crd.projectcalico.org/v1.
	CalicoAPI string
}

// Write is one edit that gives a knob a value.
type Write struct {
	Knob string `json:"knob"`
	// Value has the type that the object's field has.
	Value any      `json:"value"`
	Ref   step.Ref `json:"ref"`
	Place Place    `json:"place"`
	// Selector is the object's node selector, if it applies to some nodes only.
	Selector any `json:"selector,omitempty"`
}

// hostname is the label with a node's name. A kubelet can be configured with a different hostname; then a selector by
// node name matches no node, and the caller, who knows the labels, must use the scope Selector.
const hostname = "kubernetes.io/hostname"

// Write makes the edit that sets the knob to a value at the scope of aim. It refuses a knob that has no place of that
// scope, and names its narrowest scope. If a scope has several places, it uses the weakest, so that the value can be
// overridden later; Fleet.Beaten tells whether another value overrides it in a cluster.
func (k *Knob) Write(aim Aim, value string) (Write, error) {
	if err := k.Check(value); err != nil {
		return Write{}, fail("theseus flags explain "+k.ID()+" shows the accepted values",
			"%s: %q: %v", k.ID(), value, err)
	}
	place, err := k.placeFor(aim.Scope)
	if err != nil {
		return Write{}, err
	}
	w := Write{Knob: k.ID(), Place: place,
		Ref: step.Ref{APIVersion: place.APIVersion, Kind: place.Kind, Namespace: place.Namespace, Name: place.Object}}
	if strings.Contains(place.APIVersion, "projectcalico.org") && aim.CalicoAPI != "" {
		w.Ref.APIVersion = aim.CalicoAPI
	}
	if w.Value, err = k.typed(value, place); err != nil {
		return Write{}, fail("theseus flags explain "+k.ID()+" shows the accepted values",
			"%s: %q: %v", k.ID(), value, err)
	}
	switch {
	case aim.Scope == Node && aim.Node == "", aim.Scope == Selector && (aim.Selector == "" || aim.Object == ""):
		return Write{}, fail("name the node, or the selector and the object", "%s: no nodes are given", k.ID())
	case aim.Scope == Node && place.Scope == Selector:
		w.Ref.Name = "theseus-" + aim.Node
		w.Selector, err = selectorOf(place, hostname+"="+aim.Node)
	case aim.Scope == Node:
		w.Ref.Name = nodeName(place.Object, aim.Node)
	case aim.Scope == Selector:
		w.Ref.Name = aim.Object
		w.Selector, err = selectorOf(place, aim.Selector)
	}
	return w, err
}

// Over makes the edit that replaces an existing value.
func (k *Knob) Over(set *Set, value string) (Write, error) {
	typed, err := k.typed(value, *set.Place)
	return Write{Knob: k.ID(), Value: typed, Place: *set.Place, Ref: set.Ref}, err
}

// nodeName returns the name of a node's own object.
func nodeName(object, node string) string { return strings.TrimSuffix(object, "NODE") + node }

// placeFor finds a place of a scope that can be edited. A place with a selector also serves for a single node.
func (k *Knob) placeFor(scope Scope) (Place, error) {
	narrowest := Place{}
	for _, wanted := range []Scope{scope, Selector} {
		for _, p := range k.Places {
			if p.Kind == "" {
				continue // a file on the node
			}
			if p.Scope == wanted && (wanted == scope || scope == Node && p.SelectorPath != "") {
				return p, nil
			}
			if slices.Index(scopes, p.Scope) >= slices.Index(scopes, narrowest.Scope) {
				narrowest = p
			}
		}
	}
	if narrowest.Kind == "" {
		return Place{}, fail("see theseus flags explain "+k.ID(), "%s cannot be set through the API", k.ID())
	}
	return Place{}, fail(fmt.Sprintf("set it in %s, for the %s as a whole", narrowest.Name, narrowest.Scope),
		"%s cannot be set for one %s: its narrowest place is %s (%s)", k.ID(), scope, narrowest.Name, narrowest.Scope)
}

var scopes = []Scope{"", Cluster, Pool, Selector, Node}

// selectorOf converts a selector into the form that the place's object uses.
func selectorOf(place Place, text string) (any, error) {
	if strings.HasPrefix(place.APIVersion, "crd.projectcalico.org/") {
		if key, value, ok := strings.Cut(text, "="); ok && !strings.ContainsAny(text, `"'`) {
			return fmt.Sprintf("%s == '%s'", key, value), nil
		}
		return text, nil
	}
	labels := map[string]any{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fail("write it as zone=a,pool=edge", "%q is not a list of labels", text)
		}
		labels[key] = value
	}
	return map[string]any{"matchLabels": labels}, nil
}

// typed converts a value into the type that a place uses.
func (k *Knob) typed(text string, place Place) (any, error) {
	if place.Env != "" || place.Argument != "" ||
		place.Inside == "" && (place.Kind == "ConfigMap" || place.Kind == "CiliumNodeConfig" || place.Kind == "Node") {
		if k.felix != nil && k.Type == Duration {
			d, err := k.duration(text)
			if err != nil {
				return nil, err
			}
			return strconv.FormatFloat(float64(d)/float64(k.unit()), 'f', -1, 64), nil
		}
		return text, nil
	}
	kind := string(k.Type)
	if k.felix != nil {
		kind = k.felix.Kind
	}
	switch kind {
	case "bool", "boolean":
		return truth(text) == "true", nil
	case "integer":
		return strconv.ParseInt(text, 0, 64)
	case "integer or string":
		if n, err := strconv.ParseInt(text, 0, 64); err == nil {
			return n, nil
		}
	case "number":
		return strconv.ParseFloat(text, 64)
	case "array", "object", "list", "map":
		return structure(text, kind)
	}
	if k.felix != nil && k.Type == Duration {
		d, err := k.duration(text)
		if err == nil && (d < 0 || d%time.Millisecond != 0) {
			err = errors.New("the API server accepts no negative values and no fractions of a millisecond")
		}
		return inWhole(d), err
	}
	for _, one := range k.Values {
		if strings.EqualFold(one, text) {
			return one, nil // the API server is case-sensitive
		}
	}
	if k.felix != nil && len(k.Values) > 0 { // such as "none", which Felix accepts in other places
		return nil, errors.New("it must be one of " + strings.Join(k.Values, ", "))
	}
	return text, nil
}

// inWhole formats a duration for a field of a FelixConfiguration, whose pattern only allows whole numbers: 1s500ms.
func inWhole(d time.Duration) string {
	whole := d.Truncate(time.Second)
	if rest := d - whole; rest != 0 && whole != 0 {
		return whole.String() + rest.String()
	}
	return d.String()
}

// unit is the unit of a duration that Felix reads from a bare number.
func (k *Knob) unit() time.Duration {
	if strings.HasPrefix(k.felix.Schema, "Milli") {
		return time.Millisecond
	}
	return time.Second
}

// structure parses a list or an object, from JSON or from comma-separated text.
func structure(text, kind string) (any, error) {
	if strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{") {
		var value any
		return value, json.Unmarshal([]byte(text), &value)
	}
	list, object := []any{}, map[string]any{}
	for one := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(one, "=")
		list, object[key] = append(list, one), value
	}
	if kind == "object" || kind == "map" {
		return object, nil
	}
	return list, nil
}

// Fields is the path to the value within the object; nil if the value is in a list or in a document.
func (w Write) Fields() []string {
	if w.Place.Path == "" {
		return nil
	}
	for _, section := range []string{"data.", "metadata.annotations.", "spec.defaults."} { // their keys contain dots
		if key, ok := strings.CutPrefix(w.Place.Path, section); ok {
			return append(strings.Split(strings.TrimSuffix(section, "."), "."), key)
		}
	}
	return strings.Split(w.Place.Path, ".")
}

// Object returns an object that contains only the edit, for server-side apply. It is not ok if the value is inside a
// document or an argument: then use Edit on the existing object.
func (w Write) Object() (object *unstructured.Unstructured, ok bool) {
	if w.Place.Inside != "" || w.Place.Argument != "" {
		return nil, false
	}
	object = &unstructured.Unstructured{Object: map[string]any{}}
	object.SetAPIVersion(w.Ref.APIVersion)
	object.SetKind(w.Ref.Kind)
	object.SetNamespace(w.Ref.Namespace)
	object.SetName(w.Ref.Name)
	return object, w.Edit(object) == nil
}

// Edit makes the edit in an object read from the cluster.
func (w Write) Edit(object *unstructured.Unstructured) error {
	if w.Selector != nil {
		if err := unstructured.SetNestedField(object.Object, w.Selector,
			strings.Split(w.Place.SelectorPath, ".")...); err != nil {
			return err
		}
	}
	switch {
	case w.Place.Env != "":
		return setEnv(object, w.Place.Container, w.Place.Env, fmt.Sprint(w.Value))
	case w.Place.Argument != "":
		return fail("change the argument of the DaemonSet by hand", "%s is a command-line argument", w.Place.Argument)
	case w.Place.Inside == "":
		return unstructured.SetNestedField(object.Object, w.Value, w.Fields()...)
	}
	text, _, err := unstructured.NestedString(object.Object, w.Fields()...)
	if err != nil {
		return err
	}
	var document map[string]any
	if err := bounded.Unmarshal([]byte(text), &document); err != nil {
		return fmt.Errorf("%s in %s: %w", w.Place.Path, w.Ref, err)
	}
	if document == nil {
		return fail("look at the object", "%s has no %s", w.Ref, w.Place.Path)
	}
	if err := unstructured.SetNestedField(document, w.Value, strings.Split(w.Place.Inside, ".")...); err != nil {
		return err
	}
	var edited []byte
	if strings.HasPrefix(strings.TrimSpace(text), "{") {
		edited, err = json.MarshalIndent(document, "", "  ")
	} else {
		edited, err = yaml.Marshal(document)
	}
	if err != nil {
		return err
	}
	return unstructured.SetNestedField(object.Object, string(edited), w.Fields()...)
}

// setEnv sets an environment variable of a container of a DaemonSet.
func setEnv(object *unstructured.Unstructured, container, name, value string) error {
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(object.Object, path...)
	if err != nil {
		return err
	}
	set := map[string]any{"name": name, "value": value}
	at := slices.IndexFunc(containers, func(one any) bool {
		c, ok := one.(map[string]any)
		return ok && c["name"] == container
	})
	if at < 0 {
		containers, at = append(containers, map[string]any{"name": container}), len(containers)
	}
	c := containers[at].(map[string]any)
	env, _ := c["env"].([]any)
	one := slices.IndexFunc(env, func(one any) bool { e, ok := one.(map[string]any); return ok && e["name"] == name })
	if one < 0 {
		env = append(env, set)
	} else {
		env[one] = set
	}
	c["env"] = env
	return unstructured.SetNestedSlice(object.Object, containers, path...)
}
