package canonical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// former writes canonical forms. It copies what it reads, and sorts the members of each object in place: no tree of the
// document is built, since the plan of a large cluster, and every record of a journal, is hashed whenever it is read.
type former struct {
	in, out []byte
	at      int // in in
	members []member
	sorted  []byte // of one object
}

// member is a member of an object whose end is not reached yet.
type member struct {
	key      []byte
	from, to int // in out, without commas
}

// form is the canonical form of a value, until the next call.
func (f *former) form(value any) ([]byte, error) {
	data, err := json.Marshal(value) // valid, and without spaces
	if err != nil {
		return nil, err
	}
	f.in, f.at, f.out, f.members = data, 0, slices.Grow(f.out[:0], len(data)), f.members[:0]
	if err := f.value(0); err != nil {
		return nil, err
	}
	return f.out, nil
}

func (f *former) value(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("JSON nested deeper than %d levels", maxDepth)
	}
	switch f.in[f.at] {
	case '{':
		return f.object(depth)
	case '[':
		return f.array(depth)
	case '"':
		_, err := f.text()
		return err
	case 't', 'n':
		f.copy(len("true"))
		return nil
	case 'f':
		f.copy(len("false"))
		return nil
	}
	return f.number()
}

func (f *former) copy(n int) {
	f.out = append(f.out, f.in[f.at:f.at+n]...)
	f.at += n
}

func (f *former) array(depth int) error {
	f.copy(1)
	for f.in[f.at] != ']' {
		if f.in[f.at] == ',' {
			f.copy(1)
		}
		if err := f.value(depth + 1); err != nil {
			return err
		}
	}
	f.copy(1)
	return nil
}

func (f *former) object(depth int) error {
	first := len(f.members)
	f.copy(1)
	begin := len(f.out)
	for f.in[f.at] != '}' {
		if f.in[f.at] == ',' {
			f.copy(1)
		}
		from := len(f.out)
		key, err := f.text()
		if err != nil {
			return err
		}
		f.copy(1) // the colon
		if err := f.value(depth + 1); err != nil {
			return err
		}
		f.members = append(f.members, member{key, from, len(f.out)})
	}
	err := f.sort(begin, f.members[first:])
	f.members = f.members[:first]
	f.copy(1)
	return err
}

// sort orders the members of an object, which begin at an offset of out.
func (f *former) sort(begin int, members []member) error {
	byKey := func(a, b member) int { return bytes.Compare(a.key, b.key) }
	sorted := slices.IsSortedFunc(members, byKey)
	if !sorted {
		slices.SortFunc(members, byKey)
	}
	for i := 1; i < len(members); i++ {
		if bytes.Equal(members[i-1].key, members[i].key) {
			return twice(string(members[i].key))
		}
	}
	if sorted {
		return nil
	}
	f.sorted = f.sorted[:0]
	for i, one := range members {
		if i > 0 {
			f.sorted = append(f.sorted, ',')
		}
		f.sorted = append(f.sorted, f.out[one.from:one.to]...)
	}
	copy(f.out[begin:], f.sorted)
	return nil
}

// text writes a string in the form in which json.Marshal does, and returns what it means.
func (f *former) text() ([]byte, error) {
	end, plain := f.at+1, true
	for ; f.in[end] != '"'; end++ {
		switch c := f.in[end]; {
		case c == '\\':
			plain = false
			end++
		case c >= 0x80 || c == '<' || c == '>' || c == '&':
			plain = false
		}
	}
	token := f.in[f.at : end+1]
	f.at = end + 1
	if plain {
		f.out = append(f.out, token...)
		return token[1 : len(token)-1], nil
	}
	var meaning string
	if err := json.Unmarshal(token, &meaning); err != nil {
		return nil, err
	}
	written, err := json.Marshal(meaning)
	f.out = append(f.out, written...)
	return []byte(meaning), err
}

func (f *former) number() error {
	end := f.at
	whole := true
	for ; end < len(f.in) && f.in[end] != ',' && f.in[end] != ']' && f.in[end] != '}'; end++ {
		whole = whole && (f.in[end] == '-' || f.in[end] >= '0' && f.in[end] <= '9')
	}
	token := f.in[f.at:end]
	if whole && len(token) < 19 && token[0] != '-' { // an int64 that is written as it is
		f.copy(len(token))
		return nil
	}
	f.at = end
	written, err := json.Marshal(number(json.Number(token)))
	f.out = append(f.out, written...)
	return err
}
