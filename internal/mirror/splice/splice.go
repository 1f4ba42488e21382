// Package splice edits YAML in place: it replaces only the changed parts of the text, so that comments, order, blank
// lines, quotes and unknown fields are preserved. After the edits it parses the text again and compares it with the
// intended result, node by node; it never returns a text that differs.
//
// It edits block style with one field per line, as kops, kubectl and people write it. It refuses to edit other styles
// (braces on one line, anchors, tags), and names the line.
package splice

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/theseus-cni/theseus/internal/safeio/fault"
)

// MaxInput is the size of a text in bytes. No cluster's configuration is near it.
const MaxInput = 16 << 20

// Error is an error in a text, with its position.
type Error = fault.Error

// File is a text with one or more YAML documents, and its edits.
type File struct {
	Name  string
	text  []byte
	lines []int // the offset of each line
	docs  []*document
	edits []edit
	spans map[*yaml.Node][2]int // where a scalar stood whose value is another by now
	err   error                 // the first edit that could not be made
}

type document struct {
	root       *yaml.Node
	start, end int // offsets, the separator included
	gone       bool
}

// edit replaces text[start:end].
type edit struct {
	start, end int
	with       string
}

const blockAdvice = "write the field as a block, one field a line, as kops get -o yaml and kubectl get -o yaml print it"

// Parse parses a text. It refuses aliases and merge keys, because an edit in one place would change another.
func Parse(name string, text []byte) (*File, error) {
	f := &File{Name: name, text: text, lines: []int{0}, spans: map[*yaml.Node][2]int{}}
	if len(text) > MaxInput {
		return nil, &Error{File: name, Err: fmt.Errorf("larger than %d MiB", MaxInput>>20),
			Advice: "give the configuration of one cluster alone"}
	}
	for i, b := range text {
		if b == '\n' {
			f.lines = append(f.lines, i+1)
		}
	}
	if err := f.readable(); err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			line, what := yamlError(err)
			return nil, &Error{File: name, Line: line, Err: errors.New(what),
				Advice: "the file is not YAML from this line on"}
		}
		if len(node.Content) == 0 || node.Content[0].Kind == yaml.ScalarNode && node.Content[0].ShortTag() == "!!null" {
			continue
		}
		if err := f.plainTree(node.Content[0], 0); err != nil {
			return nil, err
		}
		f.docs = append(f.docs, &document{root: node.Content[0]})
	}
	f.bound()
	return f, nil
}

// readable refuses texts whose lines YAML counts otherwise than editors do.
func (f *File) readable() error {
	for i, line := range bytes.SplitAfter(f.text, []byte("\n")) {
		body := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		switch {
		case !utf8.Valid(body):
			return &Error{File: f.Name, Line: i + 1, Err: errors.New("not UTF-8"), Advice: "save the file as UTF-8"}
		case bytes.ContainsAny(body, "\r\u0085\u2028\u2029\ufeff"):
			return &Error{File: f.Name, Line: i + 1, Err: errors.New(
				"a line separator or byte order mark inside of the line"), Advice: "save the file with plain line ends"}
		}
	}
	return nil
}

// maxDepth bounds how deep a text may be nested.
const maxDepth = 100

func (f *File) plainTree(node *yaml.Node, depth int) error {
	switch {
	case depth > maxDepth:
		return &Error{File: f.Name, Line: node.Line, Err: fmt.Errorf("nested deeper than %d", maxDepth),
			Advice: "this is no configuration of a cluster"}
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		return &Error{File: f.Name, Line: node.Line, Err: errors.New(
			"an anchor or alias: an edit in one place would change another"), Advice: "write it out in full"}
	}
	if last := len(f.lines); node.Line > last { // a null that is left out at the end has its place behind the text
		node.Line, node.Column = last, utf8.RuneCount(f.text[f.lines[last-1]:])+1
	}
	if node.Kind == yaml.MappingNode {
		seen := map[string]bool{}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key := node.Content[i]
			if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
				return &Error{File: f.Name, Line: key.Line, Err: errors.New("a key that is not a word"),
					Advice: "write it out in full"}
			}
			if seen[key.Value] {
				return &Error{File: f.Name, Line: key.Line, Err: fmt.Errorf("%s stands here twice", key.Value),
					Advice: "remove one of them"}
			}
			seen[key.Value] = true
		}
	}
	for _, child := range node.Content {
		if err := f.plainTree(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// bound finds where each document begins and ends: at lines with a separator, or after the last content.
func (f *File) bound() {
	for i, doc := range f.docs {
		if i == 0 {
			continue
		}
		line := doc.root.Line - 1
		for line > 0 && !separator(f.lineText(line)) {
			line--
		}
		doc.start = f.lines[line]
		f.docs[i-1].end = doc.start
	}
	if n := len(f.docs); n > 0 {
		f.docs[n-1].end = len(f.text)
	}
}

func separator(line string) bool { return line == "---" || strings.HasPrefix(line, "--- ") }

// lineText is a line, counted from 0, without its end.
func (f *File) lineText(line int) string {
	end := len(f.text)
	if line+1 < len(f.lines) {
		end = f.lines[line+1]
	}
	return strings.TrimRight(string(f.text[f.lines[line]:end]), "\r\n")
}

// Roots returns the remaining documents, in order.
func (f *File) Roots() []*yaml.Node {
	var roots []*yaml.Node
	for _, doc := range f.docs {
		if !doc.gone {
			roots = append(roots, doc.root)
		}
	}
	return roots
}

func (f *File) refuse(node *yaml.Node, format string, args ...any) {
	if f.err == nil {
		f.err = &Error{File: f.Name, Line: node.Line, Err: fmt.Errorf(format, args...), Advice: blockAdvice}
	}
}

// Err returns the error of the first edit that could not be made.
func (f *File) Err() error { return f.err }

// offset is where a node begins.
func (f *File) offset(node *yaml.Node) int {
	at := f.lines[node.Line-1]
	for range node.Column - 1 {
		_, size := utf8.DecodeRune(f.text[at:])
		at += size
	}
	return at
}

// splice keeps an edit. Edits inside of it are dropped, because their text is replaced.
func (f *File) splice(start, end int, with string) {
	f.edits = slices.DeleteFunc(f.edits, func(e edit) bool {
		return start <= e.start && e.end <= end && (e.start < e.end || start < e.start && e.end < end)
	})
	f.edits = append(f.edits, edit{start, end, with})
}

// Bytes returns the edited text after verifying it.
func (f *File) Bytes() ([]byte, error) {
	if f.err != nil {
		return nil, f.err
	}
	// Of two edits at one place the insertion comes first; insertions keep their order.
	slices.SortStableFunc(f.edits, func(a, b edit) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return a.end - b.end
	})
	var out bytes.Buffer
	at := 0
	for _, e := range f.edits {
		if e.start < at {
			return nil, &Error{File: f.Name, Line: f.lineOf(e.start), Err: errors.New("two edits of one place"),
				Advice: blockAdvice}
		}
		out.Write(f.text[at:e.start])
		out.WriteString(e.with)
		at = e.end
	}
	out.Write(f.text[at:])
	return out.Bytes(), f.prove(out.Bytes())
}

func (f *File) lineOf(offset int) int {
	line, found := slices.BinarySearch(f.lines, offset)
	if found {
		line++
	}
	return line
}

// prove reads the edited text again and compares it with the tree that the edits made.
func (f *File) prove(text []byte) error {
	again, err := Parse(f.Name, text)
	if err != nil {
		return &Error{File: f.Name, Err: fmt.Errorf("cannot be edited safely: %w", err), Advice: blockAdvice}
	}
	want, got := f.Roots(), again.Roots()
	if len(want) != len(got) {
		return &Error{File: f.Name, Err: fmt.Errorf("cannot be edited safely: %d documents instead of %d",
			len(got), len(want)), Advice: blockAdvice}
	}
	for i := range want {
		if node := differs(want[i], got[i]); node != nil {
			return &Error{File: f.Name, Line: node.Line, Err: errors.New("cannot be edited safely here"),
				Advice: blockAdvice}
		}
	}
	return nil
}

// differs finds the first node of want that got has not; nil if both say the same.
func differs(want, got *yaml.Node) *yaml.Node {
	if want.Kind != got.Kind || want.Value != got.Value || want.ShortTag() != got.ShortTag() ||
		len(want.Content) != len(got.Content) {
		return want
	}
	for i := range want.Content {
		if node := differs(want.Content[i], got.Content[i]); node != nil {
			return node
		}
	}
	return nil
}

// yamlError cuts the line out of an error of the parser.
func yamlError(err error) (line int, what string) {
	what = strings.TrimPrefix(err.Error(), "yaml: ")
	if _, scanErr := fmt.Sscanf(what, "line %d:", &line); scanErr == nil {
		_, what, _ = strings.Cut(what, ": ")
	}
	return line, what
}
