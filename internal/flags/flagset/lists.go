package flagset

import (
	"errors"
	"maps"
	"strings"
)

// elements prepares what a list operator works on: a list as it stands in the rule, or what a rule yields;
// anything else is nothing.
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

// inner is a rule that is evaluated for every element. The reference first puts values of the outer data into
// it: a var that is found there stands for that value, one that is not is left to the element.
type inner struct {
	rule     any
	prepared node
	// object says that the rule has to be an object.
	object bool
}

func (c *compiler) inner(rules []any, object bool) *inner {
	if len(rules) < 2 {
		return &inner{prepared: failing{errTooFew}}
	}
	return &inner{rules[1], c.compile(rules[1]), object}
}

var errNoRule = errors.New("an operator is expected")

// within puts the values of the data into the rule.
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

// solve returns the rule with every var that the data has replaced by its value.
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

// outerVar is what the data has for a var; a path that starts with a dot, or is empty, is always the element's.
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

// subjectList evaluates to a list; null is an empty one.
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

// quantity is how all, none and some differ.
type quantity struct {
	empty   bool // the answer for no elements
	stop    bool // the verdict on one element that decides
	decided bool // the answer then; otherwise it is the opposite
	// The data whose values are put into the rule: the outer data, and the element itself.
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

var errReduce = errors.New("what reduce starts with has to be a boolean, a number or a string")

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

// conversion is how reduce keeps the type that it started with; nil for a type that it has none for.
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

// absent splits paths into those that the data has and those that it has not.
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

// twoLists is false when the arguments are not two lists.
func twoLists(args any) (a, b []any, ok bool) {
	list, _ := args.([]any)
	if len(list) != 2 {
		return nil, nil, false
	}
	a, isList := list[0].([]any)
	b, both := list[1].([]any)
	return a, b, isList && both
}

// shared says whether a list has an element.
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
