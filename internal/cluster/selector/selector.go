// Package selector implements Calico's selector language: it parses, evaluates and prints selectors, and lists the
// labels that they use. The grammar is that of libcalico-go/lib/selector of Calico v3.31:
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
// Space and tab separate tokens; a line end is an error. The words of an operator may be written without a space
// between them (notin). The separate module test/calico-selector compares this package with Calico's parser.
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
	// refs are the positions of label keys in text.
	refs []span
}

type span struct{ start, end int }

// Error describes a selector that Calico would refuse.
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

// Parse parses a selector. An error is an *Error.
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
		return nil, p.fail("expected the end, && or ||")
	}
	return &Selector{text: text, root: root, refs: p.refs}, nil
}

// Matches reports whether the selector selects an object with these labels.
func (s *Selector) Matches(labels map[string]string) bool { return s.root.matches(labels) }

// String formats the selector as Calico does: one space around operators, sets sorted, every chain of && and || in
// parentheses.
func (s *Selector) String() string {
	var b strings.Builder
	s.root.print(&b)
	return b.String()
}

// Text returns the original text of the selector.
func (s *Selector) Text() string { return s.text }

// Keys returns the keys of the labels that the selector uses, sorted.
func (s *Selector) Keys() []string {
	var keys []string
	for _, ref := range s.refs {
		keys = append(keys, s.text[ref.start:ref.end])
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Rename returns the selector with some keys replaced; the rest of the text is unchanged. If a new key is not a valid
// label key, it returns the selector unchanged.
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
