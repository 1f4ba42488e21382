package flagset

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// flagOf makes a set of one boolean flag with a rule.
func flagOf(rule string) string {
	return `{"flags": {"f": {"state": "ENABLED", "variants": {"on": true, "off": false}, "defaultVariant": "off", "targeting": ` +
		rule + `}}}`
}

// TestRefused: a set with a fault is refused whole, with line and reason.
func TestRefused(t *testing.T) {
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	for _, c := range []struct{ name, set, want string }{
		{"nothing", ``, "s.json: it is empty"},
		{"cut short", "{\"flags\":\n {\"a\":", "s.json:2: it is truncated"},
		{"syntax", "{\"flags\":\n {,}}", "s.json:2: bad JSON: invalid character ','"},
		{"trailing", "{\"flags\": {}}\n{}", "s.json:2: there is text after the end"},
		{"no object", `[]`, "s.json:1: a flag set is an object"},
		{"no flags", `{}`, "the key flags is missing"},
		{"flag is text", `{"flags": {"a": "on"}}`, "flags.a: a flag is an object"},
		{"no state", `{"flags": {"a": {"variants": {"on": true}}}}`, "flags.a: state is missing"},
		{"bad state", `{"flags": {"a": {"state": "enabled", "variants": {"on": true}}}}`,
			`flags.a.state: "enabled" is neither`},
		{"no variants", `{"flags": {"a": {"state": "ENABLED", "variants": {}}}}`,
			"flags.a.variants: there is no variant"},
		{"mixed types", `{"flags": {"a": {"state": "ENABLED", "variants": {"on": true, "x": 1}}}}`,
			"flags.a.variants.x: this is a number, but on is a boolean"},
		{"list variant", `{"flags": {"a": {"state": "ENABLED", "variants": {"on": []}}}}`,
			"flags.a.variants.on: a boolean, a string"},
		{"unknown default", `{"flags": {"a": {"state": "ENABLED", "variants": {"on": true}, "defaultVariant": "of"}}}`,
			`there is no variant "of": there is on`},
		{"source", `{"flags": {"a": {"state": "ENABLED", "variants": {"on": true}, "source": 5}}}`,
			"flags.a.source: a string is expected"},
		{"no object in a list", `{"flags": ["a"]}`, "flags[0]: a flag is an object"},
		{"no key in a list", `{"flags": [{"state": "ENABLED", "variants": {"on": true}}]}`,
			"flags[0]: the key is missing"},
		{"no name", `{"flags": {"": {"state": "ENABLED", "variants": {"on": true}}}}`, "flags: an empty name"},
		{"empty shared rule", `{"flags": {}, "$evaluators": {"a": []}}`, "$evaluators.a: an empty rule"},
		{"metadata", `{"metadata": {"a": []}, "flags": {}}`, "metadata.a: a string, a number or a boolean"},
		{"twice", "{\"flags\": {\"a\": {\"state\": \"DISABLED\", \"variants\": {\"x\": 1}},\n" +
			"\"a\": {\"state\": \"DISABLED\", \"variants\": {\"x\": 1}}}}", "s.json:2: flags.a: duplicate key: line 1"},
		{"twice in a list",
			`{"flags": [{"key": "a", "state": "DISABLED", "variants": {"x": 1}}, {"key": "a", "state": "DISABLED", "variants": {"x": 1}}]}`,
			`flags[1]: the flag "a" is defined twice`},
		{"operator", flagOf("{\"if\":\n[{\"=>\": [1, 2]}, \"on\"]}"),
			`s.json:2: flags.f.targeting.if.=>: there is no operator "=>"`},
		{"two operators", flagOf(`{"if": [{"==": [1, 1], "!": [1]}, "on"]}`),
			"an object with one key, but this one has 2"},
		{"arity", flagOf(`{"if": [{"==": [1]}, "on"]}`), "targeting.if.==: 2 arguments are expected, here are 1"},
		{"unknown variant", flagOf(`{"if": [true, "onn"]}`), `there is no variant "onn": there is off, on`},
		{"unknown variant in a bucket", flagOf(`{"fractional": [["on", 1], ["of", 1]]}`), `there is no variant "of"`},
		{"overflow", flagOf(`{"fractional": [["on", 2147483647], ["off", 1]]}`),
			"the weights add up to 2147483648, the most is 2147483647"},
		{"weight", flagOf(`{"fractional": [["on", 0.5], ["off", 1]]}`), "0.5 is not a weight"},
		{"bucket", flagOf(`{"fractional": ["x", "on"]}`), "a bucket is a list"},
		{"relation", flagOf(`{"if": [{"sem_ver": [{"var": "v"}, "==", "1.0.0"]}, "on"]}`), "== is not a relation"},
		{"version", flagOf(`{"if": [{"sem_ver": [{"var": "v"}, "=", "one"]}, "on"]}`), "one is not a version"},
		{"no text", flagOf(`{"if": [{"starts_with": [{"var": "v"}, 1]}, "on"]}`), "two strings are expected"},
		{"property", flagOf(`{"if": [{"var": "$flagd.key"}, "on"]}`), "$flagd has flagKey and timestamp"},
		{"prefix", flagOf(`{"if": [{"cidr": [{"var": "ip"}, "10.0.0.0/33"]}, "on"]}`),
			"10.0.0.0/33 is neither an address nor a prefix"},
		{"selector", flagOf(`{"if": [{"node_selector": "a in b"}, "on"]}`), "node_selector"},
		{"no rule", flagOf(`"on"`), "an object is expected: a rule"},
		{"unknown reference", flagOf(`{"if": [{"$ref": "x"}, "on"]}`), `there is no shared rule "x"`},
		{"cycle", `{"flags": {}, "$evaluators": {` + "\n" +
			`"a": {"!": [{"$ref": "b"}]}, "b": {"!": [{"$ref": "a"}]}}}`,
			"s.json:2: $evaluators.a: its $ref leads back to itself"},
		{"deep", flagOf(deep), "nested deeper than 200"},
		{"explosion", explosion(), "with shared rules inserted, the rules are too large"},
		{"many values", `{"flags": [` + strings.Repeat("1,", maxValues) + `1]}`, "more than 1048576 values"},
		{"50 MB", `{"flags": {}, "$comment": "` + strings.Repeat("x", 50<<20) + `"}`, "a flag set has at most 16 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("s.json", []byte(c.set), JSON, Strict)
			var refused *Error
			if !errors.As(err, &refused) {
				t.Fatalf("it is not refused: %v", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q does not say %q", err, c.want)
			}
		})
	}
}

// explosion is a small set whose rules would be 2^40 large.
func explosion() string {
	var b strings.Builder
	b.WriteString(`{"$evaluators": {"r0": {"!": [1]}`)
	for i := range 40 {
		fmt.Fprintf(&b, `, "r%d": {"and": [{"$ref": "r%d"}, {"$ref": "r%d"}]}`, i+1, i, i)
	}
	b.WriteString(
		`}, "flags": {"f": {"state": "ENABLED", "variants": {"on": true}, "targeting": {"if": [{"$ref": "r40"}, "on"]}}}}`)
	return b.String()
}

// TestEveryProblem: all that is wrong is told, in the order of the lines.
func TestEveryProblem(t *testing.T) {
	_, err := Parse("s.yaml", []byte("flags:\n  a:\n    variants: {on: true}\n    defaultVariant: off\n  b: 1\n"),
		YAML, Strict)
	var refused *Error
	if !errors.As(err, &refused) {
		t.Fatal(err)
	}
	want := []Problem{
		{2, "flags.a", "state is missing: ENABLED or DISABLED"},
		{4, "flags.a.defaultVariant", `there is no variant "off": there is on`},
		{5, "flags.b", "a flag is an object with state and variants"},
	}
	if len(refused.Problems) != len(want) {
		t.Fatalf("%+v", refused.Problems)
	}
	for i := range want {
		if refused.Problems[i] != want[i] {
			t.Errorf("%+v, not %+v", refused.Problems[i], want[i])
		}
	}
	if got := err.Error(); got != "s.yaml:2: flags.a: state is missing: ENABLED or DISABLED (and 2 more)" {
		t.Error(got)
	}
}

// TestYAML: the same set in YAML is the same set; what JSON has not is refused.
func TestYAML(t *testing.T) {
	inYAML, err := Parse("s.yaml", []byte(`
flags:
  f: {state: ENABLED, variants: {on: true, off: false}, defaultVariant: off, targeting: {if: [{"==": [{var: zone}, &z a]}, on, {if: [*z, off]}]}}
`), YAML, Strict)
	if err != nil {
		t.Fatal(err)
	}
	inJSON, err := Parse("s.json",
		[]byte(flagOf(`{"if": [{"==": [{"var": "zone"}, "a"]}, "on", {"if": ["a", "off"]}]}`)), JSON, Strict)
	if err != nil {
		t.Fatal(err)
	}
	if inYAML.Digest() != inJSON.Digest() {
		t.Errorf("%v\n%v", inYAML.flags["f"], inJSON.flags["f"])
	}
	merged, err := Parse("s.yaml", []byte(`---
base: &base {state: DISABLED, variants: {on: false}, defaultVariant: off}
flags:
  f:
    <<: [{state: ENABLED, variants: {on: true, off: false}}, *base]
    targeting: {if: [{"==": [{var: zone}, a]}, on, {if: [a, off]}]}
---
`), YAML, Strict)
	if err != nil {
		t.Fatal(err)
	}
	if merged.Digest() != inJSON.Digest() {
		t.Errorf("with <<: %v\n%v", merged.flags["f"], inJSON.flags["f"])
	}
	for set, want := range map[string]string{
		"flags: {}\n---\nflags: {}\n": "several documents",
		"flags: {}\n---\n---\na: 1\n": "several documents",
		"flags: {<<: x}":              "<< takes an object",
		"flags: &a {<<: *a}":          "nested deeper than 200",
		"flags: [\n":                  "bad YAML",
		"flags:\n\ta: 1\n":            "such as a tab: lines are indented by spaces",
		"flags: {a: .nan}":            ".nan is not a number in JSON",
		"flags: {? [a] : b}":          "a key must be plain text",
		"flags: &a {b: *a}":           "nested deeper than 200",
		"flags: !!binary aGk=":        "there is no type !!binary",
		"":                            "a flag set is an object",
	} {
		if _, err := Parse("s.yaml", []byte(set), YAML, Strict); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v does not say %q", set, err, want)
		}
	}
}

// TestWarnings: what means nothing is told, and refuses nothing.
func TestWarnings(t *testing.T) {
	set, err := Parse("s.json", []byte(
		`{"flags": {"f": {"state": "ENABLED", "variants": {"on": true}, "defaultVarient": "on"}}}`), JSON, Strict)
	if err != nil {
		t.Fatal(err)
	}
	if w := set.Warnings(); len(w) != 1 || w[0].Path != "flags.f.defaultVarient" {
		t.Errorf("%+v", w)
	}
}

// TestMerge: sets go together unless they have a flag in common.
func TestMerge(t *testing.T) {
	set := func(name, key string) *Set {
		s, err := Parse(name, []byte(`{"flags": {"`+key+`": {"state": "ENABLED", "variants": {"on": true}}}}`),
			JSON, Strict)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	merged, err := Merge(set("one", "a"), set("two", "b"))
	if err != nil || len(merged.Keys()) != 2 {
		t.Fatal(merged, err)
	}
	if _, err := Merge(set("one", "a"), set("two", "a")); err == nil ||
		!strings.Contains(err.Error(), "two:1: flags.a: one:1 has this flag too") {
		t.Error(err)
	}
}
