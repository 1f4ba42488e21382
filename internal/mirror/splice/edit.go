package splice

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Get returns the value of a key; nil if there is none.
func Get(node *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		i := index(node, key)
		if i < 0 {
			return nil
		}
		node = node.Content[i+1]
	}
	return node
}

// Text returns the value of a scalar; empty if there is none.
func Text(node *yaml.Node, path ...string) string {
	if node = Get(node, path...); node == nil || node.Kind != yaml.ScalarNode || node.ShortTag() == "!!null" {
		return ""
	}
	return node.Value
}

// Items returns the items of a list; none if there is no list.
func Items(node *yaml.Node, path ...string) []*yaml.Node {
	if node = Get(node, path...); node == nil || node.Kind != yaml.SequenceNode {
		return nil
	}
	return node.Content
}

// index is where a key stands in a mapping, -1 where it does not.
func index(node *yaml.Node, key string) int {
	if node == nil || node.Kind != yaml.MappingNode {
		return -1
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return i
		}
	}
	return -1
}

// SetText changes the text of a scalar, key or value.
func (f *File) SetText(node *yaml.Node, value string) {
	if node.Value == value && node.ShortTag() == "!!str" {
		return
	}
	if node.Kind != yaml.ScalarNode || node.Line == 0 || node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		f.refuse(node, "not a value on one line")
		return
	}
	start, end, ok := f.scalar(node)
	if !ok {
		f.refuse(node, "a value with a tag of its own")
		return
	}
	f.splice(start, end, scalarText(value, node.Style))
	f.spans[node] = [2]int{start, end}
	node.Value, node.Tag = value, "!!str"
}

// Rewrite changes the text of a scalar line by line, including block scalars. It reports whether anything changed.
func (f *File) Rewrite(node *yaml.Node, change func(string) string) bool {
	value := change(node.Value)
	if node.Kind != yaml.ScalarNode || value == node.Value {
		return false
	}
	if node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0 {
		f.SetText(node, value)
		return true
	}
	last := f.lastLine(node)
	for line := node.Line; line <= last; line++ { // the header stands on the line before
		old := f.lineText(line)
		if text := change(old); text != old {
			f.splice(f.lines[line], f.lines[line]+len(old), text)
		}
	}
	node.Value = value
	return true
}

// Remove removes a key from a mapping, with everything below it. Comments above it stay.
func (f *File) Remove(parent *yaml.Node, key string) {
	if i := index(parent, key); i >= 0 {
		f.replaceEntry(parent, i, "")
		parent.Content = slices.Delete(parent.Content, i, i+2)
	}
}

// Set sets a key of a mapping to a value, given as YAML: `100%`, `{}` or a block. A new entry is inserted in
// alphabetical order if the other entries are sorted, else last.
func (f *File) Set(parent *yaml.Node, key, value string) {
	f.Swap(parent, key, key, value)
}

// Swap is Set with a new key, which replaces the old key if it exists.
func (f *File) Swap(parent *yaml.Node, old, key, value string) {
	var doc yaml.Node
	text := key + ": " + value
	if strings.Contains(value, ": ") || strings.HasSuffix(value, ":") {
		text = key + ":\n  " + strings.ReplaceAll(value, "\n", "\n  ")
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) != 1 ||
		len(doc.Content[0].Content) != 2 {
		f.refuse(parent, "%s cannot be written", key)
		return
	}
	entry := doc.Content[0].Content
	forget(doc.Content[0])
	if i := index(parent, old); i >= 0 {
		f.replaceEntry(parent, i, text)
		copy(parent.Content[i:], entry)
		return
	}
	f.insert(parent, key, text, entry)
}

// forget takes the places out of nodes that are not in the text.
func forget(node *yaml.Node) {
	node.Line, node.Column = 0, 0
	for _, child := range node.Content {
		forget(child)
	}
}

// insert adds an entry to a block mapping.
func (f *File) insert(parent *yaml.Node, key, text string, entry []*yaml.Node) {
	if parent == nil || parent.Kind != yaml.MappingNode || parent.Line == 0 || len(parent.Content) == 0 ||
		parent.Style&yaml.FlowStyle != 0 {
		f.refuse(orEmpty(parent), "%s cannot be added here", key)
		return
	}
	at := len(parent.Content)
	sorted := slices.IsSortedFunc(keys(parent), strings.Compare)
	if sorted {
		for at > 0 && parent.Content[at-2].Value > key {
			at -= 2
		}
	}
	if at == 0 { // in front of the first: its line may begin with the dash of a list
		at = len(parent.Content)
	}
	// Entries that are new themselves have no place; one that has one is looked for in front of it.
	before := at
	for before > 0 && parent.Content[before-2].Line == 0 {
		before -= 2
	}
	if before == 0 {
		f.refuse(parent, "%s cannot be added here", key)
		return
	}
	last := f.lastLine(parent.Content[before-1])
	where, prefix := len(f.text), ""
	if last+1 < len(f.lines) {
		where = f.lines[last+1]
	} else if len(f.text) > 0 && f.text[len(f.text)-1] != '\n' {
		prefix = f.newline()
	}
	suffix := f.newline()
	if prefix != "" {
		suffix = ""
	}
	f.edits = append(f.edits, edit{where, where, prefix + f.indented(text, parent.Content[0].Column-1, true) + suffix})
	parent.Content = slices.Insert(parent.Content, at, entry...)
}

func orEmpty(node *yaml.Node) *yaml.Node {
	if node == nil {
		return &yaml.Node{}
	}
	return node
}

func keys(mapping *yaml.Node) []string {
	var names []string
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		names = append(names, mapping.Content[i].Value)
	}
	return names
}

// newline is the line end that the text has.
func (f *File) newline() string {
	if len(f.lines) > 1 && f.lines[1] >= 2 && f.text[f.lines[1]-2] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// indented is text in the column of its neighbours.
func (f *File) indented(text string, columns int, first bool) string {
	pad := strings.Repeat(" ", columns)
	lines := strings.Split(text, "\n")
	for i := range lines {
		if i > 0 || first {
			lines[i] = pad + lines[i]
		}
	}
	return strings.Join(lines, f.newline())
}

// replaceEntry puts text in the place of the entry at i; no text removes it.
func (f *File) replaceEntry(parent *yaml.Node, i int, text string) {
	key, value := parent.Content[i], parent.Content[i+1]
	if key.Line == 0 || parent.Style&yaml.FlowStyle != 0 {
		f.refuse(key, "%s is written within braces", key.Value)
		return
	}
	start, last := f.offset(key), f.lastLine(value)
	end := f.lines[last] + len(f.lineText(last))
	alone := strings.TrimSpace(string(f.text[f.lines[key.Line-1]:start])) == "" // else a dash stands in front
	switch {
	case text != "":
		f.splice(start, end, f.indented(text, key.Column-1, false))
	case len(parent.Content) == 2:
		f.splice(start, end, "{}")
	case alone:
		start, end = f.lines[key.Line-1], len(f.text)
		if last+1 < len(f.lines) {
			end = f.lines[last+1]
		}
		f.splice(start, end, "")
	default: // the next entry takes the place behind the dash
		next := parent.Content[2]
		if next.Line == 0 {
			f.refuse(key, "%s cannot be removed", key.Value)
			return
		}
		f.splice(start, f.offset(next), "")
	}
}

// RemoveItem removes an item from a block list that has other items.
func (f *File) RemoveItem(list *yaml.Node, item *yaml.Node) {
	i := slices.Index(list.Content, item)
	if i < 0 || item.Line == 0 || list.Style&yaml.FlowStyle != 0 || len(list.Content) < 2 {
		f.refuse(item, "this item cannot be removed")
		return
	}
	line := item.Line - 1
	if !strings.HasPrefix(strings.TrimSpace(f.lineText(line)), "- ") {
		f.refuse(item, "this item is not on the line of its dash")
		return
	}
	end := len(f.text)
	if last := f.lastLine(item); last+1 < len(f.lines) {
		end = f.lines[last+1]
	}
	f.splice(f.lines[line], end, "")
	list.Content = slices.Delete(list.Content, i, i+1)
}

// RemoveDocument removes a whole document.
func (f *File) RemoveDocument(root *yaml.Node) {
	for _, doc := range f.docs {
		if doc.root == root && !doc.gone {
			doc.gone = true
			f.splice(doc.start, doc.end, "")
		}
	}
}

// lastLine is the last line of a node, counted from 0.
func (f *File) lastLine(node *yaml.Node) int {
	line := max(node.Line-1, 0)
	switch node.Kind {
	case yaml.ScalarNode:
		if node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
			return f.lastOfBlock(node)
		}
		if _, end, ok := f.scalar(node); ok {
			return f.lineOf(end) - 1
		}
		f.refuse(node, "a value with a tag of its own")
	default:
		if node.Style&yaml.FlowStyle != 0 {
			return f.lastOfFlow(node)
		}
		for _, child := range node.Content {
			if child.Line > 0 {
				line = max(line, f.lastLine(child))
			}
		}
	}
	return line
}

// lastOfBlock is the last line of a block of text: those that follow its header and are blank or deeper than the
// line of the header.
func (f *File) lastOfBlock(node *yaml.Node) int {
	header := node.Line - 1
	depth, last := -1, header
	for line := header + 1; line < len(f.lines); line++ {
		text := f.lineText(line)
		if strings.TrimSpace(text) == "" {
			continue
		}
		indent := len(text) - len(strings.TrimLeft(text, " "))
		if depth < 0 {
			if node.Value == "" {
				break
			}
			depth = indent
		}
		if indent < depth {
			break
		}
		last = line
	}
	return last
}

// lastOfFlow is the line on which the brace of a collection closes.
func (f *File) lastOfFlow(node *yaml.Node) int {
	at, depth := f.offset(node), 0
	for at < len(f.text) {
		switch f.text[at] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return f.lineOf(at) - 1
			}
		case '"', '\'':
			end, ok := f.quoted(at)
			if !ok {
				return f.lineOf(at) - 1
			}
			at = end
			continue
		}
		at++
	}
	return len(f.lines) - 1
}

// scalar is where a scalar begins and ends; not ok where it has a tag.
func (f *File) scalar(node *yaml.Node) (start, end int, ok bool) {
	if span, edited := f.spans[node]; edited {
		return span[0], span[1], true
	}
	start = f.offset(node)
	if node.Style&yaml.TaggedStyle != 0 {
		return start, start, false
	}
	if node.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		end, ok = f.quoted(start)
		return start, end, ok
	}
	end, ok = f.plain(start, node.Value)
	return start, end, ok
}

// plain is where a plain text ends. What is a space or a line end in its value is white space of any length in the
// text.
func (f *File) plain(at int, value string) (end int, ok bool) {
	space := func(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }
	for i := 0; i < len(value); {
		switch {
		case at >= len(f.text):
			return at, false
		case space(value[i]) && space(f.text[at]):
			for i < len(value) && space(value[i]) {
				i++
			}
			for at < len(f.text) && space(f.text[at]) {
				at++
			}
		case value[i] == f.text[at]:
			i, at = i+1, at+1
		default:
			return at, false
		}
	}
	return at, true
}

// quoted is where a quoted text ends.
func (f *File) quoted(start int) (end int, ok bool) {
	if start >= len(f.text) {
		return start, false
	}
	quote := f.text[start]
	for at := start + 1; at < len(f.text); at++ {
		switch {
		case quote == '"' && f.text[at] == '\\':
			at++
		case quote == '\'' && f.text[at] == quote && at+1 < len(f.text) && f.text[at+1] == quote:
			at++
		case f.text[at] == quote:
			return at + 1, true
		}
	}
	return len(f.text), false
}

// scalarText writes a text as a scalar in the style that its place had, if it can be.
func scalarText(value string, style yaml.Style) string {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value,
		Style: style & (yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle)}
	data, err := yaml.Marshal(node)
	text := strings.TrimSuffix(string(data), "\n")
	if err != nil || strings.Contains(text, "\n") || node.Style == 0 && strings.ContainsAny(text, ",[]{}") &&
		!strings.HasPrefix(text, "\"") {
		node.Style = yaml.DoubleQuotedStyle
		data, _ = yaml.Marshal(node) //nolint:errcheck // a string is always written; the proof catches what is not
		text = strings.TrimSuffix(string(data), "\n")
	}
	return text
}
