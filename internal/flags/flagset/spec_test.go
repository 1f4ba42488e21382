package flagset

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"github.com/twmb/murmur3"
)

// oneFlag is a flag with variants a to c, a default, and a rule.
func oneFlag(t *testing.T, rule string) *Set {
	t.Helper()
	set, err := Parse("s.json", []byte(
		`{"flags": {"f": {"state": "ENABLED", "variants": {"a": "A", "b": "B", "c": "C"}, "defaultVariant": "c", "targeting": `+
			rule+`}}}`), JSON, Lenient)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func variantOf(t *testing.T, set *Set, context string) string {
	t.Helper()
	var values map[string]any
	if err := json.Unmarshal([]byte(context), &values); err != nil {
		t.Fatal(err)
	}
	prepared, err := NewContext(values)
	if err != nil {
		t.Fatal(err)
	}
	r := set.Evaluate("f", prepared, 0)
	if r.Code != "" {
		return string(r.Reason) + " " + string(r.Code)
	}
	return r.Variant
}

// TestFractional holds fractional to its rule, computed here from the hash: the bucket is the hash's share of the total
// weight, rounded down, and the first range that ends behind it counts.
func TestFractional(t *testing.T) {
	expected := func(key string, weights ...uint64) string {
		total := uint64(0)
		for _, w := range weights {
			total += w
		}
		at, end := uint64(murmur3.StringSum32(key))*total>>32, uint64(0)
		for i, w := range weights {
			if end += w; at < end {
				return string(rune('a' + i))
			}
		}
		return "c"
	}
	for _, c := range []struct {
		rule string
		want func(key string) string
	}{
		{`{"fractional": [{"var": "email"}, ["a", 25], ["b", 75]]}`,
			func(key string) string { return expected(key, 25, 75) }},
		// the flag's key, then the subject's
		{`{"fractional": [["a", 50], ["b", 50]]}`, func(key string) string { return expected("f"+key, 50, 50) }},
		{`{"fractional": [{"cat": ["x", {"var": "email"}]}, ["a"], ["b"]]}`,
			func(key string) string { return expected("x"+key, 1, 1) }},
		{`{"fractional": [{"var": "email"}, ["a", {"var": "share"}], ["b", 90]]}`,
			func(key string) string { return expected(key, 10, 90) }},
		{`{"fractional": [{"var": "email"}, ["a", 0], ["b", 1]]}`, func(string) string { return "b" }},
		// less than nothing is nothing
		{`{"fractional": [{"var": "email"}, ["a", -5], ["b", 1]]}`, func(string) string { return "b" }},
		{`{"fractional": [{"var": "email"}, [{"if": [{"var": "yes"}, "a", "b"]}, 1]]}`,
			func(string) string { return "a" }},
		{fmt.Sprintf(`{"fractional": [{"var": "email"}, ["a", %d], ["b", 1]]}`, math.MaxInt32-1),
			func(key string) string { return expected(key, math.MaxInt32-1, 1) }},
	} {
		set := oneFlag(t, c.rule)
		for i := range 300 {
			key := fmt.Sprintf("user-%d@example.org", i)
			context := fmt.Sprintf(`{"email": %q, "targetingKey": %q, "share": 10, "yes": true}`, key, key)
			if have, want := variantOf(t, set, context), c.want(key); have != want {
				t.Fatalf("%s for %s: %s, not %s", c.rule, key, have, want)
			}
		}
	}
	for rule, context := range map[string]string{ // what cannot be bucketed is the default
		`{"fractional": [["a", 50], ["b", 50]]}`:                                     `{}`,
		`{"fractional": [["a", 50], ["b", 50]] }`:                                    `{"targetingKey": ""}`,
		`{"fractional": [{"var": "email"}, ["a", 0], ["b", 0]]}`:                     `{"email": "x"}`,
		`{"fractional": [{"var": "email"}, ["a", {"var": "w"}], ["b", 1]]}`:          `{"email": "x", "w": 1.5}`,
		`{"fractional": [{"var": "email"}, ["a", {"var": "w"}], ["b", 2147483647]]}`: `{"email": "x", "w": 1}`,
		`{"fractional": [{"var": "email"}, ["a", {"var": "w"}], ["b", 2]]}`:          `{"email": "x", "w": 2147483648}`,
	} {
		if have := variantOf(t, oneFlag(t, rule), context); have != "c" {
			t.Errorf("%s in %s: %s", rule, context, have)
		}
	}
}

// TestSemVer holds sem_ver to what flagd documents, and to SemVer's own order.
func TestSemVer(t *testing.T) {
	for _, c := range []struct {
		version, relation, other string
		want                     any // nil: the default
	}{
		{"1.2.3", "=", "1.2.3", true}, {"1.2.3", "=", "1.2.4", false}, {"1.2.3", "!=", "1.2.4", true},
		{"1.2.3", "<", "1.2.4", true}, {"1.10.0", "<", "1.9.0", false}, {"1.2.3", "<=", "1.2.3", true},
		{"1.2.3", ">=", "1.2.3", true}, {"2.0.0", ">", "1.99.99", true}, {"1.9.9", "^", "1.0.0", true},
		{"2.0.0", "^", "1.0.0", false}, {"1.2.9", "~", "1.2.0", true}, {"1.3.0", "~", "1.2.0", false},
		{"v1.2.3", "=", "1.2.3", true}, {"V1.2.3", "=", "v1.2.3", true}, {"1", "=", "1.0.0", true},
		{"1.2", "=", "1.2.0", true}, {"1.0.0-alpha", "<", "1.0.0", true},
		{"1.0.0-alpha.2", "<", "1.0.0-alpha.10", true}, {"1.0.0-alpha.1", "<", "1.0.0-alpha.beta", true},
		{"1.0.0-rc.1", ">", "1.0.0-beta.11", true},
		{"1.0.0+one", "=", "1.0.0+two", true},
		{"v1.29.3+k3s1", "=", "1.29.3", true},
		{"v1.30.2-eks-abc", "<", "1.30.2", true}, // what managed clusters call themselves is a version before it
		{"one", "=", "1.0.0", nil}, {"1.0.0", "=", "one", nil}, {"1.0.0.0", "=", "1.0.0", nil},
		{"01.0.0", "=", "1.0.0", nil}, {"", "=", "1.0.0", nil}, {"1.0.0", "==", "1.0.0", nil},
	} {
		set := oneFlag(t, fmt.Sprintf(
			`{"if": [{"===": [{"sem_ver": [{"var": "v"}, %q, %q]}, true]}, "a", {"if": [{"===": [{"sem_ver": [{"var": "v"}, %q, %q]}, false]}, "b", null]}]}`,
			c.relation, c.other, c.relation, c.other))
		want := map[any]string{true: "a", false: "b", nil: "c"}[c.want]
		if have := variantOf(t, set, fmt.Sprintf(`{"v": %q}`, c.version)); have != want {
			t.Errorf("%s %s %s: %s, not %s", c.version, c.relation, c.other, have, want)
		}
	}
	// a number is read as its text
	for v, want := range map[string]string{"1": "a", "1.2": "b", "true": "c", "null": "c", "[1]": "c"} {
		if have := variantOf(t, oneFlag(t,
			`{"if": [{"sem_ver": [{"var": "v"}, "=", "1.0.0"]}, "a", {"sem_ver": [{"var": "v"}, "=", "1.2.0"]}, "b"]}`),
			`{"v": `+v+`}`); have != want {
			t.Errorf("%s: %s, not %s", v, have, want)
		}
	}
}

// TestErrors holds what fails to its code, and that it fails alone.
func TestErrors(t *testing.T) {
	set, err := Parse("s.json", []byte(`{"flags": {
		"good": {"state": "ENABLED", "variants": {"on": true}, "defaultVariant": "on"},
		"missing": {"state": "ENABLED", "variants": {"on": true}, "defaultVariant": "on", "targeting": {"if": [true, "onn"]}},
		"shared": {"state": "ENABLED", "variants": {"on": true}, "defaultVariant": "on", "targeting": {"$ref": "nothing"}},
		"operator": {"state": "ENABLED", "variants": {"on": true}, "defaultVariant": "on", "targeting": {"bogus": [1]}},
		"unreached": {"state": "ENABLED", "variants": {"on": true, "off": false}, "defaultVariant": "off", "targeting": {"if": [true, "on", "onn"]}},
		"off": {"state": "DISABLED", "variants": {"on": true}, "defaultVariant": "on"},
		"open": {"state": "ENABLED", "variants": {"on": true}, "defaultVariant": null}
	}}`), JSON, Lenient)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key    string
		reason Reason
		code   Code
		value  any
	}{
		{"good", Static, "", true},
		{"none", Failed, FlagNotFound, nil},
		{"missing", Failed, General, nil},
		{"shared", Failed, ParseError, nil},
		{"operator", Failed, ParseError, nil},
		{"unreached", TargetingMatch, "", true},
		{"off", Disabled, "", nil},
		{"open", Default, "", nil},
	} {
		r := set.Evaluate(c.key, Context{}, 0)
		if r.Reason != c.reason || r.Code != c.code || r.Value != c.value || (r.Code != "") != (r.Message != "") {
			t.Errorf("%s: %+v", c.key, r)
		}
	}
}
