// Package selector is Calico's selector language, whole: parsed, evaluated on labels, printed back, and
// asked which labels it looks at. The grammar is that of libcalico-go/lib/selector of Calico v3.31:
//
//	selector  = [ or ]                         nothing at all selects everything
//	or        = and { "||" and }
//	and       = term { "&&" term }
//	term      = { "!" } ( "(" or ")" | "all()" | "global()" | "has(" label ")" | label test )
//	test      = ( "==" | "!=" | "contains" | "starts with" | "ends with" ) string | ( "in" | "not in" ) set
//	set       = "{" [ string { "," string } [ "," ] ] "}"
//	label     = 1 to 512 of A-Z a-z 0-9 _ . / -
//	string    = text in ' or ", without escapes
//
// Space and tab separate; a line end is an error. The words of an operator may be written without a space
// between them (notin). A module of its own, test/calico-selector, holds this to Calico's parser.
package selector

import (
	"fmt"
	"slices"
	"strings"
)

// Selector is a parsed selector. It is immutable.
type Selector struct {
	text string
	root node
	// refs are the places in text where a label's key stands.
	refs []span
}

type span struct{ start, end int }

// Error is a selector that Calico would refuse.
type Error struct {
	Text string
	// Offset counts bytes from 0.
	Offset int
	Reason string
}

func (e *Error) Error() string {
	const most = 80
	text := e.Text
	if len(text) > most {
		text = text[:most] + "..."
	}
	return fmt.Sprintf("selector %q, column %d: %s", text, e.Offset+1, e.Reason)
}

// Parse reads a selector. An error is an *Error.
func Parse(text string) (*Selector, error) {
	p := parser{text: text}
	p.space()
	if p.at == len(text) {
		return &Selector{text: text, root: constant("all()")}, nil
	}
	root, err := p.or(0)
	if err != nil {
		return nil, err
	}
	if p.at < len(text) {
		return nil, p.fail("the end, && or || is expected here")
	}
	return &Selector{text: text, root: root, refs: p.refs}, nil
}

// Matches reports whether labels are selected.
func (s *Selector) Matches(labels map[string]string) bool { return s.root.matches(labels) }

// String is the selector in the form that Calico prints: one space around operators, sets sorted, every
// chain of && and || in parentheses.
func (s *Selector) String() string {
	var b strings.Builder
	s.root.print(&b)
	return b.String()
}

// Text is the selector as it was written.
func (s *Selector) Text() string { return s.text }

// Keys are the labels that the selector looks at, sorted.
func (s *Selector) Keys() []string {
	var keys []string
	for _, ref := range s.refs {
		keys = append(keys, s.text[ref.start:ref.end])
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Rename is the selector with other keys in place of some; all else is left as written. It is the selector
// itself where a new key is none.
func (s *Selector) Rename(keys map[string]string) *Selector {
	var b strings.Builder
	done := 0
	for _, ref := range s.refs {
		if to, ok := keys[s.text[ref.start:ref.end]]; ok {
			b.WriteString(s.text[done:ref.start])
			b.WriteString(to)
			done = ref.end
		}
	}
	b.WriteString(s.text[done:])
	renamed, err := Parse(b.String())
	if err != nil {
		return s
	}
	return renamed
}
