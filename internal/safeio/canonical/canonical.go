// Package canonical gives JSON one form: documents with the same meaning have the same bytes, and so the same hash.
// Keys are sorted, and numbers are written in one way. A document with a duplicate key is refused, since readers differ
// in which value they take.
package canonical

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strconv"
)

// maxDepth bounds the nesting of a document, far above that of any Kubernetes object.
const maxDepth = 1000

// JSON is the canonical form of a value that can be marshaled, without a line break at the end.
func JSON(value any) ([]byte, error) {
	var f former
	return f.form(value)
}

// Append appends the canonical form of a value.
func Append(to []byte, value any) ([]byte, error) {
	var f former
	data, err := f.form(value)
	return append(to, data...), err
}

// Hash is the SHA-256, in hex, of the canonical forms of values, each on a line of its own. It holds one at a time.
func Hash(values iter.Seq[any]) (string, error) {
	var f former
	sum := sha256.New()
	for value := range values {
		listed, is := value.(Listed)
		if !is {
			listed.Object = value
		}
		if err := f.write(sum, listed); err != nil {
			return "", err
		}
		sum.Write([]byte{'\n'})
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Listed is an object of which some lists are written entry by entry, so that they are never held as a whole. They
// replace members of the same keys.
type Listed struct {
	Object any
	Lists  map[string]iter.Seq[any]
}

// write writes the canonical form of an object with its lists.
func (f *former) write(to io.Writer, of Listed) error {
	whole, err := f.form(of.Object)
	if err != nil || len(of.Lists) == 0 {
		_, _ = to.Write(whole) // a hash takes everything
		return err
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(whole, &members); err != nil {
		return err
	}
	for key := range of.Lists {
		members[key] = nil
	}
	before := "{"
	for _, key := range slices.Sorted(maps.Keys(members)) {
		name, _ := json.Marshal(key) // a string
		_, _ = fmt.Fprintf(to, "%s%s:%s", before, name, members[key])
		before = ","
		if list := of.Lists[key]; list != nil {
			if err := f.list(to, list); err != nil {
				return err
			}
		}
	}
	_, _ = io.WriteString(to, "}")
	return nil
}

func (f *former) list(to io.Writer, entries iter.Seq[any]) error {
	before := ""
	_, _ = io.WriteString(to, "[")
	for entry := range entries {
		data, err := f.form(entry)
		if err != nil {
			return err
		}
		_, _ = io.WriteString(to, before)
		_, _ = to.Write(data)
		before = ","
	}
	_, _ = io.WriteString(to, "]")
	return nil
}

// Same reports whether two JSON documents have the same meaning. Empty data only equals empty data, and invalid JSON
// equals nothing.
func Same(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	left, errLeft := JSON(a)
	right, errRight := JSON(b)
	return errLeft == nil && errRight == nil && bytes.Equal(left, right)
}

// Once returns an error if data is not one JSON document, or has a duplicate key in an object. It builds no tree of the
// document.
func Once(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := once(decoder, 0); err != nil {
		return err
	}
	return end(decoder)
}

func once(decoder *json.Decoder, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("JSON nested deeper than %d levels", maxDepth)
	}
	token, err := decoder.Token()
	open, container := token.(json.Delim)
	if err != nil || !container {
		return err
	}
	seen := map[string]bool{}
	for decoder.More() {
		if open == '{' {
			token, err := decoder.Token()
			if err != nil {
				return err
			}
			key := token.(string) // the decoder accepts nothing else here
			if seen[key] {
				return twice(key)
			}
			seen[key] = true
		}
		if err := once(decoder, depth+1); err != nil {
			return err
		}
	}
	_, err = decoder.Token()
	return err
}

func twice(key string) error { return fmt.Errorf("duplicate key %q in an object", key) }

// end returns an error if more data follows.
func end(decoder *json.Decoder) error {
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the end of the JSON document")
	}
	return nil
}

// number reads a number as Kubernetes does: as int64 if it is one, else as float64. So a document has the same form
// before and after it passed through an API server. A float without a fraction equals the integer.
func number(n json.Number) any {
	if whole, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return whole
	}
	float, err := n.Float64()
	if err != nil {
		return n // out of range: keep its text
	}
	if whole := int64(float); float > -1<<53 && float < 1<<53 && float64(whole) == float {
		return whole
	}
	return float
}
