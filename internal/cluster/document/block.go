package document

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

// block converts YAML as kubectl prints it into JSON: mappings and lists in block style, plain and quoted scalars,
// literal text. It needs a single pass over the text and is hundreds of times faster than a full YAML parser. If it is
// not sure of the meaning of any part, it gives up and returns nothing; then the full parser reads the text.
type block struct {
	text    []byte // the text after the current line
	raw     []byte // the current line, unchanged; nil at the end
	indent  int    // of the rest of the current line
	content []byte // the rest of the current line
	out     []byte
	depth   int
	// known caches scalars that the full parser converted, with their JSON.
	known map[string]string
}

const (
	maxDepth = 100  // of nested mappings and lists
	maxKey   = 1000 // bytes; YAML allows 1024
	maxKnown = 4096 // scalars
)

// JSON converts YAML as kubectl and Theseus print it into JSON. It is not ok if the text has another form or is
// invalid; then use a full YAML parser.
func JSON(text []byte) (json []byte, ok bool) {
	return new(block).json(make([]byte, 0, len(text)), text)
}

// json appends the text as JSON to out; ok is false if the meaning of the text is not certain.
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

// next moves to the next line that is not blank; raw is nil if there is none. It fails on lines that need the full
// parser.
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

// plain reports whether the rest of the line is not a document marker and has only simple characters. It may be a
// comment, which is neither a node nor an entry, or text if it is quoted.
func (b *block) plain() bool {
	marker := b.indent == 0 && (bytes.HasPrefix(b.content, []byte("---")) || bytes.HasPrefix(b.content, []byte("...")))
	return !marker && simple(b.content, false)
}

// line reads one line, blank or not; false at the end.
func (b *block) line() bool {
	if len(b.text) == 0 {
		b.raw, b.content, b.indent = nil, nil, -1
		return false
	}
	end := bytes.IndexByte(b.text, '\n') // the text ends with one
	b.raw, b.text = b.text[:end:end], b.text[end+1:]
	return true
}

// simple reports whether all characters of text mean the same in YAML and in JSON; tabs are allowed.
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
		// YAML's other line breaks and special characters, and characters that it does not consider printable.
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

// entry splits "key: value"; ok is false if the text is not an entry.
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
	var many map[string]bool // only used for large mappings
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
		escaped := key[0] == '"' && bytes.IndexByte(key, '\\') >= 0 // the same key can be escaped in several ways
		if len(key) > maxKey || escaped || string(key) == "<<" || !b.one(key) || b.out[from] != '"' {
			return false
		}
		key = b.out[from:]
		if many == nil && slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) }) ||
			many[string(key)] {
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
	// A list may have the same indentation as its key; the next key then follows it.
	return b.indent <= indent
}

// value reads the text after a key or a dash: on the same line, and on the following lines that are deeper than parent;
// a list may begin at the depth list.
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

// literal reads a block scalar after "|".
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
				return false // the full parser treats it as indentation, in which tabs are not allowed
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

// scalar reads the rest of the line, and the following lines that are deeper than parent.
func (b *block) scalar(parent int) bool {
	text := b.content
	for joined := false; ; joined = true {
		// A blank line would be a line break in the text.
		if rest := bytes.TrimLeft(b.text, " "); len(rest) > 0 && rest[0] == '\n' {
			after := bytes.TrimLeft(rest, " \n")
			if len(after) > 0 && len(rest)-len(after)-bytes.LastIndexByte(rest[:len(rest)-len(after)],
				'\n')-1 > parent {
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

// escapes reports whether the text ends in a backslash that escapes the end of the line.
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

// closes reports whether a flow collection ends exactly at the end of the text.
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
			return false // a bracket may be inside quotes
		case '&', '*':
			return false // the size of aliases is checked for the whole document
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

// IsText says whether YAML certainly takes a plain scalar for text: not for a number, a truth, a time or nothing. It is
// not certain of all that YAML does take for text.
func IsText(scalar string) bool { return scalar != "" && kindOf([]byte(scalar)) == isText }

// kindOf returns the type of a plain scalar in YAML 1.1, if that is certain.
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

// kindOfDigits handles scalars that begin with a digit: numbers, addresses, quantities.
func kindOfDigits(text []byte) scalarKind {
	dots, digits := 0, 0
	for _, c := range text {
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c == '.':
			dots++
		case c == '/' || strings.IndexByte("GKMPkmsvw", c) >= 0:
			return isText // numbers and times do not have these characters
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

// ask lets the full parser read one scalar or collection.
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

// double reads "text". It keeps escapes that JSON also has; for other escapes that kubectl prints it uses the full
// parser.
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

// single reads 'text', in which two quotes stand for one.
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

// escape appends text escaped for a JSON string.
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
