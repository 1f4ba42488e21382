package flagset

import (
	"errors"
	"math"
	"strings"
)

type operator func(s *scope, args any) (any, error)

// eagerOperators work on their arguments' values.
var eagerOperators map[string]operator

// preparedOperators inspect their arguments once, when the rule is prepared.
var preparedOperators map[string]func(c *compiler, args any) node

// lazyOperators choose which of their arguments are evaluated.
var lazyOperators map[string]func(c *compiler, rules []any) func(*scope) (any, error)

// The tables are filled here because operators evaluate rules, which use the tables (an initialization cycle).
func init() {
	eagerOperators = map[string]operator{
		"!":  func(_ *scope, args any) (any, error) { return !truthy(first(args)), nil },
		"!!": func(_ *scope, args any) (any, error) { return truthy(first(args)), nil },
		"+":  sum, "-": minus, "*": product, "/": quotient, "%": modulo, "abs": abs,
		"max": extreme(func(a, b float64) bool { return a > b }),
		"min": extreme(func(a, b float64) bool { return a < b }),
		"cat": concat, "substr": substring, "in": in, "merge": merge,
		"missing": missing, "missing_some": missingSome, "set": set,
		"contains_all": containsAll, "contains_any": containsAny, "contains_none": containsNone,
		"starts_with": affix(strings.HasPrefix), "ends_with": affix(strings.HasSuffix),
		"fractional": fractional,
	}
	preparedOperators = map[string]func(*compiler, any) node{
		"sem_ver": prepareSemver, "cidr": prepareCIDR, "node_selector": prepareNodeSelector,
	}
	lazyOperators = map[string]func(*compiler, []any) func(*scope) (any, error){
		"and": junction(false), "or": junction(true), "if": conditional, "?:": conditional,
		"map": mapping, "filter": filter, "reduce": reduce, "all": all, "none": none, "some": some,
	}
}

// first returns the first element of a non-empty list, or the value itself.
func first(args any) any {
	if list, ok := args.([]any); ok && len(list) > 0 {
		return list[0]
	}
	return args
}

func junction(stop bool) func(*compiler, []any) func(*scope) (any, error) {
	return func(c *compiler, rules []any) func(*scope) (any, error) {
		nodes := c.each(rules)
		return func(s *scope) (last any, err error) {
			for _, n := range nodes {
				if last, err = n.eval(s); err != nil || truthy(last) == stop {
					return last, err
				}
			}
			return last, nil
		}
	}
}

func (c *compiler) each(rules []any) []node {
	nodes := make([]node, len(rules))
	for i, rule := range rules {
		nodes[i] = c.compile(rule)
	}
	return nodes
}

// conditional is if, then, else if, then, ..., else. A clause that yields an object is evaluated once more.
func conditional(c *compiler, rules []any) func(*scope) (any, error) {
	nodes := c.each(rules)
	clause := func(s *scope, n node) (any, error) {
		value, err := n.eval(s)
		if object, ok := value.(map[string]any); ok && err == nil {
			return apply(s, object)
		}
		return value, err
	}
	return func(s *scope) (any, error) {
		for i := 0; i+1 < len(nodes); i += 2 {
			condition, err := nodes[i].eval(s)
			if err != nil {
				return nil, err
			}
			if truthy(condition) {
				return clause(s, nodes[i+1])
			}
		}
		if len(nodes)%2 == 1 {
			return clause(s, nodes[len(nodes)-1])
		}
		return nil, nil
	}
}

// numbers converts a list.
func numbers(args any) ([]float64, error) {
	list, err := asList(args)
	if err != nil {
		return nil, err
	}
	converted := make([]float64, len(list))
	for i, v := range list {
		if converted[i], err = number(v); err != nil {
			return nil, err
		}
	}
	return converted, nil
}

func sum(_ *scope, args any) (any, error) {
	if _, ok := args.([]any); !ok {
		return number(args)
	}
	list, err := numbers(args)
	total := 0.0
	for _, n := range list {
		total += n
	}
	return total, err
}

func minus(_ *scope, args any) (any, error) {
	list, err := numbers(args)
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		return 0, nil
	case len(list) == 1:
		return -1 * list[0], nil
	}
	rest := list[0]
	for _, n := range list[1:] {
		rest -= n
	}
	return rest, nil
}

func product(_ *scope, args any) (any, error) {
	list, err := numbers(args)
	total := 1.0
	for _, n := range list {
		total *= n
	}
	return total, err
}

func quotient(_ *scope, args any) (any, error) {
	list, err := numbers(args)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return 0, nil
	}
	rest := list[0]
	for _, n := range list[1:] {
		rest /= n
	}
	return rest, nil
}

func modulo(_ *scope, args any) (any, error) {
	list, err := asList(args)
	if err != nil {
		return nil, err
	}
	if len(list) < 2 {
		return nil, errTooFew
	}
	two, err := numbers(list[:2])
	if err != nil {
		return nil, err
	}
	return math.Mod(two[0], two[1]), nil
}

func abs(_ *scope, args any) (any, error) {
	if list, ok := args.([]any); ok {
		if len(list) == 0 {
			return nil, errTooFew
		}
		args = list[0]
	}
	n, err := number(args)
	return math.Abs(n), err
}

func extreme(better func(a, b float64) bool) operator {
	return func(_ *scope, args any) (any, error) {
		list, err := numbers(args)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		best := list[0]
		for _, n := range list[1:] {
			if better(n, best) {
				best = n
			}
		}
		return best, nil
	}
}

// concat joins texts; like the reference, it trims white space around several texts.
func concat(s *scope, args any) (any, error) {
	if _, ok := args.(string); ok {
		return args, nil
	}
	list, err := asList(args)
	if err != nil {
		return nil, err
	}
	var joined strings.Builder
	for _, v := range list {
		t, err := text(v)
		if err == nil {
			err = s.run.spend(len(t) / 64)
		}
		if err != nil {
			return nil, err
		}
		joined.WriteString(t)
	}
	if len(list) == 1 {
		return joined.String(), nil
	}
	return strings.TrimSpace(joined.String()), nil
}

var errOutside = errors.New("the end is before the start")

// substring counts runes, from the end where a number is negative.
func substring(s *scope, args any) (any, error) {
	list, err := asList(args)
	if err != nil {
		return nil, err
	}
	if len(list) < 2 {
		return nil, errTooFew
	}
	t, err := text(list[0])
	if err != nil {
		return nil, err
	}
	if err := s.run.spend(len(t) / 64); err != nil {
		return nil, err
	}
	start, err := number(list[1])
	if err != nil {
		return nil, err
	}
	runes := []rune(t)
	from, end := int(start), len(runes)
	if from < 0 {
		from += len(runes)
	}
	if from < 0 || from > len(runes) {
		return t, nil
	}
	length := len(runes)
	if len(list) == 3 {
		n, err := number(list[2])
		if err != nil {
			return nil, err
		}
		length = int(n)
	}
	if length < 0 {
		end = len(runes) + length
	} else {
		end = from + length
	}
	end = min(end, len(runes))
	if end < from {
		return nil, errOutside
	}
	return string(runes[from:end]), nil
}

func affix(has func(s, part string) bool) operator {
	return func(_ *scope, args any) (any, error) {
		list, ok := args.([]any)
		if !ok || len(list) != 2 {
			return nil, nil
		}
		value, ok := list[0].(string)
		part, both := list[1].(string)
		if !ok || !both {
			return nil, nil
		}
		return has(value, part), nil
	}
}
