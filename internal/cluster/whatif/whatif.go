// Package whatif says what a change does to the nodes' labels, taints and annotations, before it is made: an
// upgrade of Kubernetes (what is known of it is data with sources, in facts.go), labels that are taken away or
// given, nodes that are replaced by new ones. The result is the snapshot as it would be.
package whatif

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
)

// Result is a cluster as it would be.
type Result struct {
	Before, After *cluster.Snapshot
	// Effects are what changes, in the order in which it happens.
	Effects []Effect
	// Distribution is what made the cluster; Assumed is true when nothing told and kubeadm was taken.
	Distribution string
	Assumed      bool
	// Beyond says that the upgrade goes further than what is known here; empty when it does not.
	Beyond string
}

// What an effect is about.
const (
	Label      = "label"
	Taint      = "taint"
	Annotation = "annotation"
)

// Effect is one change, on the nodes that it befalls.
type Effect struct {
	What string // Label, Taint or Annotation
	Key  string
	// Removed is true when it goes; else it comes, with Value (a taint's is its effect).
	Removed bool
	Value   string
	Nodes   []string
	Why     string
	// Source is where that is known from; empty for what the user said.
	Source string
}

// replaced is why a node that comes back new lacks something.
const replaced = "the node is replaced, and the new one does not get it"

// Asked reports whether a change has any what-if in it.
func Asked(change v1alpha1.ChangeSpec) bool {
	return change.KubernetesTo != "" || len(change.RemoveLabels)+len(change.AddLabels)+len(change.ClusterIDs) > 0 ||
		change.LabelNodes != "" || change.ReplaceNodes != ""
}

// Validate finds what is wrong with the what-ifs of a change, whatever the cluster.
func Validate(change v1alpha1.ChangeSpec) error {
	if change.KubernetesTo != "" {
		if _, err := version.ParseGeneric(change.KubernetesTo); err != nil {
			return fmt.Errorf("%q is not a version of Kubernetes, such as v1.24.0", change.KubernetesTo)
		}
	}
	for _, key := range append(slices.Clone(change.RemoveLabels), slices.Sorted(maps.Keys(change.AddLabels))...) {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return fmt.Errorf("%q is not a key of a label: %s", key, problems[0])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(change.AddLabels)) {
		if problems := validation.IsValidLabelValue(change.AddLabels[key]); len(problems) > 0 {
			return fmt.Errorf("%q is not a value of a label: %s", change.AddLabels[key], problems[0])
		}
	}
	for _, text := range []string{change.ReplaceNodes, change.LabelNodes} {
		if _, err := labels.Parse(text); err != nil {
			return fmt.Errorf("%q is not a label selector: %w", text, err)
		}
	}
	if change.LabelNodes != "" && len(change.RemoveLabels)+len(change.AddLabels) == 0 {
		return fmt.Errorf("--label-nodes %s is given without --add-label or --remove-label", change.LabelNodes)
	}
	return nil
}

// Apply makes the cluster as it would be. It is nil when nothing is asked, and an error when Validate has
// one, when the version is older than the cluster's, when a selector of nodes picks none, and when a label to take away
// is on none.
func Apply(s *cluster.Snapshot, change v1alpha1.ChangeSpec) (*Result, error) {
	if !Asked(change) {
		return nil, nil
	}
	if err := Validate(change); err != nil {
		return nil, err
	}
	after := *s
	after.Nodes = slices.Clone(s.Nodes)
	r := &Result{Before: s, After: &after, Distribution: Distribution(s)}
	if r.Distribution == "" {
		r.Distribution, r.Assumed = Kubeadm, true
	}
	if err := r.upgrade(change.KubernetesTo); err != nil {
		return nil, err
	}
	if err := r.replace(change.ReplaceNodes); err != nil {
		return nil, err
	}
	if err := r.relabel(change); err != nil {
		return nil, err
	}
	if err := r.reflect(change.ClusterIDs); err != nil {
		return nil, err
	}
	r.mirror()
	return r, nil
}

// mirror lets Calico's own Nodes follow, where there are any: Calico copies the labels of Kubernetes' ones.
func (r *Result) mirror() {
	for i := range r.Before.Other {
		object := &r.Before.Other[i]
		if object.GetKind() != "Node" || !strings.HasPrefix(object.GetAPIVersion(), "projectcalico.org/") {
			continue
		}
		if len(r.After.Other) > 0 && &r.After.Other[0] == &r.Before.Other[0] {
			r.After.Other = slices.Clone(r.Before.Other)
		}
		follower := object.DeepCopy()
		own := maps.Clone(follower.GetLabels())
		if own == nil {
			own = map[string]string{}
		}
		for _, e := range r.Effects {
			switch {
			case e.What != Label || !slices.Contains(e.Nodes, follower.GetName()):
			case e.Removed:
				delete(own, e.Key)
			default:
				own[e.Key] = e.Value
			}
		}
		follower.SetLabels(own)
		r.After.Other[i] = *follower
	}
}

func (r *Result) upgrade(to string) error {
	if to == "" {
		return nil
	}
	target := version.MustParseGeneric(to) // Validate has parsed it
	now := Version(r.Before)
	if now != nil && target.LessThan(now) {
		return fmt.Errorf("%s is not an upgrade: the cluster runs v%s", to, now)
	}
	r.After.Kubernetes = to
	if target.AtLeast(version.MajorMinor(1, newest+1)) {
		r.Beyond = fmt.Sprintf("Theseus does not know how Kubernetes after v1.%d changes labels and taints of nodes",
			newest)
	}
	for _, f := range facts() {
		crossed := target.AtLeast(version.MajorMinor(1, uint(f.minor))) &&
			(now == nil || !now.AtLeast(version.MajorMinor(1, uint(f.minor))))
		if !crossed || f.onlyNew || !slices.Contains(f.distributions, r.Distribution) {
			continue
		}
		if r.Assumed {
			f.why += " (the input does not show which tool made this cluster: kubeadm is assumed)"
		}
		r.happen(f)
	}
	return nil
}

// happen lets one fact become true.
func (r *Result) happen(f fact) {
	switch {
	case f.label.remove != "":
		r.removeLabel(f.label.remove, f.why, f.source, everyNode)
	case f.label.add != "":
		r.addLabel(f.label.add, "", f.why, f.source, func(n *corev1.Node) bool { return has(n.Labels, f.label.where) })
	case f.taint.remove != "":
		r.removeTaint(f.taint.remove, f.why, f.source, everyNode)
	case f.taint.add != "":
		r.addTaint(f.taint.add, f.why, f.source, func(n *corev1.Node) bool { return taintAt(n, f.taint.where) >= 0 })
	}
}

// reflect gives nodes the cluster ids that make them route reflectors of Calico's; an empty one is taken away.
func (r *Result) reflect(ids map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		if !slices.ContainsFunc(r.Before.Nodes, func(n corev1.Node) bool { return n.Name == name }) {
			return fmt.Errorf("there is no node %q to get a cluster id", name)
		}
		id := ids[name]
		r.each(Effect{What: Annotation, Key: clusterID, Value: id, Removed: id == "", Why: "asked for"},
			func(n *corev1.Node) bool {
				if n.Name != name || n.Annotations[clusterID] == id {
					return false
				}
				n.Annotations = maps.Clone(n.Annotations)
				if n.Annotations == nil {
					n.Annotations = map[string]string{}
				}
				if n.Annotations[clusterID] = id; id == "" {
					delete(n.Annotations, clusterID)
				}
				return true
			})
	}
	return nil
}

// clusterID is where Calico keeps a node's cluster id.
const clusterID = "projectcalico.org/RouteReflectorClusterID"

func (r *Result) relabel(change v1alpha1.ChangeSpec) error {
	if len(change.RemoveLabels)+len(change.AddLabels) == 0 {
		return nil
	}
	which, err := r.selecting(change.LabelNodes)
	if err != nil {
		return err
	}
	for _, key := range change.RemoveLabels {
		if len(r.Before.Nodes) > 0 && !slices.ContainsFunc(r.Before.Nodes,
			func(n corev1.Node) bool { return which(&n) && has(n.Labels, key) }) {
			return fmt.Errorf("none of the nodes has the label %q, so none can lose it", key)
		}
		r.removeLabel(key, "asked for", "", which)
	}
	for _, key := range slices.Sorted(maps.Keys(change.AddLabels)) {
		r.addLabel(key, change.AddLabels[key], "asked for", "", which)
	}
	return nil
}

// replace makes nodes new: labels that no component sets again are gone.
func (r *Result) replace(text string) error {
	if text == "" {
		return nil
	}
	which, err := r.selecting(text)
	if err != nil {
		return err
	}
	gone := map[string]map[string]bool{Label: {}, Taint: {}, Annotation: {}}
	for i := range r.After.Nodes {
		n := &r.After.Nodes[i]
		if !which(n) {
			continue
		}
		for key := range n.Labels {
			if !matches(kept, key) || r.noLongerGiven(key) {
				gone[Label][key] = true
			}
		}
		for _, t := range n.Spec.Taints {
			if !matches(keptTaints, t.Key) {
				gone[Taint][t.Key] = true
			}
		}
		for _, key := range lostAnnotations {
			if has(n.Annotations, key) {
				gone[Annotation][key] = true
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(gone[Label])) {
		r.removeLabel(key, replaced, "", which)
	}
	for _, key := range slices.Sorted(maps.Keys(gone[Taint])) {
		r.removeTaint(key, replaced, "", which)
	}
	for _, key := range slices.Sorted(maps.Keys(gone[Annotation])) {
		r.each(Effect{What: Annotation, Key: key, Removed: true, Why: replaced}, func(n *corev1.Node) bool {
			if !which(n) || !has(n.Annotations, key) {
				return false
			}
			n.Annotations = maps.Clone(n.Annotations)
			delete(n.Annotations, key)
			return true
		})
	}
	return nil
}

// noLongerGiven reports whether nodes that join at the version that the cluster will have do without a label.
func (r *Result) noLongerGiven(key string) bool {
	v := Version(r.After)
	return slices.ContainsFunc(facts(), func(f fact) bool {
		return f.label.remove == key && slices.Contains(f.distributions, r.Distribution) && v != nil &&
			v.AtLeast(version.MajorMinor(1, uint(f.minor)))
	})
}

// selecting is a test for the nodes that a label selector picks today; all of them when it is empty.
func (r *Result) selecting(text string) (func(*corev1.Node) bool, error) {
	if text == "" {
		return everyNode, nil
	}
	s, err := labels.Parse(text)
	if err != nil {
		return nil, err
	}
	picked := map[string]bool{}
	for i := range r.Before.Nodes {
		if n := &r.Before.Nodes[i]; s.Matches(labels.Set(n.Labels)) {
			picked[n.Name] = true
		}
	}
	if len(picked) == 0 {
		return nil, fmt.Errorf("%q selects none of the %d nodes", text, len(r.Before.Nodes))
	}
	return func(n *corev1.Node) bool { return picked[n.Name] }, nil
}

func (r *Result) removeLabel(key, why, source string, which func(*corev1.Node) bool) {
	r.each(Effect{What: Label, Key: key, Removed: true, Why: why, Source: source}, func(n *corev1.Node) bool {
		if !which(n) || !has(n.Labels, key) {
			return false
		}
		n.Labels = maps.Clone(n.Labels)
		delete(n.Labels, key)
		return true
	})
}

func (r *Result) addLabel(key, value, why, source string, which func(*corev1.Node) bool) {
	r.each(Effect{What: Label, Key: key, Value: value, Why: why, Source: source}, func(n *corev1.Node) bool {
		if old, ok := n.Labels[key]; !which(n) || ok && old == value {
			return false
		}
		n.Labels = maps.Clone(n.Labels)
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[key] = value
		return true
	})
}

func (r *Result) removeTaint(key, why, source string, which func(*corev1.Node) bool) {
	r.each(Effect{What: Taint, Key: key, Removed: true, Why: why, Source: source}, func(n *corev1.Node) bool {
		if !which(n) || taintAt(n, key) < 0 {
			return false
		}
		n.Spec.Taints = slices.DeleteFunc(slices.Clone(n.Spec.Taints),
			func(t corev1.Taint) bool { return t.Key == key })
		return true
	})
}

func (r *Result) addTaint(key, why, source string, which func(*corev1.Node) bool) {
	effect := Effect{What: Taint, Key: key, Value: string(corev1.TaintEffectNoSchedule), Why: why, Source: source}
	r.each(effect, func(n *corev1.Node) bool {
		if !which(n) || taintAt(n, key) >= 0 {
			return false
		}
		n.Spec.Taints = append(slices.Clone(n.Spec.Taints),
			corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
		return true
	})
}

// each changes nodes and keeps the effect, if there was one. Maps and lists of a node belong to the snapshot
// that it came from: change replaces them.
func (r *Result) each(effect Effect, change func(*corev1.Node) bool) {
	for i := range r.After.Nodes {
		if n := &r.After.Nodes[i]; change(n) {
			effect.Nodes = append(effect.Nodes, n.Name)
		}
	}
	if len(effect.Nodes) > 0 {
		r.Effects = append(r.Effects, effect)
	}
}

func everyNode(*corev1.Node) bool { return true }

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

func taintAt(n *corev1.Node, key string) int {
	return slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

func matches(patterns []string, key string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		return p == key || (strings.HasSuffix(p, "/") || strings.HasSuffix(p, ".")) && strings.HasPrefix(key, p)
	})
}
