package selector

import (
	"slices"
	"strings"
)

const (
	maxLabel = 512 // as in Calico
	// maxDepth bounds nesting, so that no input can exhaust the stack. Calico has no such bound.
	maxDepth = 5000
)

// parser reads from left to right; between two calls, at is the offset of the next non-space character.
type parser struct {
	text string
	at   int
	refs []span
}

func (p *parser) fail(reason string) *Error {
	return &Error{Text: p.text, Offset: p.at, Reason: reason}
}

func (p *parser) space() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
}

// take consumes a token and the space after it, if the token is next.
func (p *parser) take(token string) bool {
	if !strings.HasPrefix(p.text[p.at:], token) {
		return false
	}
	p.at += len(token)
	p.space()
	return true
}

func (p *parser) or(depth int) (node, error)  { return p.chain("||", depth, p.and) }
func (p *parser) and(depth int) (node, error) { return p.chain("&&", depth, p.term) }

func (p *parser) chain(operator string, depth int, operand func(int) (node, error)) (node, error) {
	first, err := operand(depth)
	if err != nil {
		return nil, err
	}
	operands := []node{first}
	for p.take(operator) {
		next, err := operand(depth)
		if err != nil {
			return nil, err
		}
		operands = append(operands, next)
	}
	if len(operands) == 1 {
		return first, nil
	}
	return chain{operator, operands}, nil
}

func (p *parser) term(depth int) (node, error) {
	negate := false
	for p.take("!") {
		negate = !negate
	}
	operand, err := p.operand(depth)
	if err == nil && negate {
		operand = not{operand}
	}
	return operand, err
}

func (p *parser) operand(depth int) (node, error) {
	switch {
	case p.take("("):
		if depth >= maxDepth {
			return nil, p.fail("nested too deeply")
		}
		inner, err := p.or(depth + 1)
		if err != nil {
			return nil, err
		}
		return inner, p.expect(")")
	case p.take("has("):
		key, err := p.label()
		if err != nil {
			return nil, err
		}
		return has(key), p.expect(")")
	case p.take("all("):
		return constant("all()"), p.expect(")")
	case p.take("global("):
		return constant("global()"), p.expect(")")
	}
	key, err := p.label()
	if err != nil {
		return nil, err
	}
	return p.test(key)
}

// test parses the test of a label.
func (p *parser) test(key string) (node, error) {
	for _, symbol := range []string{"==", "!="} {
		if p.take(symbol) {
			return p.compare(key, symbol)
		}
	}
	switch {
	case p.words("contains"):
		return p.compare(key, "contains")
	case p.words("starts", "with"):
		return p.compare(key, "starts with")
	case p.words("ends", "with"):
		return p.compare(key, "ends with")
	case p.words("not", "in"):
		return p.set(key, true)
	case p.words("in"):
		return p.set(key, false)
	}
	return nil, p.fail("expected an operator after a label: ==, !=, in, not in, contains, starts with or ends with")
}

// words consumes the words of an operator, if a character that cannot be part of a label follows.
func (p *parser) words(words ...string) bool {
	start := p.at
	for _, word := range words {
		if !p.take(word) {
			p.at = start
			return false
		}
	}
	// After several words, space may precede the next token.
	end := p.at
	if len(words) == 1 {
		end = start + len(words[0])
	}
	if end < len(p.text) && isLabel(p.text[end]) {
		p.at = start
		return false
	}
	return true
}

func (p *parser) compare(key, operator string) (node, error) {
	value, err := p.quoted()
	return test{key, operator, value}, err
}

func (p *parser) set(key string, negate bool) (node, error) {
	if err := p.expect("{"); err != nil {
		return nil, err
	}
	var values []string
	for !p.take("}") {
		value, err := p.quoted()
		if err != nil {
			return nil, err
		}
		values = append(values, value)
		if p.take(",") {
			continue
		}
		if err := p.expect("}"); err != nil {
			return nil, err
		}
		break
	}
	slices.Sort(values)
	return member{key, negate, slices.Compact(values)}, nil
}

func (p *parser) label() (string, error) {
	start := p.at
	for p.at < len(p.text) && isLabel(p.text[p.at]) {
		p.at++
	}
	key := p.text[start:p.at]
	switch {
	case key == "":
		return "", p.fail("expected a label")
	case len(key) > maxLabel:
		return "", p.fail("the label is longer than 512 characters")
	}
	p.refs = append(p.refs, span{start, p.at})
	p.space()
	return key, nil
}

func (p *parser) quoted() (string, error) {
	if p.at == len(p.text) || p.text[p.at] != '"' && p.text[p.at] != '\'' {
		return "", p.fail("expected a quoted string")
	}
	end := strings.IndexByte(p.text[p.at+1:], p.text[p.at])
	if end < 0 {
		return "", p.fail("the string is not terminated")
	}
	value := p.text[p.at+1 : p.at+1+end]
	p.at += end + 2
	p.space()
	return value, nil
}

// expect consumes a token that must be next. On success the error is a nil interface.
func (p *parser) expect(token string) error {
	if !p.take(token) {
		return p.fail("expected " + token)
	}
	return nil
}

// isLabel reports whether a byte may be part of a label's key.
func isLabel(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '.' || c == '/' || c == '-'
}
