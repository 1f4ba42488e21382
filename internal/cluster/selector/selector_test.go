package selector

import (
	"slices"
	"strings"
	"testing"
)

func TestMatches(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "all() no,a=1,a=2,a=12b,b=x",
		" \t":                                 "all() no,a=1,a=2,a=12b,b=x",
		"has(a)":                              "has(a) a=1,a=2,a=12b",
		"!has( a )":                           "!has(a) no,b=x",
		"!!has(a)":                            "has(a) a=1,a=2,a=12b",
		"a == '1'":                            `a == "1" a=1`,
		"a=='1'||a==\"2\"":                    `(a == "1" || a == "2") a=1,a=2`,
		"a != '1'":                            `a != "1" no,a=2,a=12b,b=x`,
		"a in {'2','1',}":                     `a in {"1", "2"} a=1,a=2`,
		"a notin {'1'}":                       `a not in {"1"} no,a=2,a=12b,b=x`,
		"a in {}":                             "a in {} ",
		"a contains '2'":                      `a contains "2" a=2,a=12b`,
		"a starts with'1'":                    `a starts with "1" a=1,a=12b`,
		"a endswith 'b'":                      `a ends with "b" a=12b`,
		"has(a) && !(a == '1' || a == '2')":   `(has(a) && !(a == "1" || a == "2")) a=12b`,
		"all() && global()":                   "(all() && global()) no,a=1,a=2,a=12b,b=x",
		"in in {'x'} || has == 'y' || b=='x'": `(in in {"x"} || has == "y" || b == "x") b=x`,
		`a == 'it"s'`:                         `a == 'it"s' `,
	} {
		s, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var matched []string
		for _, label := range []string{"no", "a=1", "a=2", "a=12b", "b=x"} {
			labels := map[string]string{}
			if key, value, ok := strings.Cut(label, "="); ok {
				labels[key] = value
			}
			if s.Matches(labels) {
				matched = append(matched, label)
			}
		}
		if got := s.String() + " " + strings.Join(matched, ","); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for text, offset := range map[string]int{
		"has(": 4, "has (a)": 4, "a": 1, "a = 'b'": 2, "a == b": 5, "a == 'b": 5,
		"a == 'b' &": 9, "(all()": 6, "all())": 5, "a in 'b'": 5, "a in {,}": 6, "a in {'b' 'c'}": 10,
		"a starts with b": 2, "a contains b": 11, "a containsb": 2, "a\n== 'b'": 1, "&& all()": 0,
		strings.Repeat("x", 513) + " == 'b'": 513, strings.Repeat("(", 6000): 5001,
	} {
		_, err := Parse(text)
		if e, ok := err.(*Error); !ok || e.Offset != offset {
			t.Errorf("%.20s: got %v, want an error at %d", text, err, offset)
		} else if len(e.Error()) > 300 {
			t.Errorf("%.20s: the message is long: %v", text, e)
		}
	}
}

func TestKeysAndRename(t *testing.T) {
	s, err := Parse("has(node-role/master) &&  (b=='node-role/master' || node-role/master in {'x'}) " +
		"&& !has(node-role/master2)")
	if err != nil {
		t.Fatal(err)
	}
	if keys := s.Keys(); !slices.Equal(keys, []string{"b", "node-role/master", "node-role/master2"}) {
		t.Error(keys)
	}
	want := "has(cp) &&  (b=='node-role/master' || cp in {'x'}) && !has(node-role/master2)"
	if got := s.Rename(map[string]string{"node-role/master": "cp", "other": "x"}); got.Text() != want ||
		!got.Matches(map[string]string{"cp": "x"}) {
		t.Error(got.Text())
	}
	if got := s.Rename(map[string]string{"b": "no label"}); got != s {
		t.Error(got)
	}
}

// FuzzParse holds that what parses prints to something that parses to the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "has(a)", "!a in {'b', \"c\"}", "(a == 'b' || all()) && a starts with 'x'",
		"a notin{}", "global("} {
		f.Add(seed, "a", "b")
	}
	f.Fuzz(func(t *testing.T, text, key, value string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		if err != nil {
			t.Fatalf("%q prints as %q: %v", text, s, err)
		}
		if s.String() != again.String() || !slices.Equal(s.Keys(), again.Keys()) {
			t.Fatalf("%q: %q is not %q", text, s, again)
		}
		labels := map[string]string{key: value}
		if s.Matches(labels) != again.Matches(labels) || s.Matches(nil) != again.Matches(nil) {
			t.Fatalf("%q and %q differ", text, again)
		}
	})
}

func TestRequired(t *testing.T) {
	for text, want := range map[string]string{
		"a == 'x'": "a=x", "a in {'x'}": "a=x", "has(b) && a == 'x' && c == 'y'": "a=x",
		"(b != 'q' && (a == 'x'))": "a=x", "": "", "all()": "", "a != 'x'": "",
		"a in {'x','y'}": "a=x,y", "a not in {'x'}": "", "a == 'x' || b == 'y'": "", "!(a == 'x')": "",
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		label, values, ok := s.Required()
		got := ""
		if ok {
			got = label + "=" + strings.Join(values, ",")
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestTerms lists the alternatives of selectors, joined by |.
func TestTerms(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "",
		"!all()":                            "none",
		"a == 'x' && has(b)":                "a In x & b Exists",
		"!(a == 'x' && has(b))":             "a NotIn x | b DoesNotExist",
		"a != 'x' || !(b in {'y','z'})":     "a NotIn x | b NotIn y,z",
		"!(a not in {'x'} || !has(b))":      "a In x & b Exists",
		"(a == 'x' || a == 'y') && !has(b)": "a In x & b DoesNotExist | a In y & b DoesNotExist",
		"a in {}":                           "none",
		"a not in {}":                       "",
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.Terms()
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		var parts []string
		for _, terms := range all {
			var one []string
			for _, term := range terms {
				one = append(one, strings.TrimSpace(term.Key+" "+string(term.Operator)+" "+
					""+strings.Join(term.Values, ",")))
			}
			parts = append(parts, strings.Join(one, " & "))
		}
		got := strings.Join(parts, " | ")
		if len(all) == 0 {
			got = "none"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"a contains 'x'", "!(a starts with 'x')",
		strings.Repeat("(a == 'x' || b == 'y') && ", 7) + "has(c)"} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Terms(); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
