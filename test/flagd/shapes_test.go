package flagd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestShapes compares what becomes of sets that are not as the schema has them, in one place or in a few: of flags that
// are no objects, of names and types that are not expected, and of shared rules of every kind.
func TestShapes(t *testing.T) {
	compare(t, *evaluations/2, []string{"STATIC", "TARGETING_MATCH", "DEFAULT", "FALLBACK", "DISABLED",
		"ERRORGENERAL", "ERRORPARSE_ERROR", "ERRORFLAG_NOT_FOUND", "ERRORTYPE_MISMATCH", "refused"},
		func(g generator) question { return g.shaped() })
}

// TestText compares what becomes of JSON whose text is changed in some places: what is refused, and what is read
// otherwise.
func TestText(t *testing.T) {
	compare(t, *evaluations/4, []string{"STATIC", "TARGETING_MATCH", "DEFAULT", "refused"}, func(g generator) question {
		q := g.shaped()
		q.Set = g.damage(q.Set)
		return q
	})
}

// TestYAML compares sets as people write them in YAML.
func TestYAML(t *testing.T) {
	compare(t, *evaluations/8, []string{"STATIC", "TARGETING_MATCH", "DEFAULT", "refused"}, generator.yaml)
}

// TestContexts compares what becomes of contexts whose values are odd in type or in text.
func TestContexts(t *testing.T) {
	compare(t, *evaluations/4, []string{"STATIC", "TARGETING_MATCH", "DEFAULT", "FALLBACK", "ERRORGENERAL",
		"ERRORPARSE_ERROR"}, func(g generator) question {
		q := g.question(6, 6)
		if g.chance(60) {
			q = g.about(pick(g, generator.fractionalFlag, generator.versionFlag))
		}
		for _, context := range q.Contexts {
			for range 1 + g.IntN(4) {
				context[pick(g, "targetingKey", "targetingKey", "email", "tier", "n", "list", "objects", "version",
					"weight", "text", "user", "$flagd")] = g.oddity()
			}
		}
		return q
	})
}

// oddity is a value that nobody expects in a context: numbers at the ends of their range, texts that are nearly numbers
// or have spaces and letters of other kinds, and structures.
func (g generator) oddity() any {
	return pick[any](g, true, 1.5, math.Copysign(0, -1), 1e308, 5e-324, 1<<53+2, -1e-7, []any{}, []any{nil},
		[]any{[]any{}}, object{}, object{"0": "a"}, object{"name": nil},
		object{"flagKey": "mine", "timestamp": 1, "more": true}, "0x10", "0x1p4", "1_000", "0b1", "Infinity", "-inf",
		"nan", "+1", ".5", "5.", "1e", "1e400", "-0", "5\u00a0", "\u2003x\u2003", "\x00", "1\n", "\ufeff1", "e\u0301",
		"é", "𝒳", "\u202e1", "true", "null", "[]", strings.Repeat("é", 300), strings.Repeat("9", 400))
}

// anything is a value of any type.
func (g generator) anything() any {
	return pick[any](g, nil, nil, 0, 1, 1.5, true, false, "", "x", "on", object{}, object{"x": 1},
		[]any{}, []any{"x"}, []any{object{}})
}

// keys are names of flags and of variants.
var keys = []string{"a", "b", "new-flag", "a.b", "é", "A", "with space", "1", "true", "null", "$ref", "a<b", "x\"y"}

// shaped makes a set with an oddity or two in it.
func (g generator) shaped() question {
	flags := object{}
	q := question{Kinds: []string{pick(g, "any", "any", "any", "boolean", "string", "float", "integer", "object")},
		Keys: []string{pick(g, "missing", "", "a.b")}}
	for range 1 + g.IntN(4) {
		key := pick(g, keys...)
		flags[key] = g.shapedFlag()
		q.Keys = append(q.Keys, key)
	}
	shared := generator{g.Rand, true, g.odd}
	rules := object{"new": shared.compares(), "deal": shared.dealing(dealt[0], 1),
		"value": pick[any](g, "a", true, nil, 12345, object{"var": "tier"})}
	set := object{"flags": flags, "$evaluators": rules}
	switch g.IntN(24) {
	case 0:
		set["flags"] = g.anything()
	case 1:
		list := []any{}
		for key, flag := range flags {
			if o, ok := flag.(object); ok && g.chance(85) {
				o["key"] = key
			}
			list = append(list, flag)
		}
		if g.chance(20) {
			list = append(list, g.anything())
		}
		set["flags"] = list
	case 2:
		set["$evaluators"] = pick[any](g, nil, 1, "x", []any{}, object{}, object{"new": true},
			object{"x": nil}, object{"x": 1})
	case 3:
		// flagd finds none whose name is escaped in JSON
		rules[pick(g, "new", "a.b", "é", "")] = pick[any](g, nil, true, "", "on", 5, 100, []any{}, object{},
			object{"var": "tier"}, []any{"on"}, []any{object{"var": "tier"}})
	case 4, 5, 6, 7:
		set["metadata"] = g.metadata()
	case 8:
		flags[""] = g.shapedFlag()
	case 9:
		set[pick(g, "$schema", "metadata", "extra", "flag")] = g.anything()
	}
	q.Set, _ = json.Marshal(set)
	if g.chance(1) {
		q.Set, _ = json.Marshal(g.anything())
	}
	for range 4 {
		context := g.context()
		if g.chance(30) {
			context["objects"] = []any{object{"targetingKey": "inner", "$flagd": pick[any](g, object{"flagKey": "z"},
				object{"flagKey": "z", "timestamp": pick[any](g, 1, nil)}, object{"flagKey": 5}, "x", nil)},
				object{"targetingKey": pick[any](g, "user-1", 7, "")}}
		}
		if g.chance(10) {
			context[pick(g, "", "a.b", "user.name", "$ref", "$flagd.flagKey", "targetingKey.x")] = g.literal()
		}
		q.Contexts = append(q.Contexts, context)
	}
	return q
}

// metadata is that of a set or of a flag.
func (g generator) metadata() any {
	if g.chance(8) {
		return g.anything()
	}
	data := object{}
	for range g.IntN(5) {
		data[pick(g, "team", "owner", "n", "é", "", "a<b")] = pick[any](g, "net", "", 1, -0.5, 1e21,
			true, false, nil, g.anything())
	}
	if g.chance(10) {
		data["flagSetId"] = pick[any](g, "net", 1, nil) // a flag with an empty one gets lost in flagd
	}
	return data
}

// shapedFlag is a flag with nothing odd about it, or with one thing.
func (g generator) shapedFlag() any {
	variants := pick(g, append(dealt, variantSets...)...)
	flag := g.defaulted(object{"state": "ENABLED", "variants": variants})
	switch g.IntN(5) {
	case 0, 1:
		flag["targeting"] = object{"if": []any{g.rule(2), g.name(variants), g.name(variants)}}
	case 2:
		flag["targeting"] = g.referring(variants)
	case 3:
		flag["targeting"] = g.affixed(variants)
	}
	if g.chance(25) {
		flag["metadata"] = g.metadata()
	}
	if g.chance(60) {
		return flag
	}
	switch g.IntN(14) {
	case 0:
		flag["state"] = pick[any](g, "DISABLED", "DISABLED", "", "enabled", "disabled",
			" DISABLED", "OFF", g.anything())
	case 1:
		delete(flag, "state")
	case 2:
		flag["variants"] = g.anything()
	case 3:
		delete(flag, "variants")
		if g.chance(50) {
			delete(flag, "defaultVariant")
		}
	case 4:
		flag["variants"] = object{pick(g, keys...): g.anything(), "on": g.anything(), "": "empty"}
		flag["defaultVariant"] = pick(g, "on", "")
	case 5:
		flag["defaultVariant"] = g.anything()
	case 6:
		flag["key"] = g.anything()
	case 7:
		flag["source"] = g.anything()
	case 8:
		flag["targeting"] = g.anything()
	case 9:
		flag[pick(g, "description", "$comment", "extra", "default", "flagSetId", "priority")] = g.anything()
	case 10:
		return g.anything()
	case 11: // by what the set tells every rule
		flag["targeting"] = pick[any](g, object{"var": "$flagd.flagKey"},
			object{"fractional": []any{object{"var": "$flagd.flagKey"}, []any{"a", 1}, []any{"b", 1}}},
			object{"if": []any{object{"==": []any{object{"var": "$flagd.flagKey"}, pick(g, keys...)}},
				g.name(variants), g.name(variants)}},
			object{"if": []any{object{">": []any{object{"var": []any{"$flagd.timestamp", 0}},
				pick[any](g, 1e9, "1000000000", 9e9, nil)}}, g.name(variants), g.name(variants)}},
			object{"if": []any{object{"missing": []any{"$flagd.flagKey", "$flagd.timestamp", "$flagd.more"}},
				g.name(variants), g.name(variants)}},
			object{"if": []any{object{"===": []any{object{"substr": []any{object{"var": "$flagd.timestamp"}, 0, 1}},
				"1"}}, g.name(variants), g.name(variants)}})
	case 12: // by elements of lists that look like contexts
		flag["targeting"] = object{"reduce": []any{object{"map": []any{pick[any](g, object{"var": "objects"},
			object{"merge": []any{object{"var": ""}}}), g.dealing(variants, 1)}},
			object{"cat": []any{object{"var": "accumulator"}, object{"var": "current"}}}, ""}}
	}
	return flag
}

// referring is a rule with shared rules in it.
func (g generator) referring(variants object) any {
	ref := func() any {
		if g.chance(15) {
			return pick[any](g, object{"$ref": g.anything()}, object{"$ref": []any{"new"}}, object{"$ref": "new",
				"x": 1}, object{"$ref": object{"var": "tier"}}, object{"$ref": " new"}, object{"$REF": "new"})
		}
		return object{"$ref": pick(g, "new", "deal", "value", "value", "absent", pick(g, keys...))}
	}
	return pick[any](g, ref(), object{"if": []any{ref(), g.name(variants), g.name(variants)}},
		object{"if": []any{g.rule(1), ref(), ref()}}, object{"!": ref()}, object{"!": []any{ref()}},
		object{"and": []any{ref(), ref(), g.name(variants)}}, object{"fractional": []any{ref(),
			[]any{g.name(variants), ref()}, []any{ref(), 1}}}, object{"fractional": []any{ref(), ref()}},
		object{"sem_ver": []any{object{"var": "version"}, ">=", ref()}}, object{"cat": []any{ref(), ""}},
		object{"var": []any{"none", ref()}}, object{"some": []any{object{"var": "objects"}, ref()}},
		object{"map": []any{[]any{ref()}, ref()}}, object{"in": []any{ref(), []any{ref(), "a"}}},
		[]any{ref()}, object{"a": ref(), "b": 1})
}

// affixed compares beginnings and ends, mostly of texts.
func (g generator) affixed(variants object) any {
	value := func() any {
		return pick[any](g, object{"var": "email"}, object{"var": "tier"}, object{"var": "text"},
			object{"var": "version"}, object{"cat": []any{object{"var": "tier"}, "é"}}, "premium",
			"é", "", " trimmed", "5", "X@Y.Z", object{"substr": []any{object{"var": "email"}, 0, 2}},
			object{"substr": []any{object{"var": "email"}, -3}}, object{"var": []any{"none", "premium"}}, g.rule(1))
	}
	args := []any{value(), value()}
	switch g.IntN(12) {
	case 0:
		args = args[:g.IntN(2)]
	case 1:
		args = append(args, value())
	}
	test := object{pick(g, "starts_with", "ends_with"): pick[any](g, args, args, args, args, args, args, value(),
		object{"merge": []any{args}})}
	switch g.IntN(4) {
	case 0:
		return test
	case 1:
		return object{"if": []any{object{"===": []any{test, pick[any](g, nil, false, true)}},
			g.name(variants), g.name(variants)}}
	}
	return object{"if": []any{test, g.name(variants), g.name(variants)}}
}

// damage changes some bytes of a text.
func (g generator) damage(text []byte) []byte {
	if g.chance(30) { // the same, written otherwise
		var indented bytes.Buffer
		_ = json.Indent(&indented, text, pick(g, "", " "), pick(g, "\t", "  ", "\r"))
		text = indented.Bytes()
	}
	for range g.IntN(3) {
		at, parts := g.IntN(len(text)), []string{"{", "}", "[", "]", ",", ":", `"`, `\`, "0", "1", "-", ".",
			"e", "E5", "00", "9999999999999999999", "1e999", "null", "true", " ", "\n", "\x00", "\xff",
			`\u0041`, `\ud800`, `\u2028`, "é", "//", "/*", `,"state":"DISABLED"`, `,"variants":{}`,
			`"a":1,`, `"$evaluators":{},`, `"flags":{},`, "{}", "[]", `""`}
		switch g.IntN(4) {
		case 0:
			text = append(bytes.Clone(text[:at]), text[at+1:]...)
		case 1:
			end := min(at+1+g.IntN(12), len(text))
			text = append(bytes.Clone(text[:end]), text[at:]...)
		default:
			text = append(append(bytes.Clone(text[:at]), pick(g, parts...)...), text[at:]...)
		}
		if len(text) == 0 {
			return text
		}
	}
	if g.chance(5) {
		text = append(text, pick(g, " ", "\n\n", "x", "{}", ",", "null", "\x00")...)
	}
	return text
}

// yaml makes a set as text, of what YAML has more than one way for.
func (g generator) yaml() question {
	scalar := func() string {
		if g.chance(4) {
			return pick(g, ".inf", "-.INF", ".nan", "*nowhere", "? x", "!!int x", "{1: x}")
		}
		return pick(g, "on", "off", "yes", "No", "true", "True", "FALSE", "null", "~", "", "Null", "1",
			"0o17", "017", "0x1F", "0b11", "1_000", "1e3", "1E3", ".5", "5.", "+1", "-0", "1.0", "1.2.3",
			"9007199254740993", "18446744073709551616", "12:30:45", "'1'", `"on"`, `"a\tb"`, "!!str 1",
			"!!int '1'", "!!float 1", "!!bool 'true'", "a b", "&other x", "{x: 1}", "[1, two]",
			"{true: x, No: y}", "{<<: {x: 1, y: 3}, y: 2}", "{<<: [{x: 1}, {x: 2}]}", "é", "=", "<<")
	}
	name := func() string {
		return pick(g, "on", "off", "yes", "true", "1", "-5", "off", "a", "b", "é", "\"a b\"", "!!str 2", "'<<'")
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%sflags:\n", pick(g, "", "", "", "---\n", "%YAML 1.1\n---\n", "# note\n", "$schema: x\n",
		"metadata: {version: "+scalar()+"}\n", "base: &map {a: 1}\n"))
	q := question{YAML: true, Kinds: []string{pick(g, "any", "any", "string", "integer")},
		Contexts: []map[string]any{g.context(), g.context()}}
	for _, key := range []string{"f", pick(g, "g", "1", "on", "'2'")} {
		one, two := name(), name()
		if one == two {
			two = "other" // YAML has no key twice
		}
		fmt.Fprintf(&text, "  %s:\n    state: %s\n    variants:%s\n      %s: %s\n      %s: %s\n",
			key, pick(g, "ENABLED", "ENABLED", "'ENABLED'", "&state ENABLED", "!!str ENABLED", "DISABLED"),
			pick(g, "", "", " &map", " !!map"), one, scalar(), two, scalar())
		if g.chance(70) {
			fmt.Fprintf(&text, "    defaultVariant: %s\n", pick(g, one, two, "'"+one+"'", "a", "null", "~", ""))
		}
		if g.chance(40) {
			fmt.Fprintf(&text, "    targeting: %s\n", pick(g, "{}", "{var: tier}", "{if: [{var: yes}, "+one+", "+two+
				"]}", "\n      if:\n      - var: [yes]\n      - "+one+"\n      - "+two, "{==: [1, "+scalar()+"]}",
				"{\"!\": {var: n}}", ">-\n      on", "|\n      {}", "null", "{<<: {var: tier}}"))
		}
		if g.chance(20) {
			fmt.Fprintf(&text, "    metadata: {team: %s, %s: 1}\n", scalar(), name())
		}
		q.Keys = append(q.Keys, strings.Trim(key, "'"))
	}
	text.WriteString(pick(g, "", "", "", "$evaluators: {r: {var: tier}}\n", "...\n", "---\n", "# end", "}"))
	q.Set = []byte(text.String())
	return q
}
