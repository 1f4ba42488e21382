package flagd

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFeatures compares what fractional, sem_ver and faults come to, with questions about each alone.
func TestFeatures(t *testing.T) {
	for name, feature := range map[string]struct {
		flag     func(generator) object
		outcomes []string
	}{
		"fractional": {generator.fractionalFlag,
			[]string{"TARGETING_MATCH", "DEFAULT", "FALLBACK", "ERRORGENERAL", "ERRORPARSE_ERROR"}},
		"sem_ver": {generator.versionFlag, []string{"TARGETING_MATCH", "DEFAULT", "FALLBACK", "ERRORGENERAL"}},
		"faults": {generator.faultyFlag,
			[]string{"STATIC", "TARGETING_MATCH", "DEFAULT", "FALLBACK", "DISABLED", "ERRORGENERAL", "ERRORPARSE_ERROR",
				"ERRORFLAG_NOT_FOUND", "ERRORTYPE_MISMATCH", "refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, *evaluations/4, feature.outcomes, func(g generator) question { return g.about(feature.flag) })
		})
	}
}

// about is a question about flags of one kind.
func (g generator) about(flag func(generator) object) question {
	set := object{}
	q := question{Kinds: []string{pick(g, "any", "any", "boolean", "string", "float", "integer", "object")}}
	for i := range 4 {
		key := fmt.Sprintf("flag-%d", i)
		set[key] = flag(g)
		q.Keys = append(q.Keys, key)
	}
	if g.chance(20) {
		q.Keys = append(q.Keys, "missing", "")
	}
	q.Set, _ = json.Marshal(object{"flags": set, "$evaluators": object{
		"deal": object{"fractional": []any{object{"var": "email"}, []any{"a", 30}, []any{"b", 70}}},
		"new":  object{"sem_ver": []any{object{"var": "version"}, ">=", "1.2.0"}}}})
	for range 12 {
		context := g.context()
		if g.chance(70) {
			context["version"] = g.version()
		}
		if g.chance(50) {
			context["weight"] = g.weight()
		}
		q.Contexts = append(q.Contexts, context)
	}
	return q
}

var dealt = []object{
	{"a": "A", "b": "B", "c": "C"}, {"true": true, "false": false}, {"1": 1, "50": 50, "0.5": 0.5},
	{"a": object{"x": 1}, "b": object{}, "null": object{}},
}

// names are those of variants, and of some that there are not.
func (g generator) name(variants object) any {
	names := slices.Sorted(maps.Keys(variants))
	switch g.IntN(20) {
	case 0:
		return pick[any](g, nil, "other", "", true, false, 1, 0.5, 50.0, object{}, []any{"a"}, object{"a": 1, "b": 2})
	case 1:
		return object{"if": []any{object{"var": "yes"}, pick(g, names...), pick(g, names...)}}
	case 2:
		return object{"var": pick(g, "tier", "yes", "n", "none")}
	case 3:
		return object{"cat": []any{pick(g, names...), ""}}
	}
	return pick(g, names...)
}

func (g generator) weight() any {
	return pick[any](g, 0, 1, 1, 2, 10, 25, 33, 50, 99, 100, 1000, 1<<30, 1<<31-2, 1<<31-1, 1<<31, 1<<32, 1<<53, 1e18,
		9.3e18, 1e300, -1, -50, -1<<31, -1e18, -9.3e18, 0.5, 1.5, -0.5, 1e-9, "10", "", true, nil,
		[]any{}, object{"a": 1, "b": 2})
}

// dealing is a fractional rule, with all that it takes and some that it does not.
func (g generator) dealing(variants object, depth int) any {
	args := []any{}
	switch g.IntN(12) {
	case 0, 1, 2: // by the flag's key and the targeting key
	case 3, 4:
		args = append(args,
			object{"var": pick(g, "email", "targetingKey", "user.name", "none", "n", "list", "yes", "empty")})
	case 5:
		args = append(args, object{"cat": []any{object{"var": "$flagd.flagKey"}, object{"var": "targetingKey"}}})
	case 6:
		args = append(args, object{"cat": []any{"salt", object{"var": "email"}}})
	case 7:
		args = append(args,
			object{"if": []any{object{"var": "email"}, object{"var": "email"}, object{"var": "targetingKey"}}})
	case 8:
		args = append(args, pick[any](g, "constant", "", nil, 1, true, object{}))
	case 9:
		args = append(args, object{"substr": []any{object{"var": "email"}, g.IntN(3)}})
	case 10:
		args = append(args, object{"var": []any{"none", pick[any](g, "spare", nil, 7)}})
	default:
		if !g.shared {
			args = append(args, object{"$ref": "deal"})
		}
	}
	for range g.IntN(6) {
		var name any = g.name(variants)
		if depth > 0 && g.chance(10) {
			name = g.dealing(variants, depth-1)
		}
		part := []any{name}
		switch g.IntN(10) {
		case 0, 1: // of weight 1
		case 2:
			part = append(part, g.weight())
		case 3:
			part = append(part, object{"var": pick(g, "weight", "n", "user.age", "none")})
		case 4:
			part = append(part,
				object{pick(g, "+", "-", "*", "max", "min"): []any{object{"var": pick(g, "n", "weight")}, g.IntN(100)}})
		case 5:
			part = append(part, object{"if": []any{object{"var": "yes"}, g.IntN(100), 0}})
		default:
			part = append(part, pick(g, 0, 1, 10, 25, 50, 75, 90, 100))
		}
		if g.chance(3) {
			part = append(part, "more")
		}
		args = append(args, part)
	}
	if g.chance(4) {
		args = append(args, pick[any](g, "x", nil, 1, []any{}, object{"var": "list"}, object{"var": "objects"}))
	}
	if g.chance(3) {
		return object{"fractional": pick[any](g, "x", nil, 1, object{"var": "list"}, []any{}, []any{args})}
	}
	return object{"fractional": args}
}

// fractionalFlag deals, at the root of its targeting or further down.
func (g generator) fractionalFlag() object {
	variants := pick(g, dealt...)
	rule := g.dealing(variants, 2)
	switch g.IntN(8) {
	case 0:
		rule = object{"if": []any{g.rule(2), rule, g.name(variants)}}
	case 1:
		rule = object{"if": []any{rule, g.name(variants), g.name(variants)}}
	case 2:
		rule = object{"if": []any{object{"in": []any{rule, []any{"a", "true", true}}}, g.name(variants)}}
	case 3:
		rule = object{pick(g, "cat", "or", "and"): []any{rule, pick[any](g, "", rule)}}
	case 4:
		rule = object{pick(g, "map", "filter", "all", "some"): []any{g.list(1), rule}}
	}
	return g.defaulted(object{"state": "ENABLED", "variants": variants, "targeting": rule})
}

// defaulted gives a flag a default, mostly.
func (g generator) defaulted(flag object) object {
	switch g.IntN(10) {
	case 0:
		flag["defaultVariant"] = nil
	case 1:
	default:
		flag["defaultVariant"] = pick(g, slices.Sorted(maps.Keys(flag["variants"].(object)))...)
	}
	return flag
}

// version is one, or nearly one.
func (g generator) version() any {
	if g.chance(8) {
		return pick[any](g, nil, true, 1, 1.2, 0, 2.0, 1e21, -1, []any{"1.2.3"}, object{"v": 1}, "", "v",
			"V", "vv1.2.3", "latest", "1.2.3.4", "1.x", "1.2.*", "^1.2.3", "=1.2.3", " 1.2.3", "1.2.3 ",
			"1..3", "1.2.", ".1.2", "１.2.3")
	}
	number := func() string { return pick(g, "0", "1", "2", "3", "9", "10", "11", "99", "01", "18446744073709551616") }
	text := pick(g, "", "", "", "v", "v", "V") + number()
	for range g.IntN(3) {
		text += "." + number()
	}
	if g.chance(30) {
		text += "-" + pick(g, "alpha", "alpha.1", "alpha.beta", "beta.2", "beta.11", "rc.1", "rc1", "0", "01",
			"a-b", "eks-abc", "", "é", "1.2.3")
	}
	if g.chance(20) {
		text += "+" + pick(g, "k3s1", "1", "001", "", "a.b", "a+b")
	}
	return text
}

func (g generator) compares() any {
	relation := pick[any](g, "=", "!=", "<", "<=", ">", ">=", "^", "~")
	if g.chance(8) {
		relation = pick[any](g, "==", "===", "=>", "~>", "", " =", "in", nil, 1,
			object{"cat": []any{">", "="}}, object{"var": "tier"})
	}
	args := []any{g.versionOrVar(), relation, g.versionOrVar()}
	switch g.IntN(40) {
	case 0:
		args = args[:g.IntN(3)]
	case 1:
		args = append(args, "1.0.0")
	case 2:
		return object{"sem_ver": pick[any](g, "1.0.0", nil, 1, object{"var": "list"},
			object{"merge": []any{args, []any{}}})}
	}
	return object{"sem_ver": args}
}

func (g generator) versionOrVar() any {
	switch g.IntN(5) {
	case 0, 1:
		return object{"var": "version"}
	case 2:
		return pick[any](g, object{"var": []any{"none", "1.0.0"}}, object{"cat": []any{"v", object{"var": "version"}}},
			object{"substr": []any{object{"var": "version"}, 1}}, object{"var": "none"})
	}
	return g.version()
}

// versionFlag compares versions.
func (g generator) versionFlag() object {
	variants := pick(g, dealt...)
	rule := object{"if": []any{g.compares(), g.name(variants), g.compares(), g.name(variants), g.name(variants)}}
	switch g.IntN(8) {
	case 0:
		rule = g.compares().(object) // true and false are names of variants
	case 1:
		rule = object{"if": []any{object{"===": []any{g.compares(), pick[any](g, nil, true, false)}}, g.name(variants)}}
	case 2:
		rule = object{"if": []any{object{pick(g, "and", "or"): []any{g.compares(), g.compares()}},
			g.name(variants), g.name(variants)}}
	case 3:
		rule = object{"if": []any{object{"$ref": "new"}, g.name(variants), g.name(variants)}}
	}
	return g.defaulted(object{"state": "ENABLED", "variants": variants, "targeting": rule})
}

// faultyFlag has something wrong with it, or what looks like it.
func (g generator) faultyFlag() object {
	variants := pick(g, append(dealt, variantSets...)...)
	flag := g.defaulted(object{"state": pick(g, "ENABLED", "ENABLED", "ENABLED", "DISABLED"), "variants": variants})
	switch g.IntN(12) {
	case 0:
		flag["defaultVariant"] = pick[any](g, "", "other", "", "", "")
	case 1:
		flag["targeting"] = pick[any](g, nil, object{}, "", "a", true, 0, 1, []any{}, []any{"a"},
			object{"": []any{}}, object{"a": 1, "b": 2})
	case 2:
		flag["targeting"] = object{pick(g, "invalid", "IF", "if ", "fractionalEvaluation", "sem-ver",
			"===="): []any{true, g.name(variants)}}
	case 3:
		flag["targeting"] = object{"if": pick[any](g, nil, "a", true, []any{}, []any{true}, []any{true, nil},
			[]any{false, "a"}, []any{nil, "a", "b"}, object{"var": "list"})}
	case 4:
		flag["targeting"] = object{"if": []any{g.rule(3),
			pick[any](g, "other", "A", " a", "a ", "", "\"a\"", "null", nil, 7, []any{}, object{"var": "none"})}}
	case 5:
		flag["targeting"] = g.rule(2)
	case 6:
		flag["targeting"] = object{"var": pick[any](g, "tier", "yes", "", nil, "$flagd",
			"$flagd.flagKey", "object", "list")}
	case 7:
		flag["targeting"] = object{"$ref": pick(g, "deal", "new", "absent", "")}
	case 8:
		flag["targeting"] = object{pick(g, "==", ">", "!", "!!", "in", "and"): g.rules(1, g.IntN(4))}
	case 9:
		flag["targeting"] = object{"if": []any{object{pick(g, "<", ">="): []any{object{"var": "$flagd.timestamp"},
			pick(g, 0, 1_000_000_000, 9_000_000_000)}}, g.name(variants), g.name(variants)}}
	case 10:
		flag["metadata"] = object{"a": pick[any](g, "x", 1, true, nil, 0.5)}
	}
	return flag
}

// TestTestbedFlags compares the flags of flagd-testbed themselves, in contexts of what their rules look at.
func TestTestbedFlags(t *testing.T) {
	folder := testbed(t)
	files, err := filepath.Glob(filepath.Join(folder, "flags", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, filepath.Join(folder, "evaluator", "flags", "testkit-flags.json")) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var set struct {
				Flags map[string]any
			}
			if err := json.Unmarshal(text, &set); err != nil {
				t.Fatal(err)
			}
			words := mentioned(text)
			keys := append(slices.Sorted(maps.Keys(set.Flags)), "missing")
			compare(t, *evaluations/10, nil, func(g generator) question {
				q := question{Set: text, Keys: keys,
					Kinds: []string{pick(g, "any", "boolean", "string", "float", "integer", "object")}}
				for range 8 {
					context := object{}
					for range g.IntN(8) {
						var value any = pick(g, words.values...)
						if g.chance(30) {
							value = pick[any](g, g.version(), g.subject(), 1, 2.5, true, nil, "1")
						}
						context[pick(g, words.paths...)] = value
					}
					q.Contexts = append(q.Contexts, context)
				}
				return q
			})
		})
	}
}

// words are what the rules of a set look at, and compare it with.
type words struct{ paths, values []string }

func mentioned(text []byte) words {
	w := words{paths: []string{"targetingKey"}}
	var walk func(any)
	walk = func(value any) {
		switch v := value.(type) {
		case string:
			w.values = append(w.values, v)
		case []any:
			for _, one := range v {
				walk(one)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if path, ok := v[key].(string); ok && key == "var" {
					w.paths = append(w.paths, path)
				} else {
					walk(v[key])
				}
			}
		}
	}
	var whole any
	if json.Unmarshal(text, &whole) == nil {
		walk(whole)
	}
	return w
}
