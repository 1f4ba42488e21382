// Package calicoselector holds internal/cluster/selector to Calico's own parser. It is a module of its own, so that
// the product never needs Calico's.
package calicoselector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	calico "github.com/projectcalico/calico/libcalico-go/lib/selector"

	"github.com/theseus-cni/theseus/internal/cluster/selector"
)

const (
	selectors = 60_000
	labelSets = 20
)

// TestAgainstCalico demands that both accept the same texts, print them alike, and match the same labels.
func TestAgainstCalico(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	g := generator{random}
	accepted, refused, matched := 0, 0, 0
	for i := range selectors {
		text := g.selector(4)
		if i%2 == 1 {
			text = g.damage(text)
		}
		ours, err := selector.Parse(text)
		theirs, want := calico.Parse(text)
		if (err == nil) != (want == nil) {
			t.Fatalf("%q: Calico says %v, Theseus %v", text, want, err)
		}
		if err != nil {
			refused++
			continue
		}
		accepted++
		if ours.String() != theirs.String() {
			t.Fatalf("%q: Calico prints %s, Theseus %s", text, theirs, ours)
		}
		for range labelSets {
			labels := g.labels()
			got := ours.Matches(labels)
			if got != theirs.Evaluate(labels) {
				t.Fatalf("%q on %v: Calico says %v, Theseus %v", text, labels, !got, got)
			}
			if got {
				matched++
			}
		}
	}
	t.Logf("%d selectors accepted and %d refused by both; %d of %d evaluations matched",
		accepted, refused, matched, accepted*labelSets)
	if refused < selectors/20 || accepted < selectors/2 || matched < accepted || matched > accepted*(labelSets-1) {
		t.Error("the generated selectors are too much alike to say anything")
	}
}

// generator makes selectors of few keys and values, so that labels often match.
type generator struct{ *rand.Rand }

func (g generator) pick(from ...string) string { return from[g.IntN(len(from))] }

func (g generator) space() string { return g.pick("", "", " ", " ", "  ", "\t") }

func (g generator) key() string {
	return g.pick("a", "b", "node-role.kubernetes.io/master", "in", "has", "not", "all", "contains", "A_1", "5")
}

func (g generator) value() string {
	return g.pick("", "x", "y", "xy", "yx", "a b", `it"s`, "é")
}

func (g generator) quoted() string {
	value := g.value()
	if strings.Contains(value, `"`) || g.IntN(2) == 0 {
		return "'" + value + "'"
	}
	return `"` + value + `"`
}

func (g generator) selector(depth int) string {
	s := g.space
	switch n := g.IntN(12); {
	case depth == 0 || n < 2:
		return s() + g.term() + s()
	case n < 5:
		return g.selector(depth-1) + "&&" + g.selector(depth-1)
	case n < 8:
		return g.selector(depth-1) + "||" + g.selector(depth-1)
	case n < 10:
		return s() + "(" + g.selector(depth-1) + ")" + s()
	default:
		return s() + strings.Repeat("!"+s(), 1+g.IntN(2)) + "(" + g.selector(depth-1) + ")" + s()
	}
}

func (g generator) term() string {
	s := g.space
	switch g.IntN(8) {
	case 0:
		return g.pick("all(", "global(") + s() + ")"
	case 1, 2:
		return g.pick("", "!") + "has(" + s() + g.key() + s() + ")"
	case 3, 4:
		set := make([]string, g.IntN(4))
		for i := range set {
			set[i] = s() + g.quoted() + s()
		}
		list := strings.Join(set, ",")
		if len(set) > 0 {
			list += g.pick("", "", ",")
		}
		return g.key() + " " + g.pick("in", "not in", "notin", "not  in") + s() + "{" + s() + list + s() + "}"
	default:
		operator := g.pick("==", "==", "!=", "contains", "starts with", "startswith", "ends with", "ends \twith")
		return g.key() + " " + operator + s() + g.quoted()
	}
}

// damage changes a text in a place or two; most of the results are no selectors.
func (g generator) damage(text string) string {
	for range 1 + g.IntN(2) {
		at := g.IntN(len(text) + 1)
		until := min(len(text), at+g.IntN(3))
		piece := g.pick("", "", "(", ")", "!", "=", "&&", "|", "'", `"`, "{", "}", ",", " ", "\n", "a",
			"has(", "in", " contains ", "é")
		text = text[:at] + piece + text[until:]
	}
	return text
}

func (g generator) labels() map[string]string {
	labels := map[string]string{}
	for range g.IntN(5) {
		labels[g.key()] = g.value()
	}
	return labels
}

// TestGenerator shows that the operators are all there.
func TestGenerator(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(3, 4))}
	var missing []string
	all := ""
	for range 2000 {
		s, err := selector.Parse(g.selector(4))
		if err != nil {
			t.Fatal(err)
		}
		all += fmt.Sprintln(s)
	}
	for _, operator := range []string{"&&", "||", "!(", "!has(", " == ", " != ", " in {", " not in {", " contains ",
		" starts with ", " ends with ", "all()", "global()"} {
		if !strings.Contains(all, operator) {
			missing = append(missing, operator)
		}
	}
	if slices.Sort(missing); len(missing) > 0 {
		t.Errorf("never generated: %q", missing)
	}
}
