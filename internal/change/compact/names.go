package compact

import (
	"bytes"
	"fmt"
	"strings"
)

// safe says whether a name means the same in JSON as it is; others are never replaced. It begins and ends with a letter
// or a digit, and has letters, digits and separators.
func safe(name string) bool {
	for i := range len(name) {
		if !letter(name[i]) && !separator(name[i]) {
			return false
		}
	}
	return name != "" && letter(name[0]) && letter(name[len(name)-1])
}

// placeheld are the names of placeholders, such as {node}.
var placeheld = []string{"node", "nodes", "wave", "part"}

// nextPlaceholder is the first placeholder of a text from a place on; -1 where there is none.
func nextPlaceholder[T string | []byte](text T, from int) (at int, name string) {
	for ; from < len(text); from++ {
		if text[from] != '{' {
			continue
		}
		for _, name := range placeheld {
			if end := from + 1 + len(name); end < len(text) && text[end] == '}' && string(text[from+1:end]) == name {
				return from, name
			}
		}
	}
	return -1, ""
}

// placeholders says whether a text has any of its own. Then no names in it are replaced.
func placeholders[T string | []byte](text T) bool {
	at, _ := nextPlaceholder(text, 0)
	return at >= 0
}

func letter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// replace puts to in the place of a name wherever that stands for itself: no letter and no digit is next to it.
func replace(text []byte, name, to string) []byte {
	if name == "" || !bytes.Contains(text, []byte(name)) {
		return text
	}
	out := make([]byte, 0, len(text))
	for rest := text; ; {
		i := bytes.Index(rest, []byte(name))
		if i < 0 {
			return append(out, rest...)
		}
		end := i + len(name)
		before := len(text) - len(rest) + i - 1
		if before >= 0 && letter(text[before]) || end < len(rest) && letter(rest[end]) {
			out, rest = append(out, rest[:i+1]...), rest[i+1:]
			continue
		}
		out = append(append(out, rest[:i]...), to...)
		rest = rest[end:]
	}
}

// names are those of a plan's nodes. Every text of a plan is searched for them.
type names struct {
	known             map[string]string // to themselves
	first             [256]bool         // the bytes with which they begin
	shortest, longest int               // bytes
}

func newNames() *names { return &names{known: map[string]string{}} }

// add adds a name, unless it does not mean the same in JSON.
func (n *names) add(node string) {
	if node == "" || n.known[node] != "" || !safe(node) {
		return
	}
	if n.known[node] = node; len(n.known) == 1 {
		n.shortest = len(node)
	}
	n.first[node[0]] = true
	n.shortest, n.longest = min(n.shortest, len(node)), max(n.longest, len(node))
}

func separator(c byte) bool { return c == '-' || c == '.' || c == '_' }

// in is the node that a text names; ok is false where it names none, or several.
func (n *names) in(text []byte) (node string, ok bool) {
	for i := 0; i < len(text); {
		if !letter(text[i]) {
			i++
			continue
		}
		end := i
		for end < len(text) && (letter(text[end]) || separator(text[end])) {
			end++
		}
		if found := n.within(text[i:end]); found != "" {
			if node != "" && found != node {
				return "", false
			}
			node = found
		}
		i = end
	}
	return node, node != ""
}

// within is the longest name of a node in a word such as "theseus-probe-node-1"; "" is none.
func (n *names) within(word []byte) (longest string) {
	if len(n.known) == 0 {
		return ""
	}
	for from := 0; from+n.shortest <= len(word); from++ {
		if !n.first[word[from]] || from > 0 && !separator(word[from-1]) {
			continue
		}
		for to := min(len(word), from+n.longest); to >= from+n.shortest && to > from+len(longest); to-- {
			if to < len(word) && !separator(word[to]) {
				continue
			}
			if found := n.known[string(word[from:to])]; found != "" {
				longest = found
				break
			}
		}
	}
	return longest
}

// fill puts names in the places of placeholders.
func fill(text []byte, values map[string]string) []byte {
	var out []byte
	done := 0
	for from := 0; ; {
		at, name := nextPlaceholder(text, from)
		if at < 0 {
			break
		}
		from = at + len(name) + len("{}")
		if value, known := values[name]; known {
			out = append(append(out, text[done:at]...), value...)
			done = from
		}
	}
	if done == 0 {
		return text
	}
	return append(out, text[done:]...)
}

// unused is a name for a procedure that no other has, of what is not replaced in its ID.
func unused[T any](taken map[string]T, id string) string {
	var parts []string
	for _, part := range strings.Split(id, "/") {
		if !placeholders(part) {
			parts = append(parts, part)
		}
	}
	name := strings.Join(parts, "-")
	if name == "" {
		name = "change"
	}
	for n, free := 2, name; ; n++ {
		if _, known := taken[free]; !known {
			return free
		}
		free = fmt.Sprintf("%s-%d", name, n)
	}
}
