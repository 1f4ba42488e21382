package flagset

import (
	"errors"
	"fmt"
	"maps"
	"strings"
)

// maxWork bounds one evaluation. A typical rule visits about ten nodes; the bound stops deeply nested rules from
// running for years. One unit is one node, one element of a list, or 64 bytes of text.
const maxWork = 1 << 20

var errTooMuchWork = errors.New("the rule is too expensive to evaluate")

// run is one evaluation.
type run struct {
	key   string
	now   int64 // Unix seconds
	left  int   // units of work
	trace func(Step)
}

// spend counts work that depends on the data.
func (r *run) spend(units int) error {
	if r.left -= units; r.left < 0 {
		return errTooMuchWork
	}
	return nil
}

// scope is the data that var reads: the context, or, within map, filter and similar operators, one element.
type scope struct {
	run  *run
	data any
	// root is true if data is the context, which has $flagd implicitly.
	root bool
}

func (s *scope) inner(data any) *scope { return &scope{run: s.run, data: data} }

// whole returns the data as a value.
func (s *scope) whole() any {
	context, ok := s.data.(map[string]any)
	if !ok || !s.root {
		return s.data
	}
	all := maps.Clone(context)
	if all == nil {
		all = map[string]any{}
	}
	all[flagdKey] = s.flagd()
	return all
}

func (s *scope) flagd() map[string]any {
	return map[string]any{"flagKey": s.run.key, "timestamp": float64(s.run.now)}
}

// node is a part of a prepared rule.
type node interface {
	eval(s *scope) (any, error)
}

// literal is a constant value.
type literal struct{ value any }

func (n literal) eval(*scope) (any, error) { return n.value, nil }

// failing is a part that cannot be evaluated; it only fails when it is reached.
type failing struct{ err error }

func (n failing) eval(*scope) (any, error) { return nil, n.err }

// sequence is a list whose elements are rules.
type sequence []node

func (n sequence) eval(s *scope) (any, error) {
	if err := s.run.spend(len(n)); err != nil {
		return nil, err
	}
	values := make([]any, len(n))
	for i, element := range n {
		v, err := element.eval(s)
		if err != nil {
			return nil, err
		}
		values[i] = v
	}
	return values, nil
}

// eager is an operator on values.
type eager struct {
	name string
	args node
	do   func(s *scope, args any) (any, error)
}

func (n *eager) eval(s *scope) (any, error) {
	if err := s.run.spend(1); err != nil {
		return nil, err
	}
	args, err := n.args.eval(s)
	if err != nil {
		return nil, err
	}
	return finish(s, n.name, args, n.do)
}

func finish(s *scope, name string, args any, do func(*scope, any) (any, error)) (any, error) {
	result, err := do(s, args)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if s.run.trace != nil {
		s.run.trace(Step{Operator: name, Arguments: args, Result: result})
	}
	return result, nil
}

// lazy is an operator that chooses which of its arguments are evaluated.
type lazy struct {
	name string
	do   func(s *scope) (any, error)
}

func (n *lazy) eval(s *scope) (any, error) {
	if err := s.run.spend(1); err != nil {
		return nil, err
	}
	return finish(s, n.name, nil, func(s *scope, _ any) (any, error) { return n.do(s) })
}

// variable is a var whose path is known.
type variable struct {
	path     string
	parts    []string
	fallback node // nil: null
}

func newVariable(path string, fallback node) *variable {
	v := &variable{path: path, fallback: fallback}
	for part := range strings.SplitSeq(path, ".") {
		if part != "" {
			v.parts = append(v.parts, part)
		}
	}
	return v
}

func (n *variable) eval(s *scope) (any, error) {
	if err := s.run.spend(1); err != nil {
		return nil, err
	}
	var fallback any
	if n.fallback != nil {
		var err error
		if fallback, err = n.fallback.eval(s); err != nil {
			return nil, err
		}
	}
	value := n.find(s)
	if value == nil {
		value = fallback
	}
	if s.run.trace != nil {
		s.run.trace(Step{Operator: "var", Arguments: n.path, Result: value})
	}
	return value, nil
}

// find returns nil if there is nothing at the path.
func (n *variable) find(s *scope) any {
	if s.root && len(n.parts) > 0 && n.parts[0] == flagdKey {
		return descend(s.flagd(), n.parts[1:])
	}
	if len(n.parts) == 0 {
		return s.whole()
	}
	return descend(s.data, n.parts)
}

func descend(value any, parts []string) any {
	for _, part := range parts {
		switch collection := value.(type) {
		case map[string]any:
			value = collection[part]
		case []any:
			f, _ := number(part)
			i := int(f)
			if i < 0 || i >= len(collection) {
				return nil
			}
			value = collection[i]
		default:
			return nil
		}
	}
	return value
}

// dynamicVar is a var whose path is computed or malformed.
func dynamicVar(s *scope, path any) (any, error) {
	var fallback any
	switch p := path.(type) {
	case nil:
		if isPrimitive(s.data) {
			return s.data, nil
		}
		return nil, nil
	case float64, int:
		t, _ := text(p)
		path = t
	case []any:
		if len(p) == 0 {
			return s.whole(), nil
		}
		if len(p) == 2 {
			fallback = p[1]
		}
		if _, ok := p[0].(string); !ok {
			return nil, errNoString
		}
		path = p[0]
	}
	if path != "" && s.data == nil {
		return fallback, nil
	}
	t, ok := path.(string)
	if !ok {
		return nil, errNoString
	}
	if value := newVariable(t, nil).find(s); value != nil {
		return value, nil
	}
	return fallback, nil
}
