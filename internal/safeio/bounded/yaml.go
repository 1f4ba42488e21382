// Package bounded reads YAML and JSON from outside within bounds that hold for the expanded text, and not only for the
// text itself: aliases let a few bytes represent gigabytes. All YAML that Theseus did not write itself is read here; a
// test at the root of the module checks this. The meaning of the text belongs to the callers.
package bounded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// The bounds of one input.
const (
	// MaxBytes is the largest size of one document.
	MaxBytes = 64 << 20
	// MaxValues is how many values a YAML document may have: a parser of the whole language needs about 200 bytes for
	// each value, which may be one byte of text.
	MaxValues = 2_000_000
	// MaxDepth is how deep mappings and lists may be nested.
	MaxDepth = 1000
	// MaxAliases is how many aliases an input may have.
	MaxAliases = 10_000
	// MaxExpanded is how many bytes aliases may add to an input.
	MaxExpanded = 4 << 20
	// nodeCost is the memory of every value that an alias repeats, in addition to its text, in bytes.
	nodeCost = 32
)

// ErrBound is wrapped by every error about an input that exceeds a bound.
var ErrBound = errors.New("the input is out of bounds")

type boundError string

func (e boundError) Error() string { return string(e) }

func (e boundError) Unwrap() error { return ErrBound }

func exceeds(format string, args ...any) error { return boundError(fmt.Sprintf(format, args...)) }

// Budget is how much of the bounds the aliases of one input have used. The zero value is unused.
type Budget struct{ aliases, added int }

// Unmarshal reads YAML or JSON into target, as sigs.k8s.io/yaml does.
func Unmarshal(text []byte, target any) error {
	if err := new(Budget).admit(text); err != nil {
		return err
	}
	return yaml.Unmarshal(text, target)
}

// UnmarshalStrict is Unmarshal, but refuses unknown fields and duplicate keys.
func UnmarshalStrict(text []byte, target any) error {
	if err := new(Budget).admit(text); err != nil {
		return err
	}
	return yaml.UnmarshalStrict(text, target)
}

// ToJSON converts one YAML document to JSON, and charges its aliases to the budget.
func (b *Budget) ToJSON(text []byte) ([]byte, error) {
	if err := b.admit(text); err != nil {
		return nil, err
	}
	json, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = CheckJSON(json)
	}
	return json, err
}

// ReadAll reads an input to its end, and fails if it is larger than most bytes.
func ReadAll(input io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(input, most+1))
	if err == nil && int64(len(text)) > most {
		return nil, exceeds("the input is larger than %d bytes", most)
	}
	return text, err
}

// Anchored reports whether a YAML document names values by anchors. A text that cannot be parsed has none.
func Anchored(text []byte) bool {
	if bytes.IndexByte(text, '&') < 0 {
		return false
	}
	var document yamlv3.Node
	return yamlv3.Unmarshal(text, &document) == nil && named(&document)
}

func named(node *yamlv3.Node) bool {
	if node.Anchor != "" {
		return true
	}
	for _, below := range node.Content {
		if named(below) {
			return true
		}
	}
	return false
}

// Text that may be an anchor or an alias: for all parsers that are used here, their names consist of these characters
// only (yaml_parser_scan_anchor of go-yaml). So the && of an expression is neither.
var anchor, alias = regexp.MustCompile(`&[0-9A-Za-z_-]`), regexp.MustCompile(`\*[0-9A-Za-z_-]`)

// admit measures how much the aliases of a text add, before a parser expands them.
func (b *Budget) admit(text []byte) error {
	if len(text) > MaxBytes {
		return exceeds("the text is larger than %d MiB", MaxBytes>>20)
	}
	if values(text) > MaxValues {
		return exceeds("the text has more than %d values", MaxValues)
	}
	if !alias.Match(text) || !anchor.Match(text) {
		return nil // without both, no value expands
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(text, &document); err != nil {
		return err // text that one parser refuses is not given to another, which might expand it
	}
	w := weigher{budget: b, known: map[*yamlv3.Node]weight{}}
	_, err := w.weigh(&document, 0)
	return err
}

// values is an upper bound of the values in a text. Each value needs one of a few characters before or after it.
func values(text []byte) int {
	count := 1
	for _, c := range text {
		switch c {
		case ',', ':', '\n', '[', '{', '-', '?':
			count++
		}
	}
	return count
}

// CheckJSON refuses JSON that is nested too deeply. JSON has no aliases.
func CheckJSON(json []byte) error {
	if deeper(json, MaxDepth) {
		return exceeds("the text is nested more than %d deep", MaxDepth)
	}
	return nil
}

// weight is the size of a value with its aliases expanded, and how deep it is.
type weight struct {
	bytes, depth int
	open         bool // it is being weighed: a reference to it now is inside of it
}

type weigher struct {
	budget *Budget
	known  map[*yamlv3.Node]weight // values with an anchor
}

func (w *weigher) weigh(node *yamlv3.Node, depth int) (weight, error) {
	if depth > MaxDepth {
		return weight{}, exceeds("the text is nested more than %d deep", MaxDepth)
	}
	if node.Kind == yamlv3.AliasNode {
		return w.repeat(node, depth)
	}
	if node.Anchor != "" {
		w.known[node] = weight{open: true}
	}
	sum := weight{bytes: len(node.Value) + nodeCost}
	for _, below := range node.Content {
		one, err := w.weigh(below, depth+1)
		if err != nil {
			return weight{}, err
		}
		sum.bytes, sum.depth = sum.bytes+one.bytes, max(sum.depth, one.depth+1)
	}
	if node.Anchor != "" {
		w.known[node] = sum
	}
	return sum, nil
}

// repeat weighs an alias: its value was weighed already, since an anchor comes before its aliases.
func (w *weigher) repeat(node *yamlv3.Node, depth int) (weight, error) {
	value := w.known[node.Alias]
	b := w.budget
	b.aliases++
	b.added += value.bytes
	switch {
	case value.open:
		return weight{}, exceeds("line %d: the anchor %.40q contains itself", node.Line, node.Value)
	case b.aliases > MaxAliases:
		return weight{}, exceeds("line %d: the text has more than %d aliases", node.Line, MaxAliases)
	case b.added > MaxExpanded:
		return weight{}, exceeds("line %d: aliases add more than %d MiB to the text", node.Line, MaxExpanded>>20)
	case depth+value.depth > MaxDepth:
		return weight{}, exceeds("line %d: the text is nested more than %d deep", node.Line, MaxDepth)
	}
	return value, nil
}

// deeper reports whether valid JSON is nested deeper than most.
func deeper(json []byte, most int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(json); i++ {
		switch c := json[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
