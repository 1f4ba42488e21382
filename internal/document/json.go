package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

type rawObject = json.RawMessage

// addJSON reads JSON values one after the other, and the elements of "items", of a top-level array, and of a
// snapshot's lists one by one.
func (b *Builder) addJSON(name string, in *lines) error {
	index := &lineIndex{input: in.reader, base: in.number + 1}
	r := &jsonReader{builder: b, file: name, index: index, decoder: json.NewDecoder(index)}
	for {
		err := r.document()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return r.fail(in, err)
		}
	}
}

type jsonReader struct {
	builder *Builder
	file    string
	index   *lineIndex
	decoder *json.Decoder
}

// here is the place of what comes next.
func (r *jsonReader) here() place {
	return place{file: r.file, line: r.index.line(r.decoder.InputOffset())}
}

func (r *jsonReader) fail(in *lines, err error) error {
	var placed *Error
	if errors.As(err, &placed) {
		return err
	}
	at := r.here()
	if errors.Is(err, errTooLarge) {
		in.number = at.line
		return in.fail(errTooLarge)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		at.line = r.index.last()
		return at.fail("the file is cut short: write it again", errors.New("bad JSON: it ends in the middle"))
	}
	return at.fail("it must be YAML or JSON as `kubectl get -o json` prints it", fmt.Errorf("bad JSON: %w", plainJSON(err)))
}

// document reads one value; io.EOF when there is none.
func (r *jsonReader) document() error {
	at := r.here()
	token, err := r.decoder.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return noEOF(r.object(at))
	case json.Delim('['):
		return noEOF(r.rest(r.builder.addObject))
	default:
		return r.builder.noObject(header{}, at)
	}
}

// noEOF keeps the end of the input within a value from looking like the end of the values.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// object reads the fields of a top-level object whose brace is already read.
func (r *jsonReader) object(at place) error {
	l := list{builder: r.builder, file: r.file}
	fields := map[string]json.RawMessage{}
	for r.decoder.More() {
		token, err := r.decoder.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		if err := r.field(key, fields, &l); err != nil {
			return err
		}
	}
	if _, err := r.decoder.Token(); err != nil {
		return err
	}
	raw, err := json.Marshal(fields)
	switch {
	case err != nil:
		return err
	case l.items:
		return l.end(raw, at)
	}
	return r.builder.addObject(raw, at)
}

// field reads one field: a list is read element by element where it is known what is in it.
func (r *jsonReader) field(key string, fields map[string]json.RawMessage, l *list) error {
	if s, ok := r.builder.snapshotSink(key); ok && isSnapshot(fields) {
		return r.elements(func(raw []byte, at place) error {
			at.silent = true
			return s.add(raw, at)
		})
	}
	if key == "items" {
		l.items = true
		return r.elements(l.add)
	}
	var raw json.RawMessage
	if err := r.decoder.Decode(&raw); err != nil {
		return err
	}
	fields[key] = raw
	return nil
}

// elements reads an array, or a null.
func (r *jsonReader) elements(add func([]byte, place) error) error {
	token, err := r.openArray()
	if err != nil || token == nil {
		return err
	}
	return r.rest(add)
}

// rest reads the elements of an array whose bracket is already read.
func (r *jsonReader) rest(add func([]byte, place) error) error {
	for r.decoder.More() {
		at := r.here()
		var raw json.RawMessage
		if err := r.decoder.Decode(&raw); err != nil {
			return err
		}
		if err := add(raw, at); err != nil {
			return err
		}
	}
	_, err := r.decoder.Token()
	return err
}

// openArray reads the bracket of an array; the token is nil for null.
func (r *jsonReader) openArray() (json.Token, error) {
	token, err := r.decoder.Token()
	if err != nil || token == nil || token == json.Delim('[') {
		return token, err
	}
	return nil, r.here().fail("", errors.New("a list is expected here"))
}

// lineIndex counts lines as they are read, and forgets those behind the last question.
type lineIndex struct {
	input    io.Reader
	offset   int64   // bytes read
	base     int     // line number at the start of newlines
	newlines []int64 // offsets of line ends that were not passed yet
}

func (x *lineIndex) Read(p []byte) (int, error) {
	n, err := x.input.Read(p)
	for i, c := range p[:n] {
		if c == '\n' {
			x.newlines = append(x.newlines, x.offset+int64(i))
		}
	}
	x.offset += int64(n)
	return n, err
}

// line is the number of the line at an offset; offsets must not decrease.
func (x *lineIndex) line(offset int64) int {
	passed, _ := slices.BinarySearch(x.newlines, offset+1) // a token's line end comes right after it
	x.newlines = slices.Delete(x.newlines, 0, passed)
	x.base += passed
	return x.base
}

func (x *lineIndex) last() int { return x.base + len(x.newlines) }

// isSnapshot reports whether the fields read so far say that this is a snapshot that can be read here.
func isSnapshot(fields map[string]json.RawMessage) bool {
	return string(fields["kind"]) == `"Snapshot"` && strings.Contains(string(fields["apiVersion"]), "theseus.dev/v1alpha1")
}
