package setting

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/internal/cluster/selector"
	"github.com/theseus-cni/theseus/internal/cluster/selector/nodes"
	"github.com/theseus-cni/theseus/internal/flags/felix"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
	"github.com/theseus-cni/theseus/internal/step"
)

// spot is a place of a knob, as the reader looks it up.
type spot struct {
	knob *Knob
	rank int
}

func (s spot) place() *Place { return &s.knob.Places[s.rank] }

// reader reads settings from objects.
type reader struct {
	*Fleet
	daemonSets []*appsv1.DaemonSet
	configMaps []*corev1.ConfigMap
	// custom are the networks' custom resources, by kind.
	custom map[string][]unstructured.Unstructured
	// spots are the places by kind, then by the first part of their path (keyOf).
	spots map[string]map[string][]spot
}

func newReader(f *Fleet) *reader {
	r := &reader{Fleet: f, custom: map[string][]unstructured.Unstructured{}, spots: map[string]map[string][]spot{}}
	s := f.snapshot
	for i := range s.DaemonSets {
		r.daemonSets = append(r.daemonSets, &s.DaemonSets[i])
	}
	for i := range s.ConfigMaps {
		r.configMaps = append(r.configMaps, &s.ConfigMaps[i])
	}
	for _, kind := range []string{"FelixConfiguration", "BGPConfiguration", "IPPool", "KubeControllersConfiguration"} {
		r.custom[kind] = slices.Clone(s.Calico(kind))
	}
	r.custom["Installation"] = slices.Clone(s.OtherOf("operator.tigera.io", "Installation"))
	r.custom["CiliumNodeConfig"] = slices.Clone(s.OtherOf("cilium.io", "CiliumNodeConfig"))
	for _, object := range f.overlay {
		r.lay(object)
	}
	return r
}

// lay merges an object into the existing one, or adds it.
func (r *reader) lay(object unstructured.Unstructured) {
	switch object.GetKind() {
	case "DaemonSet":
		laid(&r.daemonSets, object)
	case "ConfigMap":
		laid(&r.configMaps, object)
	default:
		list := r.custom[object.GetKind()]
		at := slices.IndexFunc(list, func(o unstructured.Unstructured) bool {
			return o.GetName() == object.GetName() && o.GetNamespace() == object.GetNamespace()
		})
		if at < 0 {
			r.custom[object.GetKind()] = append(list, object)
			return
		}
		list[at] = unstructured.Unstructured{Object: merged(list[at].Object, object.Object)}
	}
}

// laid does the same for typed objects.
func laid[T any, P interface {
	*T
	metav1.Object
}](list *[]P, object unstructured.Unstructured) {
	at := slices.IndexFunc(*list, func(o P) bool {
		return o.GetName() == object.GetName() && o.GetNamespace() == object.GetNamespace()
	})
	content := object.Object
	if at >= 0 {
		if under, err := runtime.DefaultUnstructuredConverter.ToUnstructured((*list)[at]); err == nil {
			content = merged(under, content)
		}
	}
	made := P(new(T))
	if runtime.DefaultUnstructuredConverter.FromUnstructured(content, made) != nil {
		return // not a valid object of its kind; reported when it was read
	}
	if at < 0 {
		*list = append(*list, made)
	} else {
		(*list)[at] = made
	}
}

// merged merges a tree into another: objects key by key, lists of named objects by name, everything else is replaced.
func merged(under, over map[string]any) map[string]any {
	result := maps.Clone(under)
	for key, value := range over {
		switch value := value.(type) {
		case map[string]any:
			if below, ok := under[key].(map[string]any); ok {
				result[key] = merged(below, value)
				continue
			}
		case []any:
			if below, ok := under[key].([]any); ok {
				result[key] = mergedLists(below, value)
				continue
			}
		}
		result[key] = value
	}
	return result
}

func mergedLists(under, over []any) []any {
	name := func(one any) string { m, _ := one.(map[string]any); text, _ := m["name"].(string); return text }
	if slices.ContainsFunc(over, func(one any) bool { return name(one) == "" }) {
		return over
	}
	result := slices.Clone(under)
	for _, one := range over {
		at := slices.IndexFunc(result, func(o any) bool { return name(o) == name(one) })
		if at < 0 {
			result = append(result, one)
		} else if below, ok := result[at].(map[string]any); ok {
			result[at] = merged(below, one.(map[string]any))
		}
	}
	return result
}

func (r *reader) read() {
	for _, k := range r.catalogue.knobs {
		for i, p := range k.Places {
			if p.Kind == "" || p.Kind == "CiliumNodeConfig" { // the latter is read by its keys
				continue
			}
			if r.spots[p.Kind] == nil {
				r.spots[p.Kind] = map[string][]spot{}
			}
			key := keyOf(&p)
			r.spots[p.Kind][key] = append(r.spots[p.Kind][key], spot{k, i})
		}
	}
	for _, set := range r.daemonSets {
		r.readDaemonSet(set)
	}
	for _, m := range r.configMaps {
		r.readConfigMap(m)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.custom)) {
		r.readCustom(kind, r.custom[kind])
	}
	for n := range r.nodes {
		r.readNode(n)
	}
}

// keyOf returns the key of a place within its kind.
func keyOf(p *Place) string {
	switch {
	case p.Env != "":
		return "env " + strings.ToLower(p.Env)
	case p.Argument != "":
		return "argument " + p.Argument
	case p.Kind == "ConfigMap":
		return p.Object + " " + p.Path
	}
	first, rest, _ := strings.Cut(p.Path, ".")
	if first == "metadata" {
		return p.Path
	}
	second, _, _ := strings.Cut(rest, ".")
	return first + "." + second
}

func (r *reader) readDaemonSet(set *appsv1.DaemonSet) {
	owner := -1
	own := func() int {
		if owner < 0 {
			owner = r.ownAgent(set)
		}
		return owner
	}
	ref := cni.DaemonSetRef(set)
	for _, container := range set.Spec.Template.Spec.Containers {
		for _, env := range container.Env {
			spots := r.spots["DaemonSet"]["env "+strings.ToLower(env.Name)]
			found := false
			for _, s := range spots {
				if p := s.place(); p.Container == container.Name {
					value, from, known := r.valueOf(set.Namespace, env)
					made := r.all(s, own(), ref, value)
					if made.Unknown = !known; from != nil { // a change of the ConfigMap restarts no pod
						p := *s.place()
						p.Name, p.Trigger = p.Name+", from a ConfigMap", ByHand
						made.Ref, made.Place = *from, &p
					}
					found = true
				}
			}
			if _, known, ours := felix.For(r.versions["calico"]).ByVariable(env.Name); !found && ours && !known &&
				container.Name == "calico-node" {
				r.stray(ref, "calico", env.Name)
			}
		}
		r.readArguments(set, container, own)
	}
	r.spaces["DaemonSet/"+set.Name] = set.Namespace
}

func (r *reader) readArguments(set *appsv1.DaemonSet, container corev1.Container, own func() int) {
	words := slices.Concat(container.Command, container.Args)
	for i, word := range words {
		name, value, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if !strings.HasPrefix(word, "-") {
			continue
		}
		for _, s := range r.spots["DaemonSet"]["argument --"+name] {
			if s.place().Container != container.Name {
				continue
			}
			switch {
			case given:
			case s.knob.Type == Bool:
				value = "true"
			case i+1 < len(words):
				value = words[i+1]
			}
			r.all(s, own(), cni.DaemonSetRef(set), value)
		}
	}
}

// ownAgent makes an agent of a DaemonSet. If the DaemonSet does not run on every node, its settings apply only to the
// nodes that it selects.
func (r *reader) ownAgent(set *appsv1.DaemonSet) int {
	a := agent{set: set}
	choice := nodes.OfPod(&set.Spec.Template.Spec, "")
	if len(choice.Keys()) > 0 {
		a.picks = make([]bool, len(r.nodes))
		for n, node := range r.nodes {
			a.picks[n] = choice.Picks(nil, node)
		}
	}
	r.agents = append(r.agents, a)
	return len(r.agents) - 1
}

// valueOf returns a variable's value. If the variable refers to a ConfigMap, it also returns that reference.
func (r *reader) valueOf(namespace string, env corev1.EnvVar) (value string, from *step.Ref, known bool) {
	if env.ValueFrom == nil || env.Value != "" { // an edit may have been merged over a reference
		return env.Value, nil, true
	}
	ref := env.ValueFrom.ConfigMapKeyRef
	if ref == nil {
		return "", nil, false
	}
	for _, m := range r.configMaps {
		if m.Namespace == namespace && m.Name == ref.Name {
			value, known = m.Data[ref.Key]
			return value, &step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: ref.Name}, known
		}
	}
	return "", nil, false
}

// all records a value for all nodes, or for the nodes of an agent.
func (r *reader) all(s spot, owner int, ref step.Ref, value string) *Set {
	l := r.level(s.knob, s.rank)
	made := r.put(s.knob, s.rank, ref, value)
	l.all, l.owners = append(l.all, made), append(l.owners, owner)
	return made
}

func (r *reader) readConfigMap(m *corev1.ConfigMap) {
	ref := step.Ref{APIVersion: "v1", Kind: "ConfigMap", Namespace: m.Namespace, Name: m.Name}
	for _, key := range slices.Sorted(maps.Keys(m.Data)) {
		spots := r.spots["ConfigMap"][m.Name+" data."+key]
		if len(spots) > 0 {
			r.spaces["ConfigMap/"+m.Name] = m.Namespace
		} else if m.Name == ciliumConfig {
			r.stray(ref, "cilium", key)
		}
		var document map[string]any
		for _, s := range spots {
			if s.place().Inside == "" {
				r.all(s, -1, ref, m.Data[key])
				continue
			}
			if document == nil && bounded.Unmarshal([]byte(m.Data[key]), &document) != nil {
				break // kubeproxy/cluster-cidr and the drivers say so
			}
			if value, ok := textAt(document, s.place().Inside); ok {
				r.all(s, -1, ref, value)
			}
		}
	}
}

// ciliumConfig is the ConfigMap in which every key is a setting.
const ciliumConfig = "cilium-config"

func (r *reader) readCustom(kind string, objects []unstructured.Unstructured) {
	slices.SortStableFunc(objects, func(a, b unstructured.Unstructured) int {
		return cmp.Compare(a.GetName(), b.GetName())
	})
	for _, object := range objects {
		ref := step.RefOf(&object)
		r.apis[kind] = cmp.Or(r.apis[kind], object.GetAPIVersion())
		at := r.addConfig(kind, object)
		if kind == "CiliumNodeConfig" {
			r.readNodeConfig(object, ref, at)
			continue
		}
		for _, first := range []string{"spec", "metadata"} {
			section, _ := object.Object[first].(map[string]any)
			for _, key := range slices.Sorted(maps.Keys(section)) {
				spots := r.spots[kind][first+"."+key]
				for _, s := range spots {
					r.custom1(s, object, ref, at)
				}
				if len(spots) == 0 && first == "spec" && kind == "FelixConfiguration" && key != "nodeSelector" {
					r.stray(ref, "calico", key)
				}
			}
		}
	}
	r.match(kind)
}

// custom1 records the value of one place in a custom resource, if the place belongs to that object.
func (r *reader) custom1(s spot, object unstructured.Unstructured, ref step.Ref, at int) {
	p := s.place()
	value, ok := textAt(object.Object, p.Path)
	if !ok {
		return
	}
	name := object.GetName()
	switch {
	case p.Scope == Pool: // the value in effect is that of all pools together
		if l := r.level(s.knob, s.rank); len(l.all) > 0 {
			l.all[0].Value += "," + name + "=" + value
			return
		}
		r.all(s, -1, ref, name+"="+value)
	case p.SelectorPath != "":
		if at >= 0 {
			r.config(s, at, ref, value)
		}
	case strings.HasSuffix(p.Object, "NODE"):
		n, known := r.index[strings.TrimPrefix(name, strings.TrimSuffix(p.Object, "NODE"))]
		if known && strings.HasPrefix(name, strings.TrimSuffix(p.Object, "NODE")) {
			r.putOn(n, s.knob, s.rank, ref, value)
		}
	case p.Object == name:
		r.all(s, -1, ref, value)
	}
}

func (r *reader) config(s spot, at int, ref step.Ref, value string) {
	l := r.level(s.knob, s.rank)
	if l.config == nil {
		l.config = map[int]*Set{}
	}
	l.config[at] = r.put(s.knob, s.rank, ref, value)
}

// readNodeConfig reads a CiliumNodeConfig, which has the same keys as cilium-config.
func (r *reader) readNodeConfig(object unstructured.Unstructured, ref step.Ref, at int) {
	defaults, _, _ := unstructured.NestedMap(object.Object, "spec", "defaults")
	for _, key := range slices.Sorted(maps.Keys(defaults)) {
		value, ok := asText(defaults[key])
		k, known := r.catalogue.Get("cilium/" + key)
		if !known {
			r.stray(ref, "cilium", key)
			continue
		}
		rank := slices.IndexFunc(k.Places, func(p Place) bool { return p.Kind == "CiliumNodeConfig" })
		if ok && rank >= 0 && at >= 0 {
			r.config(spot{k, rank}, at, ref, value)
		}
	}
}

// addConfig records an object with a node selector, and returns its index; -1 if it has none.
func (r *reader) addConfig(kind string, object unstructured.Unstructured) int {
	c := config{object: object}
	switch kind {
	case "FelixConfiguration":
		text, found, _ := unstructured.NestedString(object.Object, "spec", "nodeSelector")
		if !found || text == "" {
			return -1
		}
		parsed, err := selector.Parse(text)
		if err != nil {
			r.unread = append(r.unread, Stray{step.RefOf(&object), err.Error(), ""})
			return -1
		}
		c.matches = func(node *corev1.Node) bool { return parsed.Matches(node.Labels) }
	case "CiliumNodeConfig":
		var wanted metav1.LabelSelector
		field, _, _ := unstructured.NestedMap(object.Object, "spec", "nodeSelector")
		if runtime.DefaultUnstructuredConverter.FromUnstructured(field, &wanted) != nil {
			r.unread = append(r.unread, Stray{step.RefOf(&object), "spec.nodeSelector is not a label selector", ""})
			return -1
		}
		choice := nodes.OfLabels(wanted, "")
		c.matches = func(node *corev1.Node) bool { return choice.Picks(nil, node) }
	default:
		return -1
	}
	r.configs[kind] = append(r.configs[kind], c)
	return len(r.configs[kind]) - 1
}

// match finds the objects with a selector that apply to each node, the weakest first. Of Calico's, only one applies to
// a node: the oldest (the first by name if they are of the same age). Of Cilium's, all apply, and the last by name
// wins.
func (r *reader) match(kind string) {
	all := r.configs[kind]
	if len(all) == 0 {
		return
	}
	r.matched[kind] = make([][]int, len(r.nodes))
	for n, node := range r.nodes {
		for at, c := range all {
			if !c.matches(node) {
				continue
			}
			found := r.matched[kind][n]
			switch {
			case kind != "FelixConfiguration" || len(found) == 0:
				r.matched[kind][n] = append(found, at)
			case older(c.object, all[found[0]].object):
				found[0] = at
			}
		}
	}
}

func older(a, b unstructured.Unstructured) bool {
	one, two := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return one.Before(&two)
}

func (r *reader) readNode(n int) {
	node := r.nodes[n]
	ref := step.Ref{APIVersion: "v1", Kind: "Node", Name: node.Name}
	for _, values := range []struct {
		of     map[string]string
		prefix string
	}{{node.Annotations, "metadata.annotations."}, {node.Labels, "metadata.labels."}} {
		for key, value := range values.of {
			for _, s := range r.spots["Node"][values.prefix+key] {
				r.putOn(n, s.knob, s.rank, ref, value)
			}
		}
	}
}

// textAt returns the value at a path of a tree, as text.
func textAt(tree map[string]any, path string) (string, bool) {
	var value any = tree
	for part := range strings.SplitSeq(path, ".") {
		object, ok := value.(map[string]any)
		if !ok {
			return "", false
		}
		if value, ok = object[part]; !ok {
			return "", false
		}
	}
	return asText(value)
}

// asText converts a value into text as an environment variable would hold it; a structure becomes JSON.
func asText(value any) (string, bool) {
	if value == nil {
		return "", false
	}
	if text, ok := felix.Text(value); ok {
		return text, true
	}
	raw, err := json.Marshal(value)
	return string(raw), err == nil
}
