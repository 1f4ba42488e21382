package objects

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Verb is what a step does to an object of the mirror.
type Verb string

// The verbs.
const (
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
)

// Step is one write that the mirror needs.
type Step struct {
	Verb Verb
	Key  Key
	Item *Item  // nil where it is deleted
	Live Object // nil where it is created
	Why  []Difference
}

// Difference is a field with another value than wanted. Want or Have is nil if the field is missing.
type Difference struct {
	Path string `json:"path"`
	Want any    `json:"want,omitempty"`
	Have any    `json:"have,omitempty"`
	// By is the last other client that wrote it on the mirror.
	By string `json:"by,omitempty"`
}

// Delta is what has to be done to the mirror, in order: waves of creations and updates, then deletions.
type Delta struct {
	Waves   [][]Step
	Deletes []Step
	InStep  int
	// Foreign are objects that the mirror has and that were not copied there.
	Foreign []Key
	// Kept are cluster-wide objects of the mirror's own that the original has too.
	Kept []Key
}

// Writes is how many objects would be written or deleted.
func (d *Delta) Writes() int {
	n := len(d.Deletes)
	for _, wave := range d.Waves {
		n += len(wave)
	}
	return n
}

// Ours says whether an object of the mirror was copied there from a source.
func Ours(live Object, source string) bool {
	return live.GetLabels()[MarkLabel] == source && slices.ContainsFunc(writersOf(live), func(w writer) bool {
		return w.manager == Manager
	})
}

// Against compares the plan with what the mirror has. Only objects of the chosen namespaces are deleted, only
// such as were copied, and none of a kind that could not be read on the original.
func (p *Plan) Against(live []Object) *Delta {
	delta := &Delta{}
	have := make(map[Key]Object, len(live))
	for _, object := range live {
		have[KeyOf(object)] = object
	}
	for _, wave := range p.Waves {
		var steps []Step
		for _, item := range wave {
			key := KeyOf(item.Object)
			step := Step{Verb: Update, Key: key, Item: item, Live: have[key]}
			switch {
			case step.Live == nil:
				step.Verb = Create
			case !p.options.Adopt && !Ours(step.Live, p.World.Source) && !sharedByNature(key):
				if key.Namespace == "" {
					delta.Kept = append(delta.Kept, key)
				} else {
					delta.Foreign = append(delta.Foreign, key)
				}
				continue
			default:
				step.Why = differences(item, step.Live)
				if len(step.Why) == 0 {
					delta.InStep++
					continue
				}
			}
			steps = append(steps, step)
		}
		if len(steps) > 0 {
			delta.Waves = append(delta.Waves, steps)
		}
	}
	for _, object := range live {
		key := KeyOf(object)
		if p.items[key] != nil || !slices.Contains(p.World.Namespaces, key.Namespace) ||
			slices.Contains(p.World.Unread, key.GroupKind()) ||
			object.GetDeletionTimestamp() != nil || !Ours(object, p.World.Source) {
			continue
		}
		delta.Deletes = append(delta.Deletes, Step{Verb: Delete, Key: key, Live: object})
	}
	phase := phases()
	slices.SortFunc(delta.Deletes, func(a, b Step) int { // users before what they use
		if d := phase[b.Key.GroupKind().String()] - phase[a.Key.GroupKind().String()]; d != 0 {
			return d
		}
		return compareKeys(a.Key, b.Key)
	})
	return delta
}

// sharedByNature says that a cluster makes an object by itself, and users write to it all the same.
func sharedByNature(key Key) bool {
	return key.Group == "" && (key.Kind == "Namespace" || key.Kind == "ServiceAccount" && key.Name == "default")
}

// Wanted is the object to apply over what the mirror has (nil: nothing). How many pods it has stays the
// autoscaler's matter, and owners get the identity that they have on the mirror: uid looks them up. It is not to be
// changed: where there is nothing to add, it is the item's own.
func (i *Item) Wanted(live Object, uid func(Key) (string, bool)) (Object, error) {
	wanted := i.Object
	references, _ := at(wanted, "metadata", "ownerReferences").([]any)
	if len(references) == 0 && (live == nil || !i.Autoscaled) {
		return wanted, nil
	}
	wanted = wanted.DeepCopy()
	if i.Autoscaled && live != nil {
		remove(wanted, "spec", "replicas")
		if replicas := at(live, "spec", "replicas"); replicas != nil && owns(live, "spec", "replicas") {
			set(wanted, replicas, "spec", "replicas") // no other manager owns it: without us it would become 1
		}
	}
	references, _ = at(wanted, "metadata", "ownerReferences").([]any)
	for _, reference := range references {
		fields, _ := reference.(map[string]any)
		key := ownerKey(fields, wanted.GetNamespace())
		id, ok := uid(key)
		if !ok {
			key.Namespace = ""
			if id, ok = uid(key); !ok {
				return nil, fmt.Errorf("its owner %s is not on the mirror", key)
			}
		}
		fields["uid"] = id
	}
	return wanted, nil
}

// owns says whether our manager owns a field.
func owns(live Object, path ...string) bool {
	var p fieldpath.Path
	for _, name := range path {
		p = append(p, fieldpath.FieldNameElement(name))
	}
	for _, owner := range ownersOf(live) {
		if owner.manager == Manager && owner.fields.Has(p) {
			return true
		}
	}
	return false
}

// differences says what of an item is not on the mirror as it is to be. The digest tells what was in it once and
// no longer exists; the fields show what another client changed.
func differences(item *Item, live Object) []Difference {
	c := comparison{owners: sync.OnceValue(func() []owner { return ownersOf(live) })}
	for _, name := range slices.Sorted(maps.Keys(item.Object.Object)) {
		if name == "metadata" {
			continue
		}
		wanted := item.Object.Object[name]
		if spec, ok := wanted.(map[string]any); ok && name == "spec" && item.Autoscaled {
			spec = maps.Clone(spec)
			delete(spec, "replicas")
			wanted = spec
		}
		c.value(steps{}.field(name), wanted, live.Object[name])
	}
	for _, name := range []string{"labels", "annotations"} {
		wanted, _ := at(item.Object, "metadata", name).(map[string]any)
		have, _ := at(live, "metadata", name).(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(wanted)) {
			if key != SumAnnotation {
				c.value(steps{}.field("metadata").field(name).field(key), wanted[key], have[key])
			}
		}
	}
	c.owned(item.Object, live)
	sum := item.Object.GetAnnotations()[SumAnnotation]
	if had := live.GetAnnotations()[SumAnnotation]; had != sum && len(c.found) == 0 {
		c.found = append(c.found, Difference{Path: "a field that the original no longer has, or an older copy"})
	}
	return c.found
}

// steps is a path into an object, for people, and as hops for those who ask whose it is.
type steps struct {
	text string
	hops []hop
}

// hop is one step: a field, or an item of a list with its value on the mirror.
type hop struct {
	field string
	index int
	item  any // nil for a field
}

func (h hop) elements(set *fieldpath.Set) []fieldpath.PathElement {
	if h.item == nil {
		return []fieldpath.PathElement{fieldpath.FieldNameElement(h.field)}
	}
	return elements(set, h.index, h.item)
}

func (s steps) field(name string) steps {
	text := name
	if strings.ContainsAny(name, "./") {
		text = "[" + name + "]"
	}
	if s.text != "" && text == name {
		text = "." + name
	}
	return steps{s.text + text, append(slices.Clone(s.hops), hop{field: name})}
}

func (s steps) item(i int, have any) steps {
	return steps{s.text + "[" + strconv.Itoa(i) + "]", append(slices.Clone(s.hops), hop{index: i, item: have})}
}

// wrote says whether a manager owns what a path leads to, or a value that holds it and is owned as a whole.
func (o owner) wrote(path []hop) bool {
	set := o.fields
	for i, hop := range path {
		var below *fieldpath.Set
		for _, element := range hop.elements(set) {
			deeper, ok := set.Children.Get(element)
			if set.Members.Has(element) && (i == len(path)-1 || !ok) {
				return true
			}
			if ok {
				below = deeper
			}
		}
		if below == nil {
			return false
		}
		set = below
	}
	return false
}

type comparison struct {
	owners func() []owner // nil: nobody asks who it was
	found  []Difference
}

// value demands that all of want is in have. Further fields of have are defaults, and fields of other managers.
func (c *comparison) value(where steps, want, have any) {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := have.(map[string]any)
		if !ok && len(want) > 0 || have == nil && len(want) == 0 && !vanishes(where) {
			c.differ(where, want, have)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			c.value(where.field(name), want[name], fields[name])
		}
	case []any:
		items, _ := have.([]any)
		if len(items) < len(want) {
			c.differ(where, want, have)
			return
		}
		for i, item := range want {
			c.item(where.item(i, items[i]), item, items, i)
		}
		if len(items) > len(want) && !associative(items) {
			c.differ(where, want, have)
		}
	default:
		if !equal(want, have) && !(want == nil && have == nil) {
			c.differ(where, want, have)
		}
	}
}

// item looks for an item of a list: where it stands, or in a list of maps anywhere, since others may add theirs.
func (c *comparison) item(where steps, want any, items []any, i int) {
	sub := comparison{owners: c.owners}
	sub.value(where, want, items[i])
	if len(sub.found) == 0 {
		return
	}
	if associative(items) {
		for _, item := range items {
			other := comparison{}
			if other.value(where, want, item); len(other.found) == 0 {
				return
			}
		}
	}
	c.found = append(c.found, sub.found...)
}

// associative says whether the items of a list are told apart by a name or a port, as others' items can then
// stand next to ours.
func associative(items []any) bool {
	for _, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			return false
		}
		known := false
		for _, key := range []string{"name", "key", "containerPort", "port", "mountPath", "type",
			"topologyKey", "uid", "ip"} {
			_, has := fields[key]
			known = known || has
		}
		if !known {
			return false
		}
	}
	return true
}

// vanishes says whether an empty map at a place is the same as none: the server drops these.
func vanishes(where steps) bool {
	return strings.HasPrefix(where.text, "data") || strings.HasPrefix(where.text, "stringData") ||
		strings.HasPrefix(where.text, "metadata.")
}

// equal compares numbers by value: JSON has one kind of them, decoders several.
func equal(a, b any) bool {
	if x, ok := number(a); ok {
		y, ok := number(b)
		return ok && x == y
	}
	return reflect.DeepEqual(a, b)
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case int:
		return float64(v), true
	}
	return 0, false
}

func (c *comparison) differ(where steps, want, have any) {
	difference := Difference{Path: where.text, Want: want, Have: have}
	var owners []owner
	if c.owners != nil {
		owners = c.owners()
	}
	for _, owner := range owners {
		if owner.manager != Manager && owner.wrote(where.hops) {
			difference.By = owner.manager
			if !owner.at.IsZero() {
				difference.By += " at " + owner.at.UTC().Format("2006-01-02 15:04:05Z")
			}
		}
	}
	c.found = append(c.found, difference)
}

// owned demands that the owners are there, by name: their uids differ between clusters.
func (c *comparison) owned(want, live Object) {
	for _, owner := range want.GetOwnerReferences() {
		there := false
		for _, other := range live.GetOwnerReferences() {
			there = there || owner.Kind == other.Kind && owner.Name == other.Name
		}
		if !there {
			c.found = append(c.found, Difference{Path: "metadata.ownerReferences", Want: owner.Kind + " " + owner.Name})
		}
	}
}
