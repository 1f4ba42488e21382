package flagset

import (
	"errors"
	"fmt"
)

var errTooLarge = errors.New("the rule is too large")

// compiler prepares rules. It never fails: a part that cannot be evaluated becomes a node that returns an error
// when it is evaluated, because evaluation may never reach it.
type compiler struct {
	left int // number of nodes that may still be created
}

// compile prepares a rule.
func (c *compiler) compile(rule any) node {
	if c.left--; c.left < 0 {
		return failing{errTooLarge}
	}
	switch rule := rule.(type) {
	case []any:
		return c.sequence(rule)
	case map[string]any:
		// An object of several keys is a value, as is an empty one.
		if len(rule) != 1 {
			return literal{rule}
		}
		for name, args := range rule {
			return c.operator(name, args)
		}
	}
	return literal{rule}
}

func (c *compiler) sequence(rules []any) node {
	nodes := make(sequence, len(rules))
	constant := true
	for i, rule := range rules {
		nodes[i] = c.compile(rule)
		if _, ok := nodes[i].(literal); !ok {
			constant = false
		}
	}
	if constant {
		return literal{rules}
	}
	return nodes
}

func (c *compiler) operator(name string, args any) node {
	if name == "var" {
		return c.variable(args)
	}
	if how, ok := comparisons[name]; ok {
		return c.comparison(name, how, args)
	}
	if do, ok := eagerOperators[name]; ok {
		return &eager{name, c.compile(args), do}
	}
	if prepare, ok := preparedOperators[name]; ok {
		return prepare(c, args)
	}
	if prepare, ok := lazyOperators[name]; ok {
		rules, err := asList(args)
		if err != nil {
			return failing{fmt.Errorf("%s: %w", name, err)}
		}
		return &lazy{name, prepare(c, rules)}
	}
	return failing{fmt.Errorf("there is no operator %q", name)}
}

// variable prepares a var. If the path is a constant, it is parsed once.
func (c *compiler) variable(args any) node {
	switch args := args.(type) {
	case string:
		return newVariable(args, nil)
	case []any:
		if len(args) == 0 || len(args) > 2 {
			break
		}
		if path, ok := args[0].(string); ok {
			var fallback node
			if len(args) == 2 {
				fallback = c.compile(args[1])
			}
			return newVariable(path, fallback)
		}
	}
	return &eager{"var", c.compile(args), dynamicVar}
}

// apply evaluates a value as a rule, as the reference does with some results.
func apply(s *scope, rule any) (any, error) {
	switch rule.(type) {
	case []any, map[string]any:
	default:
		return rule, nil
	}
	c := compiler{left: s.run.left}
	n := c.compile(rule)
	s.run.left = c.left
	return n.eval(s)
}
