package flagset

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	sigsjson "sigs.k8s.io/json"
)

// prepareCIDR prepares a cidr, [address, prefix] or [address, [prefix, ...]]: whether the address, or a prefix, is
// within one of the prefixes. IPv4 in IPv6 counts as IPv4. An invalid address or prefix yields null.
func prepareCIDR(c *compiler, args any) node {
	list, ok := args.([]any)
	if ok && len(list) == 2 {
		if prefixes, ok := parsePrefixes(list[1]); ok {
			return &eager{"cidr", c.compile(list[0]), func(_ *scope, subject any) (any, error) {
				return within(subject, prefixes), nil
			}}
		}
	}
	return &eager{"cidr", c.compile(args), func(_ *scope, args any) (any, error) {
		list, _ := args.([]any)
		if len(list) != 2 {
			return nil, nil
		}
		prefixes, ok := parsePrefixes(list[1])
		if !ok {
			return nil, nil
		}
		return within(list[0], prefixes), nil
	}}
}

// within returns true or false, or nil if the subject is neither an address nor a prefix.
func within(subject any, prefixes []netip.Prefix) any {
	inside, ok := parsePrefix(subject)
	if !ok {
		return nil
	}
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool {
		return p.Bits() <= inside.Bits() && p.Contains(inside.Addr())
	})
}

// parsePrefix parses a prefix, or an address as a prefix of full length.
func parsePrefix(v any) (netip.Prefix, bool) {
	t, _ := v.(string)
	if a, err := netip.ParseAddr(t); err == nil {
		a = a.Unmap()
		return netip.PrefixFrom(a, a.BitLen()), a.Zone() == ""
	}
	p, err := netip.ParsePrefix(t)
	if err != nil {
		return p, false
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, false
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), true
}

func parsePrefixes(v any) ([]netip.Prefix, bool) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	prefixes := make([]netip.Prefix, len(list))
	for i, element := range list {
		if prefixes[i], ok = parsePrefix(element); !ok {
			return nil, false
		}
	}
	return prefixes, true
}

// nodeLabels is the key of the labels that node_selector uses by default.
const nodeLabels = "labels"

// prepareNodeSelector prepares a node_selector: a selector, or [selector] or [selector, labels]. The selector is a
// Kubernetes label selector as text ("zone in (a, b), !spot") or as an object with matchLabels and
// matchExpressions, or a node selector: an object with nodeSelectorTerms, as in a pod's node affinity. It
// must be a constant; it is not evaluated. The labels are an object of strings, by default the context's "labels";
// if they are anything else, the result is null.
func prepareNodeSelector(c *compiler, args any) node {
	list, ok := args.([]any)
	if !ok {
		list = []any{args}
	}
	if len(list) != 1 && len(list) != 2 {
		return failing{fmt.Errorf("node_selector: %w", errors.New("expected a selector, or a selector and labels"))}
	}
	matches, err := parseNodeSelector(list[0])
	if err != nil {
		return failing{fmt.Errorf("node_selector: %w", err)}
	}
	subject := node(newVariable(nodeLabels, nil))
	if len(list) == 2 {
		subject = c.compile(list[1])
	}
	return &eager{"node_selector", subject, func(_ *scope, value any) (any, error) {
		set, ok := labelSet(value)
		if !ok {
			return nil, nil
		}
		return slices.ContainsFunc(matches, func(m labels.Selector) bool { return m.Matches(set) }), nil
	}}
}

// labelSet implements labels.Labels without copying the labels.
type labelSetOf map[string]any

func labelSet(value any) (labels.Labels, bool) {
	object, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	for _, v := range object {
		if _, ok := v.(string); !ok {
			return nil, false
		}
	}
	return labelSetOf(object), true
}

func (l labelSetOf) Has(name string) bool { _, ok := l[name]; return ok }

func (l labelSetOf) Get(name string) string { value, _ := l[name].(string); return value }

func (l labelSetOf) Lookup(name string) (string, bool) {
	value, ok := l[name].(string)
	return value, ok
}

// parseNodeSelector returns selectors; at least one of them must match.
func parseNodeSelector(v any) ([]labels.Selector, error) {
	switch v := v.(type) {
	case string:
		s, err := labels.Parse(v)
		return []labels.Selector{s}, err
	case map[string]any:
		if _, ok := v["nodeSelectorTerms"]; ok {
			var wanted corev1.NodeSelector
			if err := strictly(v, &wanted); err != nil {
				return nil, err
			}
			return nodeSelectorTerms(wanted.NodeSelectorTerms)
		}
		var wanted metav1.LabelSelector
		if err := strictly(v, &wanted); err != nil {
			return nil, err
		}
		s, err := metav1.LabelSelectorAsSelector(&wanted)
		return []labels.Selector{s}, err
	}
	return nil, errors.New("the selector must be text or an object")
}

// strictly converts an object into a Kubernetes type; unknown fields are errors.
func strictly(v map[string]any, into any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	strict, err := sigsjson.UnmarshalStrict(raw, into)
	return errors.Join(append(strict, err)...)
}

// nodeOperators are the operators of a node selector requirement.
var nodeOperators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn: selection.In, corev1.NodeSelectorOpNotIn: selection.NotIn,
	corev1.NodeSelectorOpExists: selection.Exists, corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt: selection.GreaterThan, corev1.NodeSelectorOpLt: selection.LessThan,
}

// nodeSelectorTerms parses terms; at least one must match. An empty term matches nothing, as in Kubernetes.
func nodeSelectorTerms(terms []corev1.NodeSelectorTerm) ([]labels.Selector, error) {
	var found []labels.Selector
	for _, term := range terms {
		if len(term.MatchFields) > 0 {
			return nil, errors.New("matchFields is not supported: select by the label kubernetes.io/hostname")
		}
		all := labels.NewSelector()
		for i, expression := range term.MatchExpressions {
			operator, ok := nodeOperators[expression.Operator]
			if !ok {
				return nil, fmt.Errorf("there is no operator %q", expression.Operator)
			}
			requirement, err := labels.NewRequirement(expression.Key, operator, expression.Values,
				field.WithPath(field.NewPath("matchExpressions").Index(i)))
			if err != nil {
				return nil, err
			}
			all = all.Add(*requirement)
		}
		if len(term.MatchExpressions) > 0 {
			found = append(found, all)
		}
	}
	return found, nil
}
