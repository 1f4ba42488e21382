package selector

// Required is a label and the only values of it with which anything is selected, where the selector has such
// a one: it makes what is selected quick to find.
func (s *Selector) Required() (label string, values []string, ok bool) { return required(s.root) }

func required(n node) (label string, values []string, ok bool) {
	switch n := n.(type) {
	case test:
		return n.key, []string{n.value}, n.operator == "=="
	case member:
		return n.key, n.values, !n.negate
	case chain:
		if n.operator != "&&" {
			return "", nil, false
		}
		for _, operand := range n.operands {
			if label, values, ok := required(operand); ok {
				return label, values, true
			}
		}
	}
	return "", nil, false
}
