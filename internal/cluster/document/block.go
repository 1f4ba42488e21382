package document

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// block turns YAML in the form that kubectl prints into JSON: mappings and lists in block style, plain and quoted
// scalars, literal text. It takes one pass over the text, where a parser of the whole language takes hundreds of times
// as long. It gives up (nothing is returned then) on all that it does not know for sure, which the whole parser reads.
type block struct {
	text    []byte // what comes after the current line
	raw     []byte // the current line as it is; nil at the end
	indent  int    // of what is left of the current line
	content []byte // what is left of it
	out     []byte
	depth   int
	// known are scalars that the whole parser was asked about, with their JSON.
	known map[string]string
}

const (
	maxDepth = 100  // of mappings and lists in one another
	maxKey   = 1000 // bytes; YAML has a bound of 1024
	maxKnown = 4096 // scalars
)

// JSON turns YAML in the form that kubectl prints, which Theseus writes too, into JSON. It is not ok where the text is in
// another form, or wrong, which is for a parser of the whole language to read.
func JSON(text []byte) (json []byte, ok bool) {
	return new(block).json(make([]byte, 0, len(text)), text)
}

// json appends the text as JSON to out; ok is false when it is not known for sure what the text means.
func (b *block) json(out, text []byte) (json []byte, ok bool) {
	if b.known == nil {
		b.known = map[string]string{}
	}
	b.text, b.out, b.depth = text, out, 0
	if len(text) == 0 || text[len(text)-1] != '\n' || !b.next() || b.raw == nil || !b.node(-1) || b.raw != nil {
		return out, false
	}
	return b.out, true
}

// next goes to the next line that is not blank; raw is nil when there is none. It fails on what needs the whole parser.
func (b *block) next() bool {
	for {
		if !b.line() {
			return true
		}
		b.content = bytes.TrimLeft(b.raw, " ")
		b.indent = len(b.raw) - len(b.content)
		b.content = bytes.TrimRight(b.content, " ")
		if len(b.content) > 0 {
			return b.plain()
		}
	}
}

// plain reports whether what is left of the line is no marker of documents, and of simple characters. It may be a comment,
// which is neither a node nor an entry; in quotes it is text.
func (b *block) plain() bool {
	marker := b.indent == 0 && (bytes.HasPrefix(b.content, []byte("---")) || bytes.HasPrefix(b.content, []byte("...")))
	return !marker && simple(b.content, false)
}

// line takes one line, blank or not; false at the end.
func (b *block) line() bool {
	if len(b.text) == 0 {
		b.raw, b.content, b.indent = nil, nil, -1
		return false
	}
	end := bytes.IndexByte(b.text, '\n') // the text ends with one
	b.raw, b.text = b.text[:end:end], b.text[end+1:]
	return true
}

// simple reports whether text is of characters that mean the same in YAML and in JSON; tabs may be left in.
func simple(text []byte, tabs bool) bool {
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c >= 0x20 && c < 0x7f, c == '\t' && tabs:
			i++
			continue
		case c < 0xc2:
			return false
		}
		r, size := utf8.DecodeRune(text[i:])
		// Other line breaks and marks of YAML's, and what it calls not printable.
		if r == utf8.RuneError || r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0xd800 && r < 0xe000 || r >= 0xfe00 {
			return false
		}
		i += size
	}
	return true
}

// node reads a value that begins on the current line, deeper than its parent.
func (b *block) node(parent int) bool {
	if b.depth++; b.depth > maxDepth {
		return false
	}
	defer func() { b.depth-- }()
	if dash(b.content) {
		return b.sequence(b.indent)
	}
	if _, _, ok := entry(b.content); ok {
		return b.mapping(b.indent)
	}
	return b.scalar(parent)
}

func dash(content []byte) bool {
	return len(content) > 0 && content[0] == '-' && (len(content) == 1 || content[1] == ' ')
}

// entry splits "key: value"; ok is false when the text is none.
func entry(content []byte) (key, value []byte, ok bool) {
	end := 0
	switch c := content[0]; c {
	case '{', '[', '#':
		return nil, nil, false
	case '"', '\'':
		if end = bytes.IndexByte(content[1:], c) + 2; end < 2 {
			return nil, nil, false
		}
		if end < len(content) && content[end] != ':' {
			return nil, nil, false
		}
	default:
		for ; end < len(content); end++ {
			if content[end] == ':' && (end+1 == len(content) || content[end+1] == ' ') {
				break
			}
		}
	}
	if end == 0 || end >= len(content) || content[end-1] == ' ' || end+1 < len(content) && content[end+1] != ' ' {
		return nil, nil, false
	}
	return content[:end], bytes.TrimLeft(content[end+1:], " "), true
}

func (b *block) mapping(indent int) bool {
	var few [16][]byte
	keys := few[:0]
	var many map[string]bool // once there are more than few
	b.out = append(b.out, '{')
	for first := true; b.indent == indent && !dash(b.content); first = false {
		key, value, ok := entry(b.content)
		if !ok {
			return false
		}
		if !first {
			b.out = append(b.out, ',')
		}
		from := len(b.out)
		escaped := key[0] == '"' && bytes.IndexByte(key, '\\') >= 0 // in one of several ways
		if len(key) > maxKey || escaped || string(key) == "<<" || !b.one(key) || b.out[from] != '"' {
			return false
		}
		key = b.out[from:]
		if many == nil && slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }) || many[string(key)] {
			return false
		}
		if keys = append(keys, key); len(keys) > len(few) {
			if many == nil {
				many = map[string]bool{}
				for _, k := range keys {
					many[string(k)] = true
				}
			}
			many[string(key)] = true
		}
		b.out = append(b.out, ':')
		if !b.value(value, indent, indent) {
			return false
		}
	}
	b.out = append(b.out, '}')
	return b.indent < indent || b.raw == nil
}

func (b *block) sequence(indent int) bool {
	b.out = append(b.out, '[')
	for first := true; b.indent == indent && dash(b.content); first = false {
		if !first {
			b.out = append(b.out, ',')
		}
		rest := bytes.TrimLeft(b.content[1:], " ")
		if len(rest) > 0 && rest[0] != '|' {
			b.indent += len(b.content) - len(rest)
			b.content = rest
			if !b.node(indent) {
				return false
			}
			continue
		}
		if !b.value(rest, indent, indent+1) {
			return false
		}
	}
	b.out = append(b.out, ']')
	// A list may stand as deep as the key that it belongs to; what follows it is the next key then.
	return b.indent <= indent
}

// value reads what follows a key or a dash on its line, and on the lines below that are deeper than parent; a list may
// begin at the depth list.
func (b *block) value(rest []byte, parent, list int) bool {
	switch {
	case len(rest) == 0:
		if !b.next() {
			return false
		}
		if b.indent > parent || b.indent == list && dash(b.content) {
			return b.node(parent)
		}
		b.out = append(b.out, "null"...)
		return true
	case rest[0] == '|':
		return b.literal(rest, parent)
	}
	b.content = rest
	return b.scalar(parent)
}

// literal reads text below "|".
func (b *block) literal(head []byte, parent int) bool {
	chomp := string(head[1:])
	if chomp != "" && chomp != "-" && chomp != "+" {
		return false
	}
	depth, blank := -1, 0
	b.out = append(b.out, '"')
	for {
		if !b.line() {
			break
		}
		content := bytes.TrimLeft(b.raw, " ")
		indent := len(b.raw) - len(content)
		if len(content) == 0 && (depth < 0 || indent <= depth) {
			if depth < 0 {
				return false
			}
			blank++
			continue
		}
		if depth < 0 && indent > parent {
			if content[0] == '\t' {
				return false // the whole parser takes it for an indentation, which no tab may be
			}
			depth = indent
		} else if depth >= 0 {
			if indent < depth {
				break
			}
			b.breaks(blank + 1)
		}
		if depth < 0 {
			return false // no text at all
		}
		blank = 0
		if !simple(b.raw[depth:], true) {
			return false
		}
		b.escape(b.raw[depth:])
	}
	switch {
	case depth < 0:
		return false
	case chomp == "":
		b.breaks(1)
	case chomp == "+":
		b.breaks(blank + 1)
	}
	b.out = append(b.out, '"')
	if b.raw == nil {
		return true
	}
	b.content = bytes.TrimLeft(b.raw, " ")
	b.indent = len(b.raw) - len(b.content)
	b.content = bytes.TrimRight(b.content, " ")
	return b.indent <= parent && b.plain()
}

func (b *block) breaks(n int) {
	for range n {
		b.out = append(b.out, `\n`...)
	}
}

// scalar reads the rest of the line, and the lines below that are deeper than parent.
func (b *block) scalar(parent int) bool {
	text := b.content
	for joined := false; ; joined = true {
		// A blank line would be a line break of the text.
		if rest := bytes.TrimLeft(b.text, " "); len(rest) > 0 && rest[0] == '\n' {
			after := bytes.TrimLeft(rest, " \n")
			if len(after) > 0 && len(rest)-len(after)-bytes.LastIndexByte(rest[:len(rest)-len(after)], '\n')-1 > parent {
				return false
			}
		}
		if !b.next() {
			return false
		}
		if b.raw == nil || b.indent <= parent {
			return b.one(text)
		}
		switch text[0] {
		case '{', '[':
			return false
		case '"':
			if escapes(text) {
				return false
			}
		case '\'':
		default:
			if _, _, is := entry(b.content); is || b.content[0] == '#' {
				return false
			}
		}
		if !joined {
			text = slices.Clip(slices.Clone(text))
		}
		text = append(append(text, ' '), b.content...)
	}
}

// escapes reports whether the end of text escapes what comes next, which is the end of the line.
func escapes(text []byte) bool {
	return (len(text)-len(bytes.TrimRight(text, `\`)))%2 == 1
}

// one appends the JSON of one scalar, or of a flow collection on one line.
func (b *block) one(text []byte) bool {
	switch c := text[0]; {
	case c == '"':
		return b.double(text)
	case c == '\'':
		return b.single(text)
	case len(text) == 2 && (string(text) == "{}" || string(text) == "[]"):
		b.out = append(b.out, text...)
		return true
	case c == '{' || c == '[':
		return closes(text) && b.ask(text)
	case strings.IndexByte("?:,]}#&*!|>%@`", c) >= 0 || dash(text):
		return false
	case bytes.Contains(text, []byte(" #")) || bytes.Contains(text, []byte(": ")) || text[len(text)-1] == ':',
		bytes.HasPrefix(text, []byte("---")), bytes.HasPrefix(text, []byte("...")):
		return false
	}
	switch kindOf(text) {
	case isText:
		b.out = append(b.out, '"')
		b.escape(text)
		b.out = append(b.out, '"')
		return true
	case isJSON:
		b.out = append(b.out, text...)
		return true
	}
	return b.ask(text)
}

// closes reports whether a flow collection ends where the text does, and not before.
func closes(text []byte) bool {
	depth := 0
	for i, c := range text {
		switch c {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i == len(text)-1
			}
		case '"', '\'', '#':
			return false // a bracket may be part of what is quoted
		case '&', '*':
			return false // aliases are weighed in the whole document
		}
	}
	return false
}

type scalarKind int

const (
	unsure scalarKind = iota
	isText
	isJSON // the same in JSON
)

// kindOf says what a plain scalar is by YAML 1.1, where that is beyond doubt.
func kindOf(text []byte) scalarKind {
	switch c := text[0]; {
	case c == '/':
		return isText
	case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		switch {
		case len(text) > len("false"):
			return isText
		case string(text) == "true" || string(text) == "false" || string(text) == "null":
			return isJSON
		}
		switch strings.ToLower(string(text)) {
		case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
			return unsure
		}
		return isText
	case c >= '0' && c <= '9':
		return kindOfDigits(text)
	}
	return unsure
}

// kindOfDigits is about what begins with a digit: numbers, addresses, quantities.
func kindOfDigits(text []byte) scalarKind {
	dots, digits := 0, 0
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c == '.':
			dots++
		case c == '/' || strings.IndexByte("GKMPkmsvw", c) >= 0:
			return isText // no number, and no time, has these
		}
	}
	switch {
	case digits == len(text) && len(text) <= 18 && (text[0] != '0' || len(text) == 1):
		return isJSON
	case digits+dots == len(text) && dots > 1:
		return isText
	}
	return unsure
}

// ask lets the whole parser read one scalar or collection.
func (b *block) ask(text []byte) bool {
	if json, ok := b.known[string(text)]; ok {
		b.out = append(b.out, json...)
		return true
	}
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		return false
	}
	json = bytes.TrimSpace(json)
	if len(text) <= 64 && len(b.known) < maxKnown {
		b.known[string(text)] = string(json)
	}
	b.out = append(b.out, json...)
	return true
}

// double reads "text"; escapes that JSON has too are taken as they are, and others that kubectl prints are asked about.
func (b *block) double(text []byte) bool {
	if len(text) < 2 || text[len(text)-1] != '"' {
		return false
	}
	inner, same := text[1:len(text)-1], true
	for i := 0; i < len(inner); i++ {
		switch inner[i] {
		case '"':
			return false
		case '\\':
			if i++; i == len(inner) || strings.IndexByte(`"\/bfnrt uU`, inner[i]) < 0 {
				return false
			}
			same = same && strings.IndexByte(" uU", inner[i]) < 0
		}
	}
	if !same {
		return b.ask(text)
	}
	b.out = append(b.out, text...)
	return true
}

// single reads 'text', in which two quotes are one.
func (b *block) single(text []byte) bool {
	if len(text) < 2 || text[len(text)-1] != '\'' {
		return false
	}
	inner := text[1 : len(text)-1]
	b.out = append(b.out, '"')
	for {
		quote := bytes.IndexByte(inner, '\'')
		if quote < 0 {
			break
		}
		if quote+1 == len(inner) || inner[quote+1] != '\'' {
			return false
		}
		b.escape(inner[:quote+1])
		inner = inner[quote+2:]
	}
	b.escape(inner)
	b.out = append(b.out, '"')
	return true
}

// escape appends text as it stands between the quotes of JSON.
func (b *block) escape(text []byte) {
	for {
		at := bytes.IndexAny(text, "\"\\\t")
		if at < 0 {
			b.out = append(b.out, text...)
			return
		}
		b.out = append(b.out, text[:at]...)
		if text[at] == '\t' {
			b.out = append(b.out, `\t`...)
		} else {
			b.out = append(b.out, '\\', text[at])
		}
		text = text[at+1:]
	}
}
