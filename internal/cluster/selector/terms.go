package selector

import "fmt"

// Term is a condition on one label, as Kubernetes' label selectors have them.
type Term struct {
	Key      string
	Operator Operator
	Values   []string
}

// Operator is the operator of a Term.
type Operator string

// The operators. An absent label meets NotIn.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
)

// mostAlternatives bounds the result of Terms, which can be exponential in the length of a selector.
const mostAlternatives = 64

// Terms returns the selector as alternatives, each a list of terms that must all hold. A selector that selects nothing
// has no alternative. It fails if the selector compares a part of a value, or has too many alternatives.
func (s *Selector) Terms() ([][]Term, error) { return terms(s.root, false) }

func terms(n node, negate bool) ([][]Term, error) {
	one := func(key string, plain, negated Operator, values ...string) ([][]Term, error) {
		if negate {
			plain = negated
		}
		return [][]Term{{{key, plain, values}}}, nil
	}
	switch n := n.(type) {
	case constant:
		if negate {
			return nil, nil
		}
		return [][]Term{nil}, nil
	case not:
		return terms(n.operand, !negate)
	case has:
		return one(string(n), Exists, DoesNotExist)
	case test:
		switch n.operator {
		case "==":
			return one(n.key, In, NotIn, n.value)
		case "!=":
			return one(n.key, NotIn, In, n.value)
		}
		return nil, fmt.Errorf("it compares a part of the value of %s (%s)", n.key, n.operator)
	case member:
		switch {
		case len(n.values) == 0 && n.negate == negate: // in {} selects nothing
			return nil, nil
		case len(n.values) == 0:
			return [][]Term{nil}, nil
		case n.negate:
			return one(n.key, NotIn, In, n.values...)
		}
		return one(n.key, In, NotIn, n.values...)
	case chain:
		return n.terms(negate)
	}
	return nil, fmt.Errorf("it has an operation that is not known")
}

func (c chain) terms(negate bool) ([][]Term, error) {
	all := c.operator == "&&" != negate
	var found [][]Term
	if all {
		found = [][]Term{nil}
	}
	for _, operand := range c.operands {
		more, err := terms(operand, negate)
		if err != nil {
			return nil, err
		}
		if !all {
			found = append(found, more...)
		} else {
			var product [][]Term
			for _, a := range found {
				for _, b := range more {
					product = append(product, append(a[:len(a):len(a)], b...))
				}
			}
			found = product
		}
		if len(found) > mostAlternatives {
			return nil, fmt.Errorf("it has more than %d alternatives", mostAlternatives)
		}
	}
	return found, nil
}
