package selector

import (
	"slices"
	"strings"
)

// node is one operation of a selector.
type node interface {
	matches(labels map[string]string) bool
	print(b *strings.Builder)
}

// constant is all() or global(), which both select everything; global() differs only where namespaces are
// selected.
type constant string

func (c constant) matches(map[string]string) bool { return true }
func (c constant) print(b *strings.Builder)       { b.WriteString(string(c)) }

type has string

func (h has) matches(labels map[string]string) bool {
	_, ok := labels[string(h)]
	return ok
}

func (h has) print(b *strings.Builder) {
	b.WriteString("has(" + string(h) + ")")
}

type not struct{ operand node }

func (n not) matches(labels map[string]string) bool { return !n.operand.matches(labels) }

func (n not) print(b *strings.Builder) {
	b.WriteByte('!')
	n.operand.print(b)
}

// chain is a list of operands joined by && or ||.
type chain struct {
	operator string
	operands []node
}

func (c chain) matches(labels map[string]string) bool {
	any := c.operator == "||"
	for _, operand := range c.operands {
		if operand.matches(labels) == any {
			return any
		}
	}
	return !any
}

func (c chain) print(b *strings.Builder) {
	b.WriteByte('(')
	for i, operand := range c.operands {
		if i > 0 {
			b.WriteString(" " + c.operator + " ")
		}
		operand.print(b)
	}
	b.WriteByte(')')
}

// test compares the value of a label with a string. An absent label fails every test except !=.
type test struct {
	key, operator, value string
}

func (t test) matches(labels map[string]string) bool {
	value, ok := labels[t.key]
	switch t.operator {
	case "==":
		return ok && value == t.value
	case "!=":
		return !ok || value != t.value
	case "contains":
		return ok && strings.Contains(value, t.value)
	case "starts with":
		return ok && strings.HasPrefix(value, t.value)
	default: // ends with
		return ok && strings.HasSuffix(value, t.value)
	}
}

func (t test) print(b *strings.Builder) {
	b.WriteString(t.key + " " + t.operator + " ")
	quote(b, t.value)
}

// member tests whether the value of a label is in a sorted set. An absent label is in no set.
type member struct {
	key    string
	negate bool
	values []string
}

func (m member) matches(labels map[string]string) bool {
	value, ok := labels[m.key]
	if ok {
		_, ok = slices.BinarySearch(m.values, value)
	}
	return ok != m.negate
}

func (m member) print(b *strings.Builder) {
	b.WriteString(m.key)
	if m.negate {
		b.WriteString(" not")
	}
	b.WriteString(" in {")
	for i, value := range m.values {
		if i > 0 {
			b.WriteString(", ")
		}
		quote(b, value)
	}
	b.WriteByte('}')
}

// quote writes a string as Calico does. There are no escapes: a string never holds both kinds of quotes.
func quote(b *strings.Builder, value string) {
	mark := `"`
	if strings.Contains(value, mark) {
		mark = "'"
	}
	b.WriteString(mark + value + mark)
}
