package selector

// Required returns a label and the only values of it that the selector can match, if the selector requires such a
// label. It allows an index lookup of the selected objects.
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
