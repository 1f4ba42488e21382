package setting

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Set is one configured value and the place where it is configured.
type Set struct {
	Knob  *Knob    `json:"-"`
	Place *Place   `json:"place"`
	Ref   step.Ref `json:"ref"`
	Value string   `json:"value"`
	// Unknown is true if the value is in an object that is not in the input, such as a Secret.
	Unknown bool `json:"unknown,omitempty"`
	// Invalid says why the component does not accept the value.
	Invalid string `json:"invalid,omitempty"`

	rank int // the place's index: a higher one overrides a lower one
	on   int // the only node that it applies to, or -1
}

// Stray is a key in a settings object that is not a known setting.
type Stray struct {
	Ref  step.Ref `json:"ref"`
	Name string   `json:"name"`
	// Near is the knob with the most similar name, if any.
	Near string `json:"near,omitempty"`
}

// Fleet knows which values are configured for the nodes of a cluster, where, and so which value is in effect on each
// node.
type Fleet struct {
	catalogue *Catalogue
	versions  map[string]string
	nodes     []*corev1.Node
	index     map[string]int
	snapshot  *cluster.Snapshot
	overlay   []unstructured.Unstructured

	levels map[*Knob][]level
	// configs are the objects with a selector, by kind, the weakest first; matched are the indexes of those that apply
	// to each node.
	configs map[string][]config
	matched map[string][][]int
	agents  []agent
	sets    []*appsv1.DaemonSet
	strays  []Stray
	// unread are selectors that cannot be parsed.
	unread []Stray
	// apis are the API versions of the objects by kind, spaces the namespaces of DaemonSets and ConfigMaps, as found.
	apis, spaces map[string]string

	made     sync.Once
	prepared []flagset.Context
}

// level holds the values that are set at one place of a knob.
type level struct {
	all    []*Set // if there are several, the agent that runs on the node decides
	owners []int  // the agent of each, -1 for any
	node   []*Set // by node; nil if it is not set for that node
	config map[int]*Set
}

// config is an object that selects nodes.
type config struct {
	object  unstructured.Unstructured
	matches func(*corev1.Node) bool
}

// agent is a DaemonSet whose environment or arguments hold settings.
type agent struct {
	set *appsv1.DaemonSet
	// picks is nil if the DaemonSet runs on every node.
	picks []bool
}

// Read reads the settings from a snapshot, with the objects of an overlay merged into it.
func Read(snapshot *cluster.Snapshot, overlay []unstructured.Unstructured) *Fleet {
	f := &Fleet{snapshot: snapshot, overlay: overlay, index: map[string]int{}, levels: map[*Knob][]level{},
		configs: map[string][]config{}, matched: map[string][][]int{}, apis: map[string]string{},
		spaces: map[string]string{}}
	for i := range snapshot.Nodes {
		f.index[snapshot.Nodes[i].Name] = i
		f.nodes = append(f.nodes, &snapshot.Nodes[i])
	}
	r := newReader(f)
	f.sets = r.daemonSets
	f.versions = versionsOf(r.daemonSets, snapshot.Kubernetes)
	f.catalogue = New(f.versions)
	r.read()
	return f
}

// versionsOf finds the components' versions by the images of their agents.
func versionsOf(sets []*appsv1.DaemonSet, kubernetes string) map[string]string {
	versions := map[string]string{}
	for _, set := range sets {
		for component, image := range map[string]string{"calico": "node", "cilium": "cilium", "flannel": "flannel",
			"weave": "weave-kube", "kube-proxy": "kube-proxy"} {
			found := cni.ImageOf(set.Spec.Template.Spec.Containers, image)
			if found == "" || component == "calico" && !hasContainer(set, "calico-node") {
				continue
			}
			if tag := cluster.ImageOf(found).Tag; tag != "" && versions[component] == "" {
				versions[component] = tag
			}
		}
	}
	if versions["kube-proxy"] == "" && kubernetes != "" {
		versions["kube-proxy"] = kubernetes
	}
	return versions
}

func hasContainer(set *appsv1.DaemonSet, name string) bool {
	return slices.ContainsFunc(set.Spec.Template.Spec.Containers,
		func(c corev1.Container) bool { return c.Name == name })
}

// Catalogue returns the catalogue for the installed versions.
func (f *Fleet) Catalogue() *Catalogue { return f.catalogue }

// Versions returns the versions of the components that were found.
func (f *Fleet) Versions() map[string]string { return f.versions }

// Nodes returns the nodes' names, in the order of the snapshot.
func (f *Fleet) Nodes() []string {
	names := make([]string, len(f.nodes))
	for i, node := range f.nodes {
		names[i] = node.Name
	}
	return names
}

// Kernel returns the kernel version of a node.
func (f *Fleet) Kernel(node string) string {
	return f.nodes[f.index[node]].Status.NodeInfo.KernelVersion
}

// Strays returns the keys that no component knows: typos, mostly.
func (f *Fleet) Strays() []Stray { return f.strays }

// After returns the fleet after an edit: the objects are merged into the existing ones.
func (f *Fleet) After(objects []unstructured.Unstructured) *Fleet {
	return Read(f.snapshot, append(slices.Clone(f.overlay), objects...))
}

// InForce is the value that is in effect on a node.
type InForce struct {
	Knob  string `json:"knob"`
	Node  string `json:"node,omitempty"`
	Value string `json:"value"`
	// By is where the value comes from; nil if it is the default.
	By *Set `json:"by,omitempty"`
	// Hidden are the other values set for the node, which By overrides; the strongest first.
	Hidden []*Set `json:"hidden,omitempty"`
}

// Value returns the value in effect on a node, and the values that it overrides. For an unknown node, only what applies
// to all nodes counts.
func (f *Fleet) Value(k *Knob, node string) InForce {
	n, ok := f.index[node]
	if !ok {
		n = -1
	}
	in := InForce{Knob: k.ID(), Node: node}
	f.each(k, n, func(s *Set) bool {
		if in.By == nil {
			in.By = s
		} else {
			in.Hidden = append(in.Hidden, s)
		}
		return true
	})
	in.Value = valueOf(k, in.By)
	return in
}

// valueOf returns the value that a component uses, given what is configured.
func valueOf(k *Knob, s *Set) string {
	switch {
	case s == nil:
		return k.Default
	case s.Unknown:
		return "unknown"
	case s.Invalid != "" && k.felix != nil:
		return k.Default // or Felix exits, if the parameter is fatal
	}
	return s.Value
}

// winner returns the value in effect on a node; nil for the default.
func (f *Fleet) winner(k *Knob, n int) *Set {
	var won *Set
	f.each(k, n, func(s *Set) bool { won = s; return false })
	return won
}

// each visits the values set for a node, the strongest first, until visit returns false.
func (f *Fleet) each(k *Knob, n int, visit func(*Set) bool) {
	for i, l := range slices.Backward(f.levels[k]) {
		if n >= 0 && l.node != nil && l.node[n] != nil && !visit(l.node[n]) {
			return
		}
		if n >= 0 && len(l.config) > 0 {
			for _, at := range slices.Backward(f.matched[k.Places[i].Kind][n]) {
				if s := l.config[at]; s != nil && !visit(s) {
					return
				}
			}
		}
		for j, s := range l.all {
			if owner := l.owners[j]; owner >= 0 && n >= 0 && f.agents[owner].picks != nil && !f.agents[owner].picks[n] {
				continue
			}
			if !visit(s) {
				return
			}
		}
	}
}

// Beaten returns the value that would override an edit on a node; nil if the edit would take effect there.
func (f *Fleet) Beaten(k *Knob, node string, w Write) *Set {
	rank := slices.IndexFunc(k.Places, func(p Place) bool { return p.Name == w.Place.Name })
	n, ok := f.index[node]
	if !ok {
		n = -1
	}
	if s := f.winner(k, n); s != nil && s.rank > rank {
		return s
	}
	return nil
}

// Write makes an edit as Knob.Write does, in the namespaces and with the API version in which the objects were found in
// this cluster.
func (f *Fleet) Write(k *Knob, aim Aim, value string) (Write, error) {
	if aim.CalicoAPI = cmp.Or(aim.CalicoAPI, f.apis["FelixConfiguration"]); aim.CalicoAPI == "" {
		aim.CalicoAPI = f.snapshot.CalicoAPI()
	}
	w, err := k.Write(aim, value)
	if space := f.spaces[w.Ref.Kind+"/"+w.Ref.Name]; err == nil && space != "" {
		w.Ref.Namespace = space
	}
	return w, err
}

// level returns the level of a knob's place, and creates it if it is missing.
func (f *Fleet) level(k *Knob, rank int) *level {
	levels := f.levels[k]
	if levels == nil {
		levels = make([]level, len(k.Places))
		f.levels[k] = levels
	}
	return &levels[rank]
}

func (f *Fleet) put(k *Knob, rank int, ref step.Ref, value string) *Set {
	s := &Set{Knob: k, Place: &k.Places[rank], Ref: ref, Value: value, rank: rank, on: -1}
	if value == "" {
		return s
	}
	if err := k.Check(value); err != nil {
		s.Invalid = err.Error()
	} else if _, err := strconv.ParseFloat(value, 64); err == nil && k.felix != nil && k.Type == Duration &&
		ref.Kind == "FelixConfiguration" {
		s.Invalid = "it must be a duration such as 1m30s"
	}
	return s
}

// putOn records a value for one node.
func (f *Fleet) putOn(n int, k *Knob, rank int, ref step.Ref, value string) {
	l := f.level(k, rank)
	if l.node == nil {
		l.node = make([]*Set, len(f.nodes))
	}
	l.node[n] = f.put(k, rank, ref, value)
	l.node[n].on = n
}

// stray records a key that is not a setting.
func (f *Fleet) stray(ref step.Ref, component, name string) {
	f.strays = append(f.strays,
		Stray{ref, name, f.catalogue.Near(component + "/" + strings.TrimPrefix(name, "FELIX_"))})
}
