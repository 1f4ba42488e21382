package flagd

import (
	"encoding/json"
	"math/rand/v2"
)

// generator makes flag sets and contexts at random: mostly sensible ones, with all that can be odd in them.
type generator struct {
	*rand.Rand
	// shared is true within shared rules: flagd puts nested ones in in a random order.
	shared bool
	// odd is the chance, in percent, of what no person would write.
	odd int
}

func newGenerator(seed uint64) generator {
	return generator{Rand: rand.New(rand.NewPCG(seed, 0x7468657365757321)), odd: int(seed % 3 * 5)}
}

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

func (g generator) chance(percent int) bool { return g.IntN(100) < percent }

type object = map[string]any

// question makes a set of some flags, and contexts for it.
func (g generator) question(flags, contexts int) question {
	set, keys := object{}, []string{}
	if g.chance(20) {
		keys = append(keys, "missing")
	}
	for i := range flags {
		key := string(rune('a'+i%26)) + pick(g, "", "-flag", ".x", "é")
		if _, twice := set[key]; !twice {
			keys = append(keys, key)
		}
		set[key] = g.flag()
	}
	q := question{Keys: keys,
		Kinds: []string{pick(g, "boolean", "string", "float", "integer", "object", "any", "any", "any", "any")}}
	inner := generator{g.Rand, true, g.odd}
	definition := object{"flags": set, "$evaluators": object{"rule": inner.operator(2), "pick": inner.operator(1)}}
	if g.chance(50) {
		definition["metadata"] = object{"team": "net", "n": 1, "off": nil}
	}
	q.Set, _ = json.Marshal(definition)
	for range contexts {
		q.Contexts = append(q.Contexts, g.context())
	}
	return q
}

// variantSets have one type each, as the schema asks, but for the last.
var variantSets = []object{
	{"on": true, "off": false}, {"true": true, "false": false},
	{"red": "red", "blue": "", "null": "n", "1": "one"},
	{"one": 1, "half": 0.5, "big": 1e21, "zero": 0, "-7": -7},
	{"a": object{"x": 1}, "b": object{}},
	{"on": 1, "off": "x", "none": nil, "list": []any{1.0}, "a<b": true, "é": false},
}

func (g generator) flag() object {
	variants := pick(g, variantSets...)
	names := make([]any, 0, len(variants))
	for _, name := range []string{"on", "off", "true", "false", "red", "blue", "null", "1", "one", "half", "big",
		"zero", "-7", "a", "b", "none", "list", "a<b", "é"} {
		if _, ok := variants[name]; ok {
			names = append(names, name)
		}
	}
	flag := object{"state": pick(g, "ENABLED", "ENABLED", "ENABLED", "ENABLED", "DISABLED"), "variants": variants}
	switch {
	case g.chance(80):
		flag["defaultVariant"] = pick(g, names...)
	case g.chance(50):
		flag["defaultVariant"] = nil
	case g.chance(g.odd):
		flag["defaultVariant"] = "unknown"
	}
	if g.chance(30) {
		flag["metadata"] = object{"flag": true, "team": pick[any](g, "own", nil)}
	}
	switch {
	case g.chance(g.odd):
		flag["targeting"] = pick[any](g, object{}, nil, "on", true, 1, []any{"on"})
	case g.chance(90):
		flag["targeting"] = g.targeting(names)
	}
	return flag
}

// targeting is a rule that mostly yields one of the names.
func (g generator) targeting(names []any) any {
	name := func() any {
		if g.chance(2 + g.odd) {
			return pick[any](g, nil, nil, "wrong", true, 1, 1.5, object{"a": 1, "b": 2}, []any{"on"}, g.rule(2))
		}
		return pick(g, names...)
	}
	switch g.IntN(6) {
	case 0:
		return g.fractional(name)
	case 1:
		return g.operator(4)
	case 2:
		return object{"if": []any{g.rule(3), g.fractional(name), name()}}
	default:
		clauses := []any{}
		for range 1 + g.IntN(5) {
			clauses = append(clauses, g.rule(4), name())
		}
		return object{pick(g, "if", "if", "if", "?:"): clauses[:len(clauses)-g.IntN(2)]}
	}
}

func (g generator) fractional(name func() any) any {
	args := []any{}
	switch g.IntN(4) {
	case 0:
		args = append(args, object{"var": "targetingKey"})
	case 1:
		args = append(args, object{"cat": []any{object{"var": "$flagd.flagKey"}, g.variable()}})
	case 2:
		args = append(args, g.rule(2))
	}
	for range g.IntN(5) {
		switch {
		case g.chance(15):
			args = append(args, []any{name()})
		case g.chance(g.odd):
			args = append(args,
				pick[any](g, "x", nil, []any{}, []any{name(), 1.5}, []any{name(), "1"}, []any{name(), nil},
					[]any{name(), 2147483647}, []any{name(), 3e9}, []any{name(), -1e300},
					[]any{name(), g.rule(1)}, []any{name(), 1, 2}))
		default:
			args = append(args, []any{name(), pick(g, 0, 1, 5, 10, 25, 50, 100, 1000, 100000, -3)})
		}
	}
	return object{"fractional": args}
}

var paths = []any{"email", "tier", "n", "list", "objects", "object", "version", "targetingKey", "user.name", "user.age",
	"none", "yes", "list.0", "empty", "$flagd.flagKey", "list.x", "objects.1.n", "", ".n", "n", "text",
	"nothing.here", 1, 0, 1.5, nil}

func (g generator) variable() any {
	path := pick(g, paths...)
	if !g.chance(3 * g.odd) {
		return object{"var": pick(g, paths[:12]...)}
	}
	switch g.IntN(6) {
	case 0:
		return object{"var": []any{path, g.literal()}}
	case 1:
		return object{"var": []any{path}}
	case 2:
		return object{"var": g.rule(1)}
	case 3:
		return object{"var": pick[any](g, []any{}, []any{path, 1, 2}, true, object{})}
	}
	return object{"var": path}
}

func (g generator) literal() any {
	return pick[any](g, nil, true, false, 0, 1, 2, 5, -1, 0.5, 10, 1e21, "", "a", "abc", "premium", "5", " 5", "1e3",
		"1.0.0", "x@y.z", "inf", "é<&\"\\", []any{}, []any{1, 2, 3}, []any{"a", "premium"}, []any{[]any{1, 5}, "a"},
		object{}, object{"a": 1, "b": 2})
}

// rule is a value, a var, or an operator.
func (g generator) rule(depth int) any {
	switch {
	case depth <= 0 || g.chance(20):
		return g.literal()
	case g.chance(35):
		return g.variable()
	case !g.shared && g.chance(8):
		return object{"$ref": pick(g, "rule", "pick", "absent")}
	}
	return g.operator(depth)
}

func (g generator) rules(depth, n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = g.rule(depth)
	}
	return list
}

// lists are what list operators work on.
func (g generator) list(depth int) any {
	return pick[any](g, object{"var": "list"}, object{"var": "objects"}, object{"var": "text"}, []any{1, 2, 3, nil},
		[]any{"a", object{"var": "n"}}, []any{}, object{"merge": g.rules(depth, 2)},
		g.rule(depth), object{"var": "none"})
}

var binary = []string{"==", "!=", "===", "!==", "<", "<=", ">", ">=", "+", "-", "*", "/", "%",
	"in", "starts_with", "ends_with", "and", "or", "cat", "max", "min", "contains_all", "contains_any", "contains_none"}

func (g generator) operator(depth int) any {
	if g.chance(g.odd / 2) {
		return object{pick(g, binary...): g.rule(depth - 1)}
	}
	if g.chance(g.odd / 2) {
		return object{pick(g, append(binary, "map", "filter", "all", "some", "none", "reduce", "if", "substr",
			"missing_some", "sem_ver", "abs", "set", "unknown")...): g.rules(depth-1, g.IntN(5))}
	}
	switch g.IntN(14) {
	case 0:
		return object{"!": pick[any](g, []any{g.rule(depth - 1)}, g.rule(depth-1))}
	case 1:
		return object{"!!": pick[any](g, []any{g.rule(depth - 1)}, g.rule(depth-1))}
	case 2:
		return object{"sem_ver": []any{pick[any](g, object{"var": "version"}, "1.2.3", "v2", 1.1, g.rule(1)),
			pick[any](g, "=", "!=", "<", "<=", ">", ">=", "^", "~", "~", "===", nil, object{"cat": []any{"<", "="}}),
			pick[any](g, "1.2.3", "1", "v1.2", "V1.0.0", "1.2.3-rc.1", "1.2.3+b", "bad", 2, "1.2.3.4",
				"v01.2.3", object{"var": "version"})}}
	case 3:
		return object{pick(g, "all", "some", "none"): []any{g.list(depth - 1), g.element(depth - 1)}}
	case 4:
		return object{pick(g, "map", "filter"): []any{g.list(depth - 1), g.element(depth - 1)}}
	case 5:
		return object{"reduce": []any{g.list(depth - 1), object{pick(g, "+", "*", "cat", "max", "and", "or"): []any{
			object{"var": "accumulator"}, object{"var": pick(g, "current", "current.n", "valueType", "")}}},
			pick[any](g, 0, 1, "", "x", true, nil, []any{}, g.rule(1))}}
	case 6:
		return object{"substr": g.substring(depth)}
	case 7:
		return object{"missing": pick[any](g, []any{"email", "none"}, "email", []any{"", 1}, g.rules(1, 2))}
	case 8:
		return object{"missing_some": []any{g.rule(1), pick[any](g, []any{"email", "none", "n"}, g.rule(1))}}
	case 9:
		return object{pick(g, "<", "<=", ">", ">="): g.rules(depth-1, 3)}
	case 10:
		return object{pick(g, "abs", "merge", "+", "cat", "set"): pick[any](g, g.rule(depth-1),
			g.rules(depth-1, g.IntN(4)))}
	}
	return object{pick(g, binary...): g.rules(depth-1, 2)}
}

func (g generator) substring(depth int) []any {
	args := []any{pick[any](g, object{"var": "email"}, "aéßc", g.rule(depth-1)),
		pick[any](g, 0, 1, -2, -20, 3, "1", 1e300)}
	if g.chance(60) {
		args = append(args, pick[any](g, 0, 1, 2, -1, -30, 1e300, nil))
	}
	if g.chance(5) {
		args = append(args, "more")
	}
	return args
}

// element is what is done with the elements of a list.
func (g generator) element(depth int) any {
	switch g.IntN(4) {
	case 0:
		return object{pick(g, ">", "==", "<="): []any{object{"var": pick[any](g, "", "n", ".n")},
			pick[any](g, 2, object{"var": "n"})}}
	case 1:
		return object{"var": pick[any](g, "", "n", "object", "tier")}
	case 2:
		return object{pick(g, "fractional", "starts_with", "in"): g.rules(1, 2)}
	}
	return g.rule(depth)
}

func (g generator) context() object {
	context := object{}
	put := func(key string, values ...any) {
		if g.chance(75) {
			context[key] = pick(g, values...)
		}
	}
	put("targetingKey", "user-1", "5c3d8535-f81a-4478-a6d3-afaa4d51199e",
		"", g.subject(), g.subject(), g.subject(), 7, nil)
	put("email", "a@b.c", "x@y.z", "premium@corp.example", 12, nil)
	put("tier", "premium", "free", "", true)
	put("n", 0, 1, 2, 5, -3, 2.5, "5", true, nil)
	put("list", []any{1, 2, 3}, []any{}, []any{"a", nil, true}, []any{[]any{1, 2}}, "text", []any{object{"var": "n"}})
	put("objects", []any{object{"n": 1}, object{"n": 5}}, []any{object{"n": "x", "m": 1}, 3},
		[]any{object{"targetingKey": "inner", "n": 2}})
	put("object", object{"a": 1}, object{"var": "tier"}, object{"a": 1, "b": 2}, object{}, object{"==": []any{1, 1}})
	put("version", "1.2.3", "v1.2.4", "V1.0.0", "2.0.0-rc1", "1.2", "1", "1.29.3+k3s1", "bad", 1.2, 2, nil, "1.0.0.0")
	put("user", object{"name": "jo", "age": 40}, object{}, "flat")
	put("yes", true, false)
	put("text", "premium", "5", " trimmed ")
	put("empty", "", []any{}, object{})
	put("1", "key one", 1)
	if g.chance(10) {
		context["$flagd"] = "mine"
	}
	return context
}

func (g generator) subject() string {
	letters := []rune("abcdefghij0123456789-_é")
	text := make([]rune, 1+g.IntN(20))
	for i := range text {
		text[i] = letters[g.IntN(len(letters))]
	}
	return string(text)
}
