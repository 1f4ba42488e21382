package rehearsal

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// NetworkLabel is, in addition to MarkLabel, on objects of the network: they are removed when no pod of the copy is
	// left.
	NetworkLabel = "rehearsal.theseus.dev/network"
	// changedPrefix begins the value of MarkLabel on an object that a rehearsal only changed.
	changedPrefix = "changed-"
)

// Network is what the scratch cluster's network gets.
type Network struct {
	// Said is what becomes of the objects that configure the original's network.
	Said []cni.CopiedObject `json:"objects,omitempty"`
	// Installs are the objects of a manifest that is installed, in the order in which they are made: Settings are made
	// before its workloads.
	Installs []*unstructured.Unstructured `json:"-"`
	// Settings are made, or replace spec or data of an object that is there; Restart are workloads that read them only
	// when they start.
	Settings []*unstructured.Unstructured `json:"-"`
	Restart  []step.Ref                   `json:"-"`
	// Links says that the MTU of the scratch cluster's links decides what its network can have.
	Links bool `json:"-"`

	copier cni.Copier
	plays  map[string]string
}

// networkSettings decides on the settings of the copy's network.
func (m *maker) networkSettings(theirs []*cni.Installation) error {
	if len(m.networks) != 1 || len(theirs) != 1 {
		return nil
	}
	n := &m.Network
	n.plays = m.classOf
	driver, _ := drivers.All().Get(m.networks[0].CNI)
	n.copier, _ = driver.(cni.Copier)
	m.install()
	ours, there := m.networks[0], theirs[0]
	if ours.Version != there.Version {
		m.Lacks = append(m.Lacks, Lack{ours.Versioned(), fmt.Sprintf("the scratch cluster has %s: what differs "+
			"between the versions is not rehearsed", there.Versioned())})
	}
	if mode, other := proxyMode(m.original), proxyMode(m.scratch); mode != other {
		m.Lacks = append(m.Lacks, Lack{"kube-proxy's mode " + mode, fmt.Sprintf("the scratch cluster keeps its mode "+
			"%s, so behaviour that depends on the mode is not rehearsed", other)})
	}
	if n.copier == nil {
		m.Lacks = append(m.Lacks, Lack{"settings of " + ours.Title(), "Theseus does not copy settings of this " +
			"network; the scratch cluster's stay as they are"})
		return nil
	}
	n.Links = slices.ContainsFunc(n.copier.Settings(m.original, m.original, nil), func(s cni.Setting) bool {
		return s.Links && s.Original != "" && s.Original != "0"
	})
	proxied := ""
	if proxy, err := (&check.Pass{Snapshot: m.scratch}).KubeProxy(); err == nil {
		proxied, _, _ = strings.Cut(proxy.ClusterCIDR, ",")
	}
	copied, err := n.copier.Copy(&cni.Copying{Original: m.original, Scratch: m.scratch, Ours: ours, Theirs: there,
		Manifest: m.options.Manifest, Plays: m.classOf, Proxied: proxied})
	if err != nil {
		return err
	}
	for _, lack := range copied.Lacks {
		m.Lacks = append(m.Lacks, Lack(lack))
	}
	n.Said, n.Restart = copied.Said, copied.Restart
	for _, object := range copied.Objects {
		if in := slices.IndexFunc(n.Installs, func(o *unstructured.Unstructured) bool {
			return step.RefOf(o) == step.RefOf(object)
		}); in >= 0 {
			for _, field := range []string{"data", "spec"} {
				if value, has := object.Object[field]; has {
					n.Installs[in].Object[field] = value
				}
			}
			continue
		}
		n.Settings = append(n.Settings, m.ofNetwork(object))
	}
	return nil
}

// ofNetwork marks an object of the network.
func (m *maker) ofNetwork(object *unstructured.Unstructured) *unstructured.Unstructured {
	object = object.DeepCopy()
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[MarkLabel], labels[NetworkLabel] = m.Of, "true"
	object.SetLabels(labels)
	return object
}

// install takes the objects of the manifest over, in the order in which they can be made.
func (m *maker) install() {
	all := slices.Clone(m.options.Manifest)
	cni.SortForApply(all)
	slices.SortStableFunc(all, func(a, b unstructured.Unstructured) int {
		last := func(o unstructured.Unstructured) int {
			switch o.GetKind() {
			case "Namespace":
				return 0
			case "CustomResourceDefinition":
				return 1
			}
			if Runs(&o) {
				return 3
			}
			return 2
		}
		return last(a) - last(b)
	})
	for i := range all {
		m.Network.Installs = append(m.Network.Installs, m.ofNetwork(&all[i]))
	}
}

// Runs reports whether an object runs pods.
func Runs(object *unstructured.Unstructured) bool {
	return slices.Contains([]string{"DaemonSet", "Deployment", "StatefulSet", "ReplicaSet", "Job", "Pod"},
		object.GetKind())
}

// waitsForNetwork reports whether a node is not ready because it has no network yet.
func waitsForNetwork(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		text := strings.ToLower(c.Message)
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse &&
			(strings.Contains(text, "cni") || strings.Contains(text, "network"))
	})
}

// Fits refuses a manifest that does not install the original's network. installs are the networks that it installs.
func Fits(ours, installs []*cni.Installation) error {
	const hint = "give the manifest that installed the original's network, in its version"
	switch {
	case oneNetwork(ours) != nil:
		return oneNetwork(ours)
	case len(installs) == 0:
		return refuse(hint+"; with an operator, install the network on the scratch cluster yourself, and leave out "+
			"--network-manifest", "--network-manifest installs no network that Theseus knows")
	case len(installs) > 1 || installs[0].CNI != ours[0].CNI || installs[0].Version != ours[0].Version:
		var names []string
		for _, one := range installs {
			names = append(names, one.Versioned())
		}
		return refuse(hint, "--network-manifest installs %s, and the original has %s", strings.Join(names, " and "),
			ours[0].Versioned())
	}
	return nil
}

// Bare refuses a scratch cluster that is the original, or that has a network already.
func Bare(original, scratch *cluster.Snapshot, ours, theirs []*cni.Installation) error {
	if err := another(original, scratch); err != nil {
		return err
	}
	if err := oneNetwork(ours); err != nil {
		return err
	}
	if len(theirs) == 0 {
		return nil
	}
	var names []string
	for _, one := range theirs {
		names = append(names, one.Versioned())
	}
	hint := "leave out --network-manifest: its network then gets the original's settings; or remove its network first"
	if names[0] != ours[0].Versioned() || len(names) > 1 {
		hint = "remove its network first, with what it left on the nodes; or name a cluster without a network"
	}
	return refuse(hint, "the scratch cluster has a network already, %s: --network-manifest is for a cluster without "+
		"one", strings.Join(names, " and "))
}

// was is what a rehearsal replaced in an object; it is the value of BeforeAnnotation.
type was struct {
	Field string     `json:"field"`
	Value any        `json:"value"`
	Again []step.Ref `json:"restart,omitempty"`
}

// Change is a live object with the spec, or the data, of another one, and with what it had. restart are workloads that
// have to be restarted when it is taken back. It is nil if there is nothing to change.
func Change(live, wanted *unstructured.Unstructured, restart []step.Ref) (*unstructured.Unstructured, error) {
	field := "spec"
	if _, has := wanted.Object["data"]; has {
		field = "data"
	} else {
		restart = nil // agents watch their own kinds
	}
	if cni.FieldText(live.Object[field]) == cni.FieldText(wanted.Object[field]) {
		return nil, nil
	}
	changed := live.DeepCopy()
	if !Changed(live) {
		text, err := json.Marshal(was{field, live.Object[field], restart})
		if err != nil {
			return nil, err
		}
		annotations := changed.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[BeforeAnnotation] = string(text)
		changed.SetAnnotations(annotations)
		labels := changed.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[MarkLabel] = changedPrefix + wanted.GetLabels()[MarkLabel]
		changed.SetLabels(labels)
	}
	changed.Object[field] = wanted.DeepCopy().Object[field]
	return changed, nil
}

// Changed reports whether a rehearsal changed an object that was there before, by its managedFields.
func Changed(live *unstructured.Unstructured) bool {
	return strings.HasPrefix(live.GetLabels()[MarkLabel], changedPrefix) &&
		live.GetAnnotations()[BeforeAnnotation] != "" && wrote(live, "annotations", BeforeAnnotation)
}

// TakenBack is a live object with what it had before a rehearsal changed it, and the workloads that have to be
// restarted. It is nil for an object that no rehearsal has changed.
func TakenBack(live *unstructured.Unstructured) (*unstructured.Unstructured, []step.Ref, error) {
	if !Changed(live) {
		return nil, nil, nil
	}
	var before was
	if err := json.Unmarshal([]byte(live.GetAnnotations()[BeforeAnnotation]), &before); err != nil ||
		before.Field != "spec" && before.Field != "data" {
		return nil, nil, fmt.Errorf("the annotation %s cannot be read", BeforeAnnotation)
	}
	back := live.DeepCopy()
	if back.Object[before.Field] = before.Value; before.Value == nil {
		delete(back.Object, before.Field)
	}
	annotations, labels := back.GetAnnotations(), back.GetLabels()
	delete(annotations, BeforeAnnotation)
	delete(labels, MarkLabel)
	back.SetAnnotations(annotations)
	back.SetLabels(labels)
	return back, before.Again, nil
}

// configured compares the settings of the two networks, by area.
func (c *Copy) configured(original, copy Side) (all []Coverage) {
	if c.Network.copier == nil {
		return nil
	}
	areas := map[string]*Coverage{}
	var order []string
	for _, s := range c.Network.copier.Settings(original.Snapshot, copy.Snapshot, c.Network.plays) {
		name := s.Area
		if name != cni.AreaRanges {
			name = settingsArea + ": " + name
		}
		if areas[name] == nil {
			areas[name] = &Coverage{Area: name}
			order = append(order, name)
		}
		areas[name].add(s.Original == s.Copy, fmt.Sprintf("%s: %s in the original, %s in the copy", s.Name,
			orNone(s.Original), orNone(s.Copy)))
	}
	for _, name := range order {
		all = append(all, *areas[name])
	}
	return all
}

// settingsArea is the area of settings, and begins the names of those of the network's own settings.
const settingsArea = "settings"

// IsSettings reports whether an area has settings that a copy should have alike.
func (c Coverage) IsSettings() bool {
	return c.Area == settingsArea || strings.HasPrefix(c.Area, settingsArea+": ")
}

// NewLacks are what a copy cannot have that another one, made before, did not say.
func (c *Copy) NewLacks(before *Copy) []Lack {
	said := map[Lack]bool{}
	for _, lack := range before.Lacks {
		said[lack] = true
	}
	return slices.DeleteFunc(slices.Clone(c.Lacks), func(l Lack) bool { return said[l] })
}

// All are the objects of the network.
func (n *Network) All() []*unstructured.Unstructured { return slices.Concat(n.Installs, n.Settings) }

// sumOf counts objects by kind, for people.
func sumOf(all []*unstructured.Unstructured) string {
	kinds := map[string]int{}
	for _, object := range all {
		kinds[object.GetKind()]++
	}
	var counts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		counts = append(counts, fmt.Sprintf("%s %d", kind, kinds[kind]))
	}
	return fmt.Sprintf("%s: %s", cluster.Count(len(all), "object"), strings.Join(counts, ", "))
}

// Text says what the scratch cluster's network gets, in a line; empty if it gets nothing.
func (n *Network) Text() string {
	switch {
	case len(n.Installs) > 0:
		return "installing the original's network: " + sumOf(n.All())
	case len(n.Settings) > 0:
		return "giving the network the original's settings: " + sumOf(n.Settings)
	}
	return ""
}
