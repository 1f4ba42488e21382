package document

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/theseus-cni/theseus/internal/safeio/bounded"
)

type rawObject = json.RawMessage

// addJSON reads a sequence of JSON values. It reads the elements of "items", of a top-level array, and of a snapshot's
// lists one by one.
func (b *Builder) addJSON(name string, in *lines) error {
	r := &jsonReader{builder: b, file: name, input: in.reader, line: in.number + 1}
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

// jsonReader splits JSON by its brackets and strings only. The inside of a value is checked when it is decoded.
type jsonReader struct {
	builder *Builder
	file    string
	input   *bufio.Reader
	line    int    // of the next byte
	buffer  []byte // of value, reused
}

// syntax is an error at the position of the next byte.
type syntax string

func (s syntax) Error() string { return string(s) }

func (r *jsonReader) here() place { return place{file: r.file, line: r.line} }

func (r *jsonReader) fail(in *lines, err error) error {
	var placed *Error
	at := r.here()
	switch {
	case errors.As(err, &placed):
		return err
	case errors.Is(err, errTooLarge):
		in.number = at.line
		return in.fail(err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return at.fail("the file is truncated: write it again", errors.New("bad JSON: it is truncated"))
	}
	return at.fail("it must be YAML or JSON as `kubectl get -o json` prints it",
		fmt.Errorf("bad JSON: %w", plainJSON(err)))
}

// document reads one value; io.EOF if there is none.
func (r *jsonReader) document() error {
	first, err := r.peek()
	if err != nil {
		return err
	}
	at := r.here()
	switch first {
	case '{':
		return noEOF(r.object(at))
	case '[':
		return noEOF(r.elements(r.builder.addObject))
	}
	if _, err := r.value(); err != nil {
		return noEOF(err)
	}
	return r.builder.noObject(header{}, at)
}

// noEOF turns an end of the input inside a value into an error that is not io.EOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// object reads a top-level object.
func (r *jsonReader) object(at place) error {
	l := list{builder: r.builder, file: r.file}
	fields := map[string]json.RawMessage{}
	err := r.members('{', '}', func() error {
		raw, err := r.value()
		if err != nil {
			return err
		}
		var key string
		if err := json.Unmarshal(raw, &key); err != nil {
			return syntax("expected the name of a field")
		}
		if err := r.expect(':', "colon"); err != nil {
			return err
		}
		return r.field(key, fields, &l)
	})
	if err != nil {
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

// field reads one field: a list element by element, if the type of its elements is known.
func (r *jsonReader) field(key string, fields map[string]json.RawMessage, l *list) error {
	if s, ok := r.builder.snapshotSink(key); ok && isSnapshot(fields) {
		return r.elements(func(raw []byte, at place) error {
			at.silent = true
			return s.add(raw, at)
		})
	}
	if key == "items" {
		l.items = true
		l.apiVersion, l.kind = textOf(fields["apiVersion"]), textOf(fields["kind"])
		return r.elements(l.add)
	}
	at := r.here()
	raw, err := r.value()
	if err != nil {
		return err
	}
	if !json.Valid(raw) {
		return invalid(raw, at)
	}
	fields[key] = bytes.Clone(raw)
	return nil
}

// invalid returns the error of a value, with its position in the value.
func invalid(raw []byte, at place) error {
	var nothing json.RawMessage
	err := json.Unmarshal(raw, &nothing)
	var wrong *json.SyntaxError
	if errors.As(err, &wrong) {
		at.line += bytes.Count(raw[:min(wrong.Offset, int64(len(raw)))], []byte("\n"))
	}
	return at.fail("it must be YAML or JSON as `kubectl get -o json` prints it",
		fmt.Errorf("bad JSON: %w", plainJSON(err)))
}

// textOf decodes a JSON string; empty for anything else.
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// elements reads an array, or a null. The argument of add is only valid until add returns.
func (r *jsonReader) elements(add func([]byte, place) error) error {
	first, err := r.peek()
	if err != nil {
		return err
	}
	if first != '[' {
		at := r.here()
		if raw, err := r.value(); err != nil || string(raw) == "null" {
			return err
		}
		return at.fail("", errors.New("expected a list"))
	}
	return r.members('[', ']', func() error {
		at := r.here()
		raw, err := r.value()
		if err != nil {
			return err
		}
		err = add(raw, at)
		if err != nil && !json.Valid(raw) {
			return invalid(raw, at)
		}
		return err
	})
}

// members reads comma-separated members between two brackets.
func (r *jsonReader) members(from, to byte, member func() error) error {
	if err := r.expect(from, string(from)); err != nil {
		return err
	}
	for first := true; ; first = false {
		next, err := r.peek()
		if err != nil {
			return err
		}
		if next == to {
			_, err := r.input.Discard(1)
			return err
		}
		if !first {
			if err := r.expect(',', "comma"); err != nil {
				return err
			}
			if _, err := r.peek(); err != nil {
				return err
			}
		}
		if err := member(); err != nil {
			return err
		}
	}
}

func (r *jsonReader) expect(c byte, name string) error {
	next, err := r.peek()
	if err != nil {
		return err
	}
	if next != c {
		return syntax("expected " + name)
	}
	_, err = r.input.Discard(1)
	return err
}

// peek skips white space and returns the next byte without consuming it.
func (r *jsonReader) peek() (byte, error) {
	for {
		c, err := r.input.ReadByte()
		if err != nil {
			return 0, err
		}
		switch c {
		case '\n':
			r.line++
		case ' ', '\t', '\r':
		default:
			return c, r.input.UnreadByte()
		}
	}
}

// value reads a whole value as it is, valid until the next call.
func (r *jsonReader) value() ([]byte, error) {
	if _, err := r.peek(); err != nil {
		return nil, err
	}
	r.buffer = r.buffer[:0]
	var s splitter
	for {
		if _, err := r.input.Peek(1); errors.Is(err, io.EOF) && s.atom {
			return r.buffer, nil
		} else if err != nil {
			return nil, err
		}
		chunk, _ := r.input.Peek(r.input.Buffered())
		n, done := s.scan(chunk)
		if len(r.buffer)+n > MaxObject {
			return nil, r.here().fail("", fmt.Errorf("one object is larger than %d MiB", MaxObject>>20))
		}
		if s.deepest > bounded.MaxDepth {
			return nil, r.here().fail("", fmt.Errorf("the text is nested more than %d deep", bounded.MaxDepth))
		}
		r.buffer = append(r.buffer, chunk[:n]...)
		r.line += bytes.Count(chunk[:n], []byte("\n"))
		if _, err := r.input.Discard(n); err != nil {
			return nil, err
		}
		if done {
			if len(r.buffer) == 0 {
				return nil, syntax("expected a value")
			}
			return r.buffer, nil
		}
	}
}

// splitter finds the end of a value.
type splitter struct {
	depth, deepest  int
	quoted, escaped bool
	atom            bool // a number, true, false, null: it ends before a byte that cannot be part of it
}

// scan returns the number of bytes that belong to the value, and whether the value ends there.
func (s *splitter) scan(chunk []byte) (int, bool) {
	for i, c := range chunk {
		switch {
		case s.escaped:
			s.escaped = false
		case s.quoted:
			s.escaped, s.quoted = c == '\\', c != '"'
			if !s.quoted && s.depth == 0 {
				return i + 1, true
			}
		case s.atom:
			if strings.IndexByte(",:]}\"[{ \t\r\n", c) >= 0 {
				return i, true
			}
		case c == '"':
			s.quoted = true
		case c == '{', c == '[':
			s.depth++
			s.deepest = max(s.deepest, s.depth)
		case c == '}', c == ']':
			if s.depth--; s.depth <= 0 {
				return i + min(s.depth+1, 1), true
			}
		case s.depth == 0:
			if c == ',' || c == ':' {
				return i, true
			}
			s.atom = true
		}
	}
	return len(chunk), false
}

// isSnapshot reports whether the fields read so far identify a snapshot of a supported version.
func isSnapshot(fields map[string]json.RawMessage) bool {
	return string(fields["kind"]) == `"Snapshot"` &&
		strings.Contains(string(fields["apiVersion"]), "theseus.dev/v1alpha1")
}
