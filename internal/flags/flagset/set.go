package flagset

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Set is a prepared flag set. It does not change.
type Set struct {
	flags    map[string]*definition
	metadata map[string]any
	warnings []Problem
}

// definition is a prepared flag.
type definition struct {
	disabled       bool
	variants       map[string]any
	defaultVariant string // empty: the caller's
	rule           node   // nil: none
	metadata       map[string]any
	digest         [sha256.Size]byte
	line           int
	origin         string
}

// Format is how a flag set is written.
type Format int

// The formats.
const (
	JSON Format = iota
	YAML
)

// Mode says how to treat faults for which flagd only warns.
type Mode int

// Strict refuses a set with a fault; Lenient makes it a warning, and the flag fails when it is evaluated.
const (
	Strict Mode = iota
	Lenient
)

// Problem is a problem in a set, and its position.
type Problem struct {
	Line int `json:"line"` // from 1; 0 if the problem has no line
	// Path is the position in the set, such as flags.bgp.targeting.if.
	Path   string `json:"path,omitempty"`
	Reason string `json:"reason"`
}

func (p *Problem) Error() string {
	if p.Path == "" {
		return p.Reason
	}
	return p.Path + ": " + p.Reason
}

// In formats the problem with the name of its set, and the line if it has one.
func (p *Problem) In(name string) string {
	if p.Line > 0 {
		name = fmt.Sprintf("%s:%d", name, p.Line)
	}
	return name + ": " + p.Error()
}

// Error says why a set is refused: every reason, in the order of the lines.
type Error struct {
	Name     string
	Problems []Problem
}

func (e *Error) Error() string {
	message := e.Problems[0].In(e.Name)
	if more := len(e.Problems) - 1; more > 0 {
		message += fmt.Sprintf(" (and %d more)", more)
	}
	return message
}

// Hint returns the command that lists all problems.
func (e *Error) Hint() string { return "theseus flags lint " + e.Name + " lists everything" }

// Parse reads and prepares a set. Errors are *Error with the given name.
func Parse(name string, data []byte, format Format, mode Mode) (*Set, error) {
	root, values, err := read(name, data, format)
	if err != nil {
		return nil, err
	}
	// Every value is visited three times; the size that shared rules add is bounded.
	left := 3*values + min(8*values+1<<16, 1<<20)
	l := loader{mode: mode, name: name, compiler: compiler{left: left}}
	set := l.load(root)
	slices.SortStableFunc(l.problems, func(a, b Problem) int { return a.Line - b.Line })
	if len(l.problems) > 0 {
		return nil, &Error{name, l.problems}
	}
	set.warnings = l.warnings
	return set, nil
}

// Value reads one value, such as a flag or a context, as Parse reads a set. Errors are *Error.
func Value(name string, data []byte, format Format) (any, error) {
	root, _, err := read(name, data, format)
	if err != nil {
		return nil, err
	}
	return root.plain(), nil
}

// read also returns the number of values.
func read(name string, data []byte, format Format) (*tree, int, error) {
	if len(data) > MaxBytes {
		return nil, 0, &Error{name, []Problem{{Reason: fmt.Sprintf("a flag set has at most %d MiB", MaxBytes>>20)}}}
	}
	read := readJSON
	if format == YAML {
		read = readYAML
	}
	root, values, err := read(bytes.TrimPrefix(data, []byte("\ufeff")))
	if err != nil {
		return nil, 0, &Error{name, []Problem{*err.(*Problem)}}
	}
	return root, values, nil
}

// Merge combines several sets. A flag that is in two of them is a problem. Shared rules are only visible in their own
// set.
func Merge(sets ...*Set) (*Set, error) {
	merged := &Set{flags: map[string]*definition{}, metadata: map[string]any{}}
	for _, s := range sets {
		for _, key := range s.Keys() {
			f := s.flags[key]
			if other, ok := merged.flags[key]; ok {
				return nil, &Error{f.origin, []Problem{{f.line, "flags." + key,
					fmt.Sprintf("%s:%d has this flag too", other.origin, other.line)}}}
			}
			merged.flags[key] = f
		}
		maps.Copy(merged.metadata, s.metadata)
		merged.warnings = append(merged.warnings, s.warnings...)
	}
	return merged, nil
}

// Keys are the flags' keys, sorted.
func (s *Set) Keys() []string { return slices.Sorted(maps.Keys(s.flags)) }

// Metadata is the set's own metadata; callers must not modify it.
func (s *Set) Metadata() map[string]any { return s.metadata }

// Warnings are the faults that a lenient read accepted, and other oddities.
func (s *Set) Warnings() []Problem { return s.warnings }

// Digest is equal for sets with the same content.
func (s *Set) Digest() string {
	h := sha256.New()
	for _, key := range s.Keys() {
		digest := s.flags[key].digest
		fmt.Fprintf(h, "%q", key)
		h.Write(digest[:])
	}
	_ = json.NewEncoder(h).Encode(s.metadata) // decoded from JSON, and a hash never fails
	return hex.EncodeToString(h.Sum(nil))
}

// Changed returns the flags that differ between two sets, sorted; either may be nil.
func Changed(a, b *Set) []string {
	found := map[string]bool{}
	for _, pair := range [][2]*Set{{a, b}, {b, a}} {
		if pair[0] == nil {
			continue
		}
		for key, f := range pair[0].flags {
			other := (*definition)(nil)
			if pair[1] != nil {
				other = pair[1].flags[key]
			}
			if other == nil || other.digest != f.digest {
				found[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Variants returns a flag's values by name, which callers must not modify, and the name of its default; false if there
// is no such flag.
func (s *Set) Variants(key string) (variants map[string]any, defaultVariant string, ok bool) {
	f, ok := s.flags[key]
	if !ok {
		return nil, "", false
	}
	return f.variants, f.defaultVariant, true
}
