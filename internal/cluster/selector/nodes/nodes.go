// Package nodes evaluates how Kubernetes' own objects select nodes (nodeSelector, node affinity and label selectors),
// and how nodes repel pods (taints).
package nodes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/klog/v2"
)

// Selector selects nodes in one of Kubernetes' own forms. It knows the position of each key in its object.
type Selector struct {
	base  []requirement
	terms []term // at least one must match
	oneOf bool
}

// OfPod combines a pod's nodeSelector and required node affinity. The JSON pointer (RFC 6901) is that of the pod's
// spec.
func OfPod(spec *corev1.PodSpec, pointer string) *Selector {
	n := OfMap(spec.NodeSelector, pointer+"/nodeSelector")
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		required := OfAffinity(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			pointer+"/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution")
		n.terms, n.oneOf = required.terms, true
	}
	return n
}

// OfMap selects nodes that have all labels of a map.
func OfMap(set map[string]string, pointer string) *Selector {
	return &Selector{base: exactly(set, pointer)}
}

// OfLabels selects nodes by a label selector.
func OfLabels(s metav1.LabelSelector, pointer string) *Selector {
	return &Selector{base: ofLabels(s, pointer)}
}

// AnyOf selects nodes that match at least one of several label selectors; an empty list selects every node.
func AnyOf(list []metav1.LabelSelector, pointer string) *Selector {
	n := &Selector{oneOf: len(list) > 0}
	for i, s := range list {
		n.terms = append(n.terms, term{requirements: ofLabels(s, fmt.Sprintf("%s/%d", pointer, i)), all: true})
	}
	return n
}

// OfAffinity selects nodes by a required node affinity.
func OfAffinity(s *corev1.NodeSelector, pointer string) *Selector {
	return &Selector{oneOf: true, terms: ofTerms(s, pointer)}
}

// Untolerated returns the first taint that repels new pods with these tolerations from a node; nil if there is none.
func Untolerated(node *corev1.Node, tolerations []corev1.Toleration) *corev1.Taint {
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		tolerated := func(one corev1.Toleration) bool { return one.ToleratesTaint(klog.Logger{}, t, false) }
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !slices.ContainsFunc(tolerations, tolerated) {
			return t
		}
	}
	return nil
}

// Operation is one operation of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// pointer escapes a key for a JSON pointer.
func pointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

// requirement is one condition on a label, with the JSON pointer of its key. If it is exact, it is an entry of a map,
// and the pointer is that of the map.
type requirement struct {
	key      string
	operator selection.Operator
	values   []string
	at       string
	exact    bool
}

// term is a list of requirements that must all hold; names restricts it to some nodes by name. A term without
// requirements and names selects no node, unless all is set.
type term struct {
	requirements []requirement
	names        []requirement
	all          bool
}

func (n *Selector) each(visit func(requirement)) {
	for _, r := range n.base {
		visit(r)
	}
	for _, t := range n.terms {
		for _, r := range t.requirements {
			visit(r)
		}
	}
}

// Keys returns the keys of the labels that the selector uses, sorted.
func (n *Selector) Keys() []string {
	var keys []string
	n.each(func(r requirement) { keys = append(keys, r.key) })
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Picks reports whether the selector selects a node. Keys in rename are replaced first.
func (n *Selector) Picks(rename map[string]string, node *corev1.Node) bool {
	if !holds(n.base, rename, node.Labels) {
		return false
	}
	return !n.oneOf || slices.ContainsFunc(n.terms, func(t term) bool {
		return (t.all || len(t.requirements)+len(t.names) > 0) && holds(t.requirements, rename, node.Labels) &&
			holds(t.names, nil, labels.Set{"metadata.name": node.Name})
	})
}

func holds(all []requirement, rename, set map[string]string) bool {
	for _, r := range all {
		key := cmp.Or(rename[r.key], r.key)
		value, ok := set[key]
		matched := false
		switch r.operator {
		case selection.Equals:
			matched = ok && value == r.values[0]
		case selection.Exists:
			matched = ok
		case selection.DoesNotExist:
			matched = !ok
		default:
			parsed, err := labels.NewRequirement(key, r.operator, r.values)
			matched = err == nil && parsed.Matches(labels.Set(set))
		}
		if !matched {
			return false
		}
	}
	return true
}

// Patch returns the operations that replace keys in the object that contains the selector.
func (n *Selector) Patch(rename map[string]string) []Operation {
	var operations []Operation
	n.each(func(r requirement) {
		to, ok := rename[r.key]
		switch {
		case !ok:
		case r.exact:
			operations = append(operations, Operation{"remove", r.at + "/" + pointer(r.key), nil},
				Operation{"add", r.at + "/" + pointer(to), r.values[0]})
		default:
			operations = append(operations, Operation{"replace", r.at + "/key", to})
		}
	})
	return operations
}

func (n *Selector) String() string {
	var parts []string
	n.each(func(r requirement) {
		switch r.operator {
		case selection.Equals:
			parts = append(parts, r.key+"="+r.values[0])
		case selection.Exists:
			parts = append(parts, r.key)
		case selection.DoesNotExist:
			parts = append(parts, "!"+r.key)
		default:
			parts = append(parts, fmt.Sprintf("%s %s (%s)", r.key, r.operator, strings.Join(r.values, ",")))
		}
	})
	return strings.Join(parts, ", ")
}

// exactly converts a map of labels that must all be present.
func exactly(set map[string]string, at string) []requirement {
	var all []requirement
	for _, key := range slices.Sorted(maps.Keys(set)) {
		all = append(all, requirement{key, selection.Equals, []string{set[key]}, at, true})
	}
	return all
}

// Operators as spelled in node affinity and in label selectors.
func operatorOf(text string) selection.Operator {
	return map[string]selection.Operator{"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists,
		"DoesNotExist": selection.DoesNotExist, "Gt": selection.GreaterThan, "Lt": selection.LessThan}[text]
}

// ofSelector converts a Kubernetes label selector.
func ofLabels(s metav1.LabelSelector, at string) []requirement {
	all := exactly(s.MatchLabels, at+"/matchLabels")
	for i, e := range s.MatchExpressions {
		all = append(all, requirement{e.Key, operatorOf(string(e.Operator)), e.Values,
			fmt.Sprintf("%s/matchExpressions/%d", at, i), false})
	}
	return all
}

// ofTerms converts the terms of a required node affinity.
func ofTerms(s *corev1.NodeSelector, at string) []term {
	var terms []term
	for i, t := range s.NodeSelectorTerms {
		var one term
		for j, e := range t.MatchExpressions {
			one.requirements = append(one.requirements, requirement{e.Key, operatorOf(string(e.Operator)), e.Values,
				fmt.Sprintf("%s/nodeSelectorTerms/%d/matchExpressions/%d", at, i, j), false})
		}
		for _, e := range t.MatchFields {
			one.names = append(one.names, requirement{e.Key, operatorOf(string(e.Operator)), e.Values, "", false})
		}
		terms = append(terms, one)
	}
	return terms
}
