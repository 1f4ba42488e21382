package flagset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Limits of the input. Flag sets of thousands of flags have a few MiB.
const (
	// MaxBytes is the size of a flag set.
	MaxBytes = 16 << 20
	// maxValues is the number of values in a set, including nested ones.
	maxValues = 1 << 20
	// maxDepth is how deep values may be nested.
	maxDepth = 200
)

// tree is a value of JSON that knows its line. The value is nil, bool, float64, string, []*tree or []entry.
type tree struct {
	line  int
	value any
}

// entry is one key of an object, in the order of the text.
type entry struct {
	key   string
	line  int
	value *tree
}

// plain returns the value without lines; of several equal keys, the last wins.
func (t *tree) plain() any {
	switch v := t.value.(type) {
	case []*tree:
		list := make([]any, len(v))
		for i, element := range v {
			list[i] = element.plain()
		}
		return list
	case []entry:
		object := make(map[string]any, len(v))
		for _, e := range v {
			object[e.key] = e.value.plain()
		}
		return object
	}
	return t.value
}

// get returns the value of a key, nil if there is none; of several equal keys, the last wins.
func (t *tree) get(key string) *tree {
	entries, _ := t.value.([]entry)
	for i := len(entries) - 1; i >= 0; i-- {
		if entries[i].key == key {
			return entries[i].value
		}
	}
	return nil
}

// reader counts the values that it reads, in any format.
type reader struct{ values int }

func (r *reader) count(line, depth int) error {
	if r.values++; r.values > maxValues {
		return &Problem{Line: line, Reason: fmt.Sprintf("more than %d values", maxValues)}
	}
	if depth > maxDepth {
		return &Problem{Line: line, Reason: fmt.Sprintf("nested deeper than %d", maxDepth)}
	}
	return nil
}

// jsonReader reads one JSON value.
type jsonReader struct {
	reader
	data    []byte
	decoder *json.Decoder
	line    int // of passed
	passed  int // bytes whose lines are counted
}

// readJSON also returns the number of values.
func readJSON(data []byte) (*tree, int, error) {
	r := &jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	t, err := r.read(0)
	if err == nil {
		if _, err = r.decoder.Token(); errors.Is(err, io.EOF) {
			return t, r.values, nil
		}
		if err == nil {
			err = &Problem{Line: r.here(), Reason: "there is text after the end of the flag set"}
		}
	}
	return nil, 0, r.fail(err)
}

func (r *jsonReader) fail(err error) error {
	var known *Problem
	if errors.As(err, &known) {
		return known
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if len(bytes.TrimSpace(r.data)) == 0 {
			return &Problem{Reason: "it is empty"}
		}
		return &Problem{Line: 1 + bytes.Count(r.data, []byte("\n")), Reason: "it is truncated"}
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return &Problem{Line: r.lineAt(int(syntax.Offset)), Reason: "bad JSON: " + err.Error()}
	}
	return &Problem{Line: r.here(), Reason: "bad JSON: " + err.Error()}
}

// here returns the line of the last token.
func (r *jsonReader) here() int { return r.lineAt(int(r.decoder.InputOffset())) }

func (r *jsonReader) lineAt(offset int) int {
	if offset = min(offset, len(r.data)); offset > r.passed {
		r.line += bytes.Count(r.data[r.passed:offset], []byte("\n"))
		r.passed = offset
	}
	return r.line
}

func (r *jsonReader) read(depth int) (*tree, error) {
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	t := &tree{line: r.here(), value: token}
	if err := r.count(t.line, depth); err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('['):
		t.value, err = r.list(depth)
	case json.Delim('{'):
		t.value, err = r.object(depth)
	}
	return t, err
}

func (r *jsonReader) list(depth int) ([]*tree, error) {
	list := []*tree{}
	for r.decoder.More() {
		element, err := r.read(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	_, err := r.decoder.Token()
	return list, err
}

func (r *jsonReader) object(depth int) ([]entry, error) {
	object := []entry{}
	for r.decoder.More() {
		token, err := r.decoder.Token()
		if err != nil {
			return nil, err
		}
		key, _ := token.(string)
		e := entry{key: key, line: r.here()}
		if e.value, err = r.read(depth + 1); err != nil {
			return nil, err
		}
		object = append(object, e)
	}
	_, err := r.decoder.Token()
	return object, err
}

// readYAML reads one YAML document that uses only the types of JSON.
func readYAML(data []byte) (*tree, int, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	if err := decoder.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			return &tree{line: 1}, 1, nil
		}
		return nil, 0, yamlProblem(err)
	}
	for {
		var more yaml.Node // an empty one is the end of a file that closes each document
		if err := decoder.Decode(&more); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, 0, yamlProblem(err)
		}
		if len(more.Content) > 0 && more.Content[0].ShortTag() != "!!null" {
			return nil, 0, &Problem{Line: more.Line, Reason: "there are several documents: a flag set is one"}
		}
	}
	r := new(yamlReader)
	t, err := r.read(&document, 0)
	return t, r.values, err
}

// yamlProblem extracts the line from the library's message: "yaml: line 3: ...".
func yamlProblem(err error) error {
	reason := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if rest, ok := strings.CutPrefix(reason, "line "); ok {
		if text, after, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(text); err == nil {
				line, reason = n, after
			}
		}
	}
	if strings.HasPrefix(reason, "found character that cannot start any token") {
		reason += ", such as a tab: lines are indented by spaces"
	}
	return &Problem{Line: line, Reason: "bad YAML: " + reason}
}

type yamlReader struct{ reader }

func (r *yamlReader) read(n *yaml.Node, depth int) (*tree, error) {
	if err := r.count(n.Line, depth); err != nil {
		return nil, err
	}
	t := &tree{line: n.Line}
	var err error
	switch n.Kind {
	case yaml.DocumentNode:
		return r.read(n.Content[0], depth)
	case yaml.AliasNode:
		return r.read(n.Alias, depth+1)
	case yaml.SequenceNode:
		t.value, err = r.list(n, depth)
	case yaml.MappingNode:
		t.value, err = r.object(n, depth)
	default:
		t.value, err = scalar(n)
	}
	return t, err
}

func (r *yamlReader) list(n *yaml.Node, depth int) ([]*tree, error) {
	list := make([]*tree, 0, len(n.Content))
	for _, element := range n.Content {
		t, err := r.read(element, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

func (r *yamlReader) object(n *yaml.Node, depth int) ([]entry, error) {
	object := make([]entry, 0, len(n.Content)/2)
	var merged []entry
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			return nil, &Problem{Line: key.Line, Reason: "a key must be plain text"}
		}
		if key.Tag == "!!merge" {
			more, err := r.merged(key, value, depth)
			if err != nil {
				return nil, err
			}
			merged = append(merged, more...)
			continue
		}
		t, err := r.read(value, depth+1)
		if err != nil {
			return nil, err
		}
		object = append(object, entry{key.Value, key.Line, t})
	}
	return withMerged(object, merged), nil
}

// withMerged adds merged keys that the object does not have itself; of several, the first wins.
func withMerged(object, merged []entry) []entry {
	if len(merged) == 0 {
		return object
	}
	said := map[string]bool{}
	for _, e := range object {
		said[e.key] = true
	}
	for _, e := range merged {
		if !said[e.key] {
			object, said[e.key] = append(object, e), true
		}
	}
	return object
}

// merged returns the entries of the objects that a << merges.
func (r *yamlReader) merged(key, value *yaml.Node, depth int) ([]entry, error) {
	t, err := r.read(value, depth+1)
	if err != nil {
		return nil, err
	}
	objects, ok := t.value.([]*tree)
	if !ok {
		objects = []*tree{t}
	}
	var all []entry
	for _, one := range objects {
		entries, ok := one.value.([]entry)
		if !ok {
			return nil, &Problem{Line: key.Line, Reason: "<< takes an object, or a list of objects"}
		}
		all = append(all, entries...)
	}
	return all, nil
}

func scalar(n *yaml.Node) (any, error) {
	var value any
	switch n.ShortTag() {
	case "!!null":
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			return nil, yamlProblem(err)
		}
		value = b
	case "!!int", "!!float":
		var f float64
		if err := n.Decode(&f); err != nil {
			return nil, yamlProblem(err)
		}
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, &Problem{Line: n.Line, Reason: n.Value + " is not a number in JSON"}
		}
		value = f
	case "!!str", "!!timestamp", "!!merge":
		value = n.Value
	default:
		return nil, &Problem{Line: n.Line, Reason: "there is no type " + n.ShortTag()}
	}
	return value, nil
}
