package flagset

// comparison is an operator on two values.
type comparison struct {
	holds func(a, b any) bool
	// chain allows three values, as in a < b < c.
	chain bool
	// short is the result for fewer than two values.
	short bool
	// lax treats an argument that is not a list as too short; otherwise it is an error.
	lax bool
}

var comparisons = map[string]comparison{
	"==":  {holds: looseEqual},
	"!=":  {holds: not(looseEqual), short: true},
	"===": {holds: strictEqual, lax: true},
	"!==": {holds: not(strictEqual), short: true, lax: true},
	"<":   {holds: less, chain: true},
	"<=":  {holds: lessOrEqual, chain: true},
	">":   {holds: swap(less), chain: true},
	">=":  {holds: swap(lessOrEqual), chain: true},
}

func lessOrEqual(a, b any) bool { return less(a, b) || looseEqual(a, b) }

func not(relation func(a, b any) bool) func(a, b any) bool {
	return func(a, b any) bool { return !relation(a, b) }
}

func swap(relation func(a, b any) bool) func(a, b any) bool {
	return func(a, b any) bool { return relation(b, a) }
}

func (c comparison) do(_ *scope, args any) (any, error) {
	list, err := asList(args)
	switch {
	case err != nil && !c.lax:
		return nil, err
	case len(list) < 2:
		return c.short, nil
	case c.chain && len(list) == 3 && !c.holds(list[1], list[2]):
		return false, nil
	}
	return c.holds(list[0], list[1]), nil
}

// pair compares two values: most comparisons, without a list in between.
type pair struct {
	name  string
	a, b  node
	holds func(a, b any) bool
}

func (n *pair) eval(s *scope) (any, error) {
	if err := s.run.spend(1); err != nil {
		return nil, err
	}
	a, err := n.a.eval(s)
	if err != nil {
		return nil, err
	}
	b, err := n.b.eval(s)
	if err != nil {
		return nil, err
	}
	result := n.holds(a, b)
	if s.run.trace != nil {
		s.run.trace(Step{Operator: n.name, Arguments: []any{a, b}, Result: result})
	}
	return result, nil
}

func (c *compiler) comparison(name string, how comparison, args any) node {
	if list, ok := args.([]any); ok && len(list) == 2 {
		return &pair{name, c.compile(list[0]), c.compile(list[1]), how.holds}
	}
	return &eager{name, c.compile(args), how.do}
}
