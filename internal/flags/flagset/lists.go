package flagset

import (
	"errors"
	"maps"
	"strings"
)

// elements prepares the input of a list operator: a constant list in the rule, or the result of a rule; anything
// else is no input.
func (c *compiler) elements(rules []any) node {
	if len(rules) == 0 {
		return failing{errTooFew}
	}
	switch rule := rules[0].(type) {
	case []any:
		return literal{rule}
	case map[string]any:
		return c.compile(rule)
	}
	return literal{nil}
}

// inner is a rule that is evaluated for every element. As in the reference, a var that exists in the outer data is
// first replaced by its value; any other var is looked up in the element.
type inner struct {
	rule     any
	prepared node
	// object is true if the rule must be an object.
	object bool
}

func (c *compiler) inner(rules []any, object bool) *inner {
	if len(rules) < 2 {
		return &inner{prepared: failing{errTooFew}}
	}
	return &inner{rules[1], c.compile(rules[1]), object}
}

var errNoRule = errors.New("an operator is expected")

// within replaces vars in the rule by values of the data.
func (n *inner) within(s *scope) (*inner, error) {
	rule, changed, err := solve(s, n.rule)
	if err != nil || !changed {
		return n, err
	}
	c := compiler{left: s.run.left}
	solved := &inner{rule, c.compile(rule), n.object}
	s.run.left = c.left
	return solved, nil
}

func (n *inner) eval(s *scope, element any) (any, error) {
	if _, ok := n.rule.(map[string]any); n.object && !ok {
		return nil, errNoRule
	}
	return n.prepared.eval(s.inner(element))
}

// solve returns the rule with every var that exists in the data replaced by its value.
func solve(s *scope, rule any) (solved any, changed bool, err error) {
	if err := s.run.spend(1); err != nil {
		return nil, false, err
	}
	switch rule := rule.(type) {
	case []any:
		return solveList(s, rule)
	case map[string]any:
		return solveObject(s, rule)
	}
	return rule, false, nil
}

func solveList(s *scope, rule []any) (any, bool, error) {
	solved := make([]any, len(rule))
	changed := false
	for i, element := range rule {
		value, different, err := solve(s, element)
		if err != nil {
			return nil, false, err
		}
		solved[i] = value
		changed = changed || different
	}
	return solved, changed, nil
}

func solveObject(s *scope, rule map[string]any) (any, bool, error) {
	solved := make(map[string]any, len(rule))
	changed := false
	for key, args := range rule {
		if key == "var" {
			solved[key] = args
			value, err := outerVar(s, args)
			if err != nil {
				return nil, false, err
			}
			if value != nil {
				return value, true, nil
			}
			continue
		}
		value, different, err := solve(s, args)
		if err != nil {
			return nil, false, err
		}
		solved[key] = value
		changed = changed || different
	}
	return solved, changed, nil
}

// outerVar looks up a var in the data; a path that is empty or starts with a dot always refers to the element.
func outerVar(s *scope, args any) (any, error) {
	if path, ok := args.(string); ok && (path == "" || strings.HasPrefix(path, ".")) {
		return nil, nil
	}
	path, err := apply(s, args)
	if err != nil {
		return nil, err
	}
	return dynamicVar(s, path)
}

func mapping(c *compiler, rules []any) func(*scope) (any, error) {
	if len(rules) < 2 {
		return func(*scope) (any, error) { return []any{}, nil }
	}
	subject, each := c.elements(rules), c.inner(rules, false)
	return func(s *scope) (any, error) {
		list, err := subjectList(s, subject)
		if err != nil {
			return nil, err
		}
		result := make([]any, len(list))
		for i, element := range list {
			if result[i], err = each.eval(s, element); err != nil {
				return nil, err
			}
		}
		return result, nil
	}
}

// subjectList evaluates to a list; null becomes an empty list.
func subjectList(s *scope, subject node) ([]any, error) {
	value, err := subject.eval(s)
	if err != nil || value == nil {
		return nil, err
	}
	list, err := asList(value)
	if err != nil {
		return nil, err
	}
	return list, s.run.spend(len(list))
}

func filter(c *compiler, rules []any) func(*scope) (any, error) {
	if len(rules) < 2 {
		return func(*scope) (any, error) { return []any{}, nil }
	}
	subject, each := c.elements(rules), c.inner(rules, false)
	return func(s *scope) (any, error) {
		kept := []any{}
		list, err := subjectList(s, subject)
		if err != nil || list == nil {
			return kept, err
		}
		each, err := each.within(s)
		if err != nil {
			return nil, err
		}
		for _, element := range list {
			verdict, err := each.eval(s, element)
			if err != nil {
				return nil, err
			}
			if truthy(verdict) {
				kept = append(kept, element)
			}
		}
		return kept, nil
	}
}

func all(c *compiler, rules []any) func(*scope) (any, error) {
	return quantifier(c, rules, quantity{element: true})
}

func none(c *compiler, rules []any) func(*scope) (any, error) {
	return quantifier(c, rules, quantity{empty: true, stop: true, outer: true})
}

func some(c *compiler, rules []any) func(*scope) (any, error) {
	return quantifier(c, rules, quantity{stop: true, decided: true, outer: true, element: true})
}

// quantity holds the differences between all, none and some.
type quantity struct {
	empty   bool // the result for an empty list
	stop    bool // the result for one element that ends the evaluation
	decided bool // the result in that case; otherwise it is the opposite
	// The data whose values replace vars in the rule: the outer data, and the element itself.
	outer, element bool
}

func quantifier(c *compiler, rules []any, q quantity) func(*scope) (any, error) {
	subject, rule := c.elements(rules), c.inner(rules, true)
	return func(s *scope) (any, error) {
		value, err := subject.eval(s)
		if err != nil {
			return nil, err
		}
		if !truthy(value) {
			return q.empty, nil
		}
		list, err := asList(value)
		if err != nil {
			return nil, err
		}
		each := rule
		if q.outer {
			if each, err = rule.within(s); err != nil {
				return nil, err
			}
		}
		for _, element := range list {
			verdict, err := each.verdict(s, element, q.element)
			if err != nil {
				return nil, err
			}
			if verdict == q.stop {
				return q.decided, nil
			}
		}
		return !q.decided, nil
	}
}

func (n *inner) verdict(s *scope, element any, solved bool) (bool, error) {
	if err := s.run.spend(1); err != nil {
		return false, err
	}
	if solved {
		var err error
		if n, err = n.within(s.inner(element)); err != nil {
			return false, err
		}
	}
	value, err := n.eval(s, element)
	return truthy(value), err
}

var errReduce = errors.New("the initial value of reduce must be a boolean, a number or a string")

func reduce(c *compiler, rules []any) func(*scope) (any, error) {
	if len(rules) < 3 {
		return func(*scope) (any, error) { return 0.0, nil }
	}
	subject, each := c.elements(rules), c.inner(rules, true)
	var start node = literal{rules[2]}
	if _, ok := rules[2].(map[string]any); ok {
		start = c.compile(rules[2])
	}
	return func(s *scope) (any, error) {
		initial, err := start.eval(s)
		if err != nil {
			return nil, err
		}
		convert, kind := conversion(initial)
		if convert == nil {
			return nil, errReduce
		}
		result, err := convert(initial)
		if err != nil {
			return nil, err
		}
		value, err := subject.eval(s)
		if err != nil {
			return nil, err
		}
		if value == nil {
			return 0.0, nil
		}
		list, err := asList(value)
		if err != nil {
			return nil, err
		}
		for _, element := range list {
			if element == nil {
				continue
			}
			context := map[string]any{"current": element, "accumulator": result, "valueType": kind}
			next, err := each.eval(s, context)
			if err == nil {
				result, err = convert(next)
			}
			if err != nil {
				return nil, err
			}
		}
		return result, nil
	}
}

// conversion returns how reduce converts results to the type of its initial value; nil for other types.
func conversion(initial any) (convert func(any) (any, error), kind string) {
	switch initial.(type) {
	case bool:
		return func(v any) (any, error) { return truthy(v), nil }, "bool"
	case float64, int:
		return func(v any) (any, error) { return number(v) }, "number"
	case string:
		return func(v any) (any, error) { return text(v) }, "string"
	}
	return nil, ""
}

func in(s *scope, args any) (any, error) {
	list, err := asList(args)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errTooFew
	}
	if len(list) == 1 {
		return false, nil
	}
	switch where := list[1].(type) {
	case string:
		part, ok := list[0].(string)
		if !ok {
			return nil, errNoString
		}
		return strings.Contains(where, part), nil
	case []any:
		if err := s.run.spend(len(where)); err != nil {
			return nil, err
		}
		for _, element := range where {
			if found, err := isElement(list[0], element); found || err != nil {
				return found, err
			}
		}
	}
	return false, nil
}

// isElement compares a value with an element; an element that is itself a list is a range of two numbers.
func isElement(value, element any) (bool, error) {
	if bounds, ok := element.([]any); ok {
		return inRange(value, bounds)
	}
	if isNumber(value) {
		n, err := number(element)
		return any(n) == value, err
	}
	return same(value, element)
}

func inRange(value any, bounds []any) (bool, error) {
	if len(bounds) < 2 {
		return false, errTooFew
	}
	v, err := number(value)
	if err != nil {
		return false, err
	}
	low, err := number(bounds[0])
	if err != nil || !(v >= low) {
		return false, err
	}
	high, err := number(bounds[1])
	return high >= v, err
}

func merge(s *scope, args any) (any, error) {
	if isPrimitive(args) {
		return []any{args}, nil
	}
	list, err := asList(args)
	if err != nil {
		return nil, err
	}
	merged := []any{}
	for _, v := range list {
		if elements, ok := v.([]any); ok {
			if err := s.run.spend(len(elements)); err != nil {
				return nil, err
			}
			merged = append(merged, elements...)
		} else {
			merged = append(merged, v)
		}
	}
	return merged, nil
}

// absent splits paths into those that exist in the data and those that do not.
func absent(s *scope, paths []any) (found, missing []any, err error) {
	found, missing = []any{}, []any{}
	for _, path := range paths {
		if err := s.run.spend(1); err != nil {
			return nil, nil, err
		}
		wanted, err := apply(s, path)
		if err != nil {
			return nil, nil, err
		}
		value, err := dynamicVar(s, wanted)
		if err != nil {
			return nil, nil, err
		}
		if value == nil {
			missing = append(missing, path)
		} else {
			found = append(found, path)
		}
	}
	return found, missing, nil
}

func missing(s *scope, args any) (any, error) {
	if path, ok := args.(string); ok {
		args = []any{path}
	}
	paths, err := asList(args)
	if err != nil {
		return nil, err
	}
	_, missing, err := absent(s, paths)
	return missing, err
}

func missingSome(s *scope, args any) (any, error) {
	list, err := asList(args)
	if err != nil {
		return nil, err
	}
	if len(list) < 2 {
		return nil, errTooFew
	}
	need, err := number(list[0])
	if err != nil {
		return nil, err
	}
	paths, err := asList(list[1])
	if err != nil {
		return nil, err
	}
	found, missing, err := absent(s, paths)
	if int(need) > len(found) {
		return missing, err
	}
	return []any{}, err
}

// set returns an object with one property changed.
func set(s *scope, args any) (any, error) {
	list, err := asList(args)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	object, ok := list[0].(map[string]any)
	if len(list) < 3 || !ok {
		return list[0], nil
	}
	name, ok := list[1].(string)
	if !ok {
		return nil, errNoString
	}
	if err := s.run.spend(len(object)); err != nil {
		return nil, err
	}
	changed := maps.Clone(object)
	changed[name], err = apply(s, list[2])
	return changed, err
}

// twoLists returns two lists; false if the arguments are not two lists.
func twoLists(args any) (a, b []any, ok bool) {
	list, _ := args.([]any)
	if len(list) != 2 {
		return nil, nil, false
	}
	a, isList := list[0].([]any)
	b, both := list[1].([]any)
	return a, b, isList && both
}

// shared reports whether a list contains an element.
func shared(s *scope, list []any, element any) (bool, error) {
	if err := s.run.spend(len(list)); err != nil {
		return false, err
	}
	for _, v := range list {
		equal, err := same(v, element)
		if !equal && err == nil && isNumber(v) && isNumber(element) {
			equal = loose(v) == loose(element)
		}
		if equal || err != nil {
			return equal, err
		}
	}
	return false, nil
}

func containsAll(s *scope, args any) (any, error) {
	have, want, ok := twoLists(args)
	if !ok {
		return false, nil
	}
	for _, element := range want {
		if found, err := shared(s, have, element); !found || err != nil {
			return false, err
		}
	}
	return true, nil
}

func containsAny(s *scope, args any) (any, error) {
	have, want, ok := twoLists(args)
	if !ok {
		return false, nil
	}
	for _, element := range want {
		if found, err := shared(s, have, element); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

func containsNone(s *scope, args any) (any, error) {
	found, err := containsAny(s, args)
	return found == false, err
}
