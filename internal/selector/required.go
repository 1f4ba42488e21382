package selector

// Required is a label and the only value of it with which anything is selected, where the selector has such a
// one: it makes what is selected quick to find.
func (s *Selector) Required() (label, value string, ok bool) { return required(s.root) }

func required(n node) (label, value string, ok bool) {
	switch n := n.(type) {
	case test:
		return n.key, n.value, n.operator == "=="
	case member:
		if !n.negate && len(n.values) == 1 {
			return n.key, n.values[0], true
		}
	case chain:
		if n.operator != "&&" {
			return "", "", false
		}
		for _, operand := range n.operands {
			if label, value, ok := required(operand); ok {
				return label, value, true
			}
		}
	}
	return "", "", false
}
