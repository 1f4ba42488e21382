package cloud

import (
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/mirror/kopsname"
)

// Pair is a name of the original and its equivalent on the mirror.
type Pair struct{ Old, New string }

// ParsePairs parses pairs of the form OLD=NEW.
func ParsePairs(texts []string) ([]Pair, error) {
	var pairs []Pair
	for _, text := range texts {
		old, new, ok := strings.Cut(text, "=")
		if !ok || old == "" || new == "" || old == new {
			return nil, fmt.Errorf("%q is no pair OLD=NEW", text)
		}
		pairs = append(pairs, Pair{old, new})
	}
	return pairs, nil
}

// names puts the mirror's names in the place of the original's, by whole parts of names.
type names struct{ pairs []Pair }

// newNames knows the clusters' names, with dots and with dashes, the names of roles that kops cuts, and what a person
// gave.
func newNames(original, mirror string, given []Pair) *names {
	n := &names{pairs: slices.Clone(given)}
	n.add(original, mirror)
	if dashed := strings.ReplaceAll(original, ".", "-"); dashed != original {
		n.add(dashed, strings.ReplaceAll(mirror, ".", "-"))
	}
	for _, role := range []string{"masters.", "nodes.", "apiservers.", "bastions."} {
		if cut := kopsname.Truncate(role+original, kopsname.MaxRole); cut != role+original ||
			len(role+mirror) > kopsname.MaxRole {
			n.add(cut, kopsname.Truncate(role+mirror, kopsname.MaxRole))
		}
	}
	return n
}

// add adds a pair, if its old name has none: what a person gave counts first.
func (n *names) add(old, new string) {
	if old == "" || old == new || slices.ContainsFunc(n.pairs, func(p Pair) bool { return p.Old == old }) {
		return
	}
	n.pairs = append(n.pairs, Pair{old, new})
	slices.SortStableFunc(n.pairs, func(a, b Pair) int { return len(b.Old) - len(a.Old) })
}

// mirror is a text with the mirror's names: blue.example.org is in nodes.blue.example.org, and neither in
// other-blue.example.org nor in blue.example.org.evil.io.
func (n *names) mirror(text string) string {
	var out strings.Builder
	for at := 0; at < len(text); {
		is := func(name string) bool {
			return strings.HasPrefix(text[at:], name) && (at == 0 || !inName(text[at-1])) && ends(text[at+len(name):])
		}
		// The mirror's own name may have the original's in it.
		if own := slices.IndexFunc(n.pairs,
			func(p Pair) bool { return strings.Contains(p.New, p.Old) && is(p.New) }); own >= 0 {
			out.WriteString(n.pairs[own].New)
			at += len(n.pairs[own].New)
			continue
		}
		found := slices.IndexFunc(n.pairs, func(p Pair) bool { return is(p.Old) })
		if found < 0 {
			out.WriteByte(text[at])
			at++
			continue
		}
		out.WriteString(n.pairs[found].New)
		at += len(n.pairs[found].Old)
	}
	return out.String()
}

func inName(b byte) bool {
	return b == '-' || b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

func ends(after string) bool {
	if strings.HasPrefix(after, ".") {
		return len(after) == 1 || !inName(after[1])
	}
	return after == "" || !inName(after[0])
}

// of says whether a text names something of the original.
func (n *names) of(text string) bool { return n.mirror(text) != text }

// document is a policy with the mirror's names.
func (n *names) document(d Document) Document {
	object, _ := n.value(d.object()).(map[string]any)
	if object == nil {
		return ""
	}
	return documentOf(object)
}

func (n *names) value(value any) any {
	switch v := value.(type) {
	case string:
		return n.mirror(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = n.value(v[i])
		}
		return out
	case map[string]any:
		if v == nil {
			return v
		}
		out := map[string]any{}
		for key, below := range v {
			out[n.mirror(key)] = n.value(below)
		}
		return out
	}
	return value
}
