package flagset

import (
	"math"
	"strings"
	"testing"
)

func mustParse(t testing.TB, set string, mode Mode) *Set {
	t.Helper()
	s, err := Parse("test", []byte(set), JSON, mode)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustContext(t testing.TB, values map[string]any) Context {
	t.Helper()
	c, err := NewContext(values)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNetworkOperators: cidr and node_selector say on, off, or nothing when they cannot tell.
func TestNetworkOperators(t *testing.T) {
	node := map[string]any{
		"ip": "10.1.2.3", "mapped": "::ffff:10.1.2.3", "six": "2001:db8::7", "block": "10.1.0.0/24",
		"wide": "10.0.0.0/7", "bad": "ten", "zone": "fe80::1%eth0",
		"labels": map[string]any{"pool": "edge", "zone": "eu-1", "cpu": "16"}, "others": map[string]any{"pool": "core"},
		"odd": map[string]any{"pool": 1.0}, "prefixes": []any{"192.0.2.0/24", "10.0.0.0/8"},
	}
	for rule, want := range map[string]string{
		`{"cidr": [{"var": "ip"}, "10.0.0.0/8"]}`:                                          "on",
		`{"cidr": [{"var": "ip"}, "10.2.0.0/16"]}`:                                         "off",
		`{"cidr": [{"var": "ip"}, ["192.0.2.0/24", "10.1.2.3"]]}`:                          "on",
		`{"cidr": [{"var": "ip"}, {"var": "prefixes"}]}`:                                   "on",
		`{"cidr": [{"var": "mapped"}, "10.0.0.0/8"]}`:                                      "on",
		`{"cidr": [{"var": "ip"}, "::ffff:10.0.0.0/104"]}`:                                 "on",
		`{"cidr": [{"var": "six"}, "2001:db8::/32"]}`:                                      "on",
		`{"cidr": [{"var": "six"}, "10.0.0.0/8"]}`:                                         "off",
		`{"cidr": [{"var": "block"}, "10.0.0.0/8"]}`:                                       "on",
		`{"cidr": [{"var": "wide"}, "10.0.0.0/8"]}`:                                        "off",
		`{"cidr": [{"var": "bad"}, "10.0.0.0/8"]}`:                                         "null",
		`{"cidr": [{"var": "zone"}, "fe80::/10"]}`:                                         "null",
		`{"cidr": [{"var": "absent"}, "10.0.0.0/8"]}`:                                      "null",
		`{"cidr": [{"var": "ip"}, {"var": "bad"}]}`:                                        "null",
		`{"node_selector": "pool in (edge, core), !spot"}`:                                 "on",
		`{"node_selector": "pool notin (edge)"}`:                                           "off",
		`{"node_selector": ["pool=core", {"var": "others"}]}`:                              "on",
		`{"node_selector": ["pool=core", {"var": "absent"}]}`:                              "null",
		`{"node_selector": ["pool=core", {"var": "odd"}]}`:                                 "null",
		`{"node_selector": {"matchLabels": {"zone": "eu-1"}}}`:                             "on",
		`{"node_selector": {"matchLabels": {"zone": "eu-2"}}}`:                             "off",
		`{"node_selector": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}`: "on",
		`{"node_selector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "cpu", "operator": "Gt", "values": ["8"]}, {"key": "pool", "operator": "In", "values": ["edge"]}]}]}}`:                         "on",
		`{"node_selector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "cpu", "operator": "Lt", "values": ["8"]}]}, {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["edge"]}]}]}}`: "on",
		`{"node_selector": {"nodeSelectorTerms": [{}]}}`: "off",
	} {
		set := mustParse(t, flagOf(`{"if": [{"===": [`+rule+`, null]}, null, `+rule+`, "on", "off"]}`), Strict)
		got := set.Evaluate("f", mustContext(t, node), 0)
		want := map[string]Result{"on": {Variant: "on", Reason: TargetingMatch},
			"off": {Variant: "off", Reason: TargetingMatch}, "null": {Variant: "off", Reason: Default}}[want]
		if got.Variant != want.Variant || got.Reason != want.Reason || got.Code != "" {
			t.Errorf("%s: %s %s %s", rule, got.Variant, got.Reason, got.Message)
		}
	}
	for rule, want := range map[string]string{
		`{"node_selector": {"matchLabel": {}}}`: "unknown field",
		`{"node_selector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}}`: "matchFields is not supported",
		`{"node_selector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Like"}]}]}}`:                       `there is no operator "Like"`,
		`{"node_selector": 7}`: "text or an object",
	} {
		if _, err := Parse("test", []byte(flagOf(rule)), JSON, Strict); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", rule, err, want)
		}
	}
}

// TestIntegers: a number is an integer only when nothing is lost.
func TestIntegers(t *testing.T) {
	for value, want := range map[string]any{"3": int64(3), "-0.0": int64(0), "1e3": int64(1000), "1.5": nil,
		"9007199254740991": int64(maxInteger), "9007199254740992": nil, "1e300": nil} {
		set := mustParse(t, `{"flags": {"f": {"state": "ENABLED", "variants": {"v": `+value+
			`}, "defaultVariant": "v"}}}`, Strict)
		got := set.Evaluate("f", Context{}, 0).As(Integer)
		if got.Value != want || (want == nil) != (got.Code == TypeMismatch) {
			t.Errorf("%s: %v %s", value, got.Value, got.Code)
		}
	}
}

// TestSticky: while the total stays, a subject that is in the growing first bucket stays in it.
func TestSticky(t *testing.T) {
	in := map[string]bool{}
	for percent := 0; percent <= 100; percent += 5 {
		set := mustParse(t, strings.ReplaceAll(
			strings.ReplaceAll(flagOf(`{"fractional": [{"var": "targetingKey"}, ["on", IN], ["off", OUT]]}`),
				"IN", itoa(percent)), "OUT", itoa(100-percent)), Strict)
		count := 0
		for i := range 2000 {
			name := "node-" + itoa(i)
			on := set.Evaluate("f", mustContext(t, map[string]any{"targetingKey": name}), 0).Value == true
			if in[name] && !on {
				t.Fatalf("%s left at %d %%", name, percent)
			}
			if in[name] = on; on {
				count++
			}
		}
		if share := float64(count) / 2000; math.Abs(share-float64(percent)/100) > 0.04 {
			t.Errorf("%d %% are %.3f", percent, share)
		}
	}
}

func itoa(n int) string { t, _ := text(n); return t }

// TestExplain: the operators are told in their order, with the bucket.
func TestExplain(t *testing.T) {
	set := mustParse(t, flagOf(`{"if": [{"==": [{"var": "zone"}, "a"]}, {"fractional": [["on", 100], ["off", 0]]}]}`),
		Strict)
	var steps []Step
	r := set.Explain("f", mustContext(t, map[string]any{"zone": "a", "targetingKey": "n1"}), 0, func(s Step) {
		steps = append(steps, s)
	})
	if r.Variant != "on" {
		t.Fatal(r)
	}
	var names []string
	for _, s := range steps {
		names = append(names, s.Operator)
	}
	if got := strings.Join(names, " "); got != "var == bucket fractional if" {
		t.Error(got)
	}
	if b := steps[2].Bucket; b == nil || b.Total != 100 || b.End != 100 {
		t.Errorf("%+v", steps[2])
	}
}

// TestWork: a rule that would run for years, or fill the memory, ends with an error.
func TestWork(t *testing.T) {
	list := make([]any, 60)
	for i := range list {
		list[i] = 1.0
	}
	context := mustContext(t, map[string]any{"list": list})
	nested := `true`
	for range 8 {
		nested = `{"all": [{"var": "list"}, {"!!": [` + strings.ReplaceAll(nested, `{"var": "list"}`,
			`[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]`) + `]}]}`
	}
	for name, rule := range map[string]string{
		"text":  `{"reduce": [{"var": "list"}, {"cat": [{"var": "accumulator"}, {"var": "accumulator"}]}, "xxxxxxxx"]}`,
		"loops": nested,
	} {
		set := mustParse(t, flagOf(`{"if": [`+rule+`, "on"]}`), Strict)
		if r := set.Evaluate("f", context, 0); r.Code != ParseError ||
			!strings.Contains(r.Message, errTooMuchWork.Error()) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestContext: values are seen as their JSON is, and what has none is refused.
func TestContext(t *testing.T) {
	set := mustParse(t, flagOf(`{"if": [{"===": [{"var": "n"}, 3]}, "on"]}`), Strict)
	type named int
	for _, n := range []any{3, int64(3), 3.0, float32(3), uint8(3), named(3)} {
		if r := set.Evaluate("f", mustContext(t, map[string]any{"n": n}), 0); r.Variant != "on" {
			t.Errorf("%T: %+v", n, r)
		}
	}
	cycle := map[string]any{}
	cycle["again"] = cycle
	for _, bad := range []any{math.NaN(), func() {}, make(chan int), cycle} {
		if _, err := NewContext(map[string]any{"n": bad}); err == nil {
			t.Errorf("%T is taken", bad)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(flagOf(`{"if": [{"node_selector": "a"}, "on"]}`), false)
	f.Add("flags:\n  a: {state: ENABLED, variants: {on: 1}}\n", true)
	f.Add("base: &b {state: ENABLED}\nflags:\n  a: {<<: [*b, {x: 1}], variants: {on: 1}}\n---\n", true)
	f.Fuzz(func(t *testing.T, text string, inYAML bool) {
		format := JSON
		if inYAML {
			format = YAML
		}
		strict, err := Parse("fuzz", []byte(text), format, Strict)
		lenient, lax := Parse("fuzz", []byte(text), format, Lenient)
		if err == nil && lax != nil {
			t.Fatalf("a lenient read refuses more: %v", lax)
		}
		if err == nil && strict.Digest() != lenient.Digest() {
			t.Fatal("the reads differ")
		}
		if lax == nil {
			for _, key := range lenient.Keys() {
				lenient.Evaluate(key, Context{}, 0)
			}
		}
	})
}

func FuzzEvaluate(f *testing.F) {
	f.Add(`{"if": [{"cidr": [{"var": "ip"}, "10.0.0.0/8"]}, "on", "off"]}`, `{"ip": "10.1.1.1", "labels": {"a": "b"}}`)
	f.Add(`{"fractional": [{"var": "a"}, ["on", 1], ["off", {"var": "n"}]]}`, `{"targetingKey": "x", "n": 3}`)
	f.Add(`{"reduce": [{"var": "l"}, {"cat": [{"var": "accumulator"}, {"var": "accumulator"}]}, "x"]}`,
		`{"l": [1,1,1,1,1,1,1,1,1,1,1,1,1]}`)
	f.Add(`{"some": [{"var": "l"}, {"==": [{"var": "n"}, {"substr": ["abc", -1]}]}]}`, `{"l": [{"n": "c"}]}`)
	f.Fuzz(func(t *testing.T, rule, context string) {
		set, err := Parse("fuzz", []byte(flagOf(rule)), JSON, Lenient)
		if err != nil {
			return
		}
		values, _, err := readJSON([]byte(context))
		if err != nil {
			return
		}
		object, _ := values.plain().(map[string]any)
		first := set.Evaluate("f", mustContext(t, object), 7)
		if second := set.Evaluate("f", mustContext(t, object), 7); first.Variant != second.Variant ||
			first.Code != second.Code {
			t.Fatalf("%+v, then %+v", first, second)
		}
		if first.Code == "" && first.Reason == TargetingMatch && first.Variant == "" {
			t.Fatalf("%+v", first)
		}
	})
}
