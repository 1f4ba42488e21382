package flagset

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxProblems is the maximum number of problems reported.
const maxProblems = 100

// loader turns a tree into a set and collects the problems.
type loader struct {
	mode       Mode
	name       string
	evaluators map[string]*tree
	compiler   compiler
	problems   []Problem
	warnings   []Problem
}

// refuse reports a problem that every mode refuses.
func (l *loader) refuse(line int, path, format string, args ...any) {
	if len(l.problems) < maxProblems {
		l.problems = append(l.problems, Problem{line, path, fmt.Sprintf(format, args...)})
	}
}

// fault reports a problem that flagd accepts with a warning.
func (l *loader) fault(line int, path, format string, args ...any) {
	if l.mode == Strict {
		l.refuse(line, path, format, args...)
		return
	}
	l.warn(line, path, format, args...)
}

func (l *loader) warn(line int, path, format string, args ...any) {
	if len(l.warnings) < maxProblems {
		l.warnings = append(l.warnings, Problem{line, path, fmt.Sprintf(format, args...)})
	}
}

func (l *loader) load(root *tree) *Set {
	set := &Set{flags: map[string]*definition{}}
	entries, ok := root.value.([]entry)
	if !ok {
		l.refuse(root.line, "", "a flag set is an object with the key flags")
		return set
	}
	l.known(entries, "", "flags", "$evaluators", "metadata", "$schema", "$comment")
	l.readEvaluators(root.get("$evaluators"))
	set.metadata = l.metadata(root.get("metadata"), "metadata")
	flags := root.get("flags")
	if flags == nil {
		l.refuse(root.line, "", "the key flags is missing")
		return set
	}
	switch v := flags.value.(type) {
	case []entry:
		l.unique(v, "flags")
		for _, e := range counting(v) {
			if f := l.flag(e.key, e.line, e.value, set.metadata); e.key != "" {
				set.flags[e.key] = f
			}
		}
	case []*tree:
		l.flagList(v, set)
	case nil:
		l.fault(flags.line, "flags", "an object of flags is expected")
	default:
		l.refuse(flags.line, "flags", "an object of flags is expected")
	}
	set.metadata = mergedMetadata(set.metadata, nil)
	return set
}

// flagList reads flags in list form, each with its key.
func (l *loader) flagList(list []*tree, set *Set) {
	for i, t := range list {
		path := fmt.Sprintf("flags[%d]", i)
		if _, ok := t.value.([]entry); !ok && t.value != nil {
			l.refuse(t.line, path, "a flag is an object with key, state and variants")
			continue
		}
		key := ""
		if at := t.get("key"); at != nil {
			l.text(at, join(path, "key"))
			key, _ = at.value.(string)
		}
		if key == "" {
			l.fault(t.line, path, "the key is missing: it names the flag")
		}
		if _, twice := set.flags[key]; twice {
			l.fault(t.line, path, "the flag %q is defined twice", key)
		}
		if f := l.flag(key, t.line, t, set.metadata); key != "" {
			set.flags[key] = f
		}
	}
}

// known warns of unknown keys: most are typing errors.
func (l *loader) known(entries []entry, path string, keys ...string) {
	for _, e := range entries {
		if !slices.Contains(keys, e.key) {
			l.warn(e.line, join(path, e.key), "this key is not allowed here: it is one of %s", strings.Join(keys, ", "))
		}
	}
	l.unique(entries, path)
}

func (l *loader) unique(entries []entry, path string) {
	seen := map[string]int{}
	for _, e := range entries {
		if line, ok := seen[e.key]; ok {
			l.fault(e.line, join(path, e.key), "duplicate key: line %d has it too", line)
		}
		if e.key == "" {
			l.fault(e.line, path, "an empty name")
		}
		seen[e.key] = e.line
	}
}

// counting returns the effective entries: of several equal keys, the last.
func counting(entries []entry) []entry {
	last := make(map[string]int, len(entries))
	for i, e := range entries {
		last[e.key] = i
	}
	if len(last) == len(entries) {
		return entries
	}
	var all []entry
	for i, e := range entries {
		if last[e.key] == i {
			all = append(all, e)
		}
	}
	return all
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func (l *loader) metadata(t *tree, path string) map[string]any {
	if t == nil || t.value == nil {
		return nil
	}
	entries, ok := t.value.([]entry)
	if !ok {
		l.refuse(t.line, path, "an object is expected")
		return nil
	}
	l.unique(entries, path)
	for _, e := range entries {
		switch e.value.value.(type) {
		case string, float64, bool:
		default:
			l.fault(e.line, join(path, e.key), "a string, a number or a boolean is expected")
		}
	}
	values, _ := t.plain().(map[string]any)
	return values
}

func (l *loader) flag(key string, line int, t *tree, set map[string]any) *definition {
	path := "flags." + key
	f := &definition{line: line, origin: l.name}
	t = &tree{line, t.value} // a block of YAML starts a line after its key
	entries, ok := t.value.([]entry)
	if !ok && (l.mode == Strict || t.value != nil) {
		l.refuse(line, path, "a flag is an object with state and variants")
		return f
	}
	l.known(entries, path, "key", "state", "variants", "defaultVariant", "targeting", "metadata",
		"source", "$comment", "description")
	for _, name := range []string{"key", "source"} { // they have no meaning here, but flagd reads them
		if at := t.get(name); at != nil {
			l.text(at, join(path, name))
		}
	}
	l.state(f, t, path)
	l.variants(f, t, path)
	l.defaultVariant(f, t, path)
	f.metadata = mergedMetadata(set, l.metadata(t.get("metadata"), join(path, "metadata")))
	var rule any
	if targeting := t.get("targeting"); targeting != nil {
		rule = l.rule(f, targeting, join(path, "targeting"))
	}
	// The value was decoded from JSON, so encoding it cannot fail; keys are sorted.
	text, _ := json.Marshal([]any{f.disabled, f.variants, f.defaultVariant, f.metadata, rule})
	f.digest = sha256.Sum256(text)
	return f
}

// text refuses a value that is neither a string nor null.
func (l *loader) text(t *tree, path string) {
	if _, ok := t.value.(string); !ok && t.value != nil {
		l.refuse(t.line, path, "a string is expected")
	}
}

func (l *loader) state(f *definition, t *tree, path string) {
	at := t.get("state")
	if at == nil || at.value == nil {
		l.fault(t.line, path, "state is missing: ENABLED or DISABLED")
		return
	}
	state, ok := at.value.(string)
	switch {
	case !ok:
		l.refuse(at.line, join(path, "state"), "ENABLED or DISABLED is expected")
	case state != "ENABLED" && state != "DISABLED":
		l.fault(at.line, join(path, "state"), "%q is neither ENABLED nor DISABLED", state)
	}
	f.disabled = state == "DISABLED"
}

func (l *loader) variants(f *definition, t *tree, path string) {
	at := t.get("variants")
	if at == nil || at.value == nil {
		l.fault(t.line, path, "variants are missing: an object of values by name")
		return
	}
	path = join(path, "variants")
	entries, ok := at.value.([]entry)
	if !ok {
		l.refuse(at.line, path, "an object of values by name is expected")
		return
	}
	if len(entries) == 0 {
		l.fault(at.line, path, "there is no variant")
		return
	}
	l.unique(entries, path)
	first := kindOf(entries[0].value)
	for _, e := range entries {
		switch kind := kindOf(e.value); {
		case kind == "":
			l.fault(e.line, join(path, e.key), "a boolean, a string, a number or an object is expected")
		case kind != first && first != "":
			l.fault(e.line, join(path, e.key), "this is a %s, but %s is a %s: all variants must have the same type",
				kind, entries[0].key, first)
		}
	}
	f.variants, _ = at.plain().(map[string]any)
}

// kindOf names a variant's type; empty if the type is not allowed.
func kindOf(t *tree) string {
	switch t.value.(type) {
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		return "number"
	case []entry:
		return "object"
	}
	return ""
}

func (l *loader) defaultVariant(f *definition, t *tree, path string) {
	at := t.get("defaultVariant")
	if at == nil || at.value == nil {
		return
	}
	path = join(path, "defaultVariant")
	name, ok := at.value.(string)
	if !ok {
		l.refuse(at.line, path, "the name of a variant is expected, or null for the caller's default")
		return
	}
	if _, ok := f.variants[name]; !ok && name != "" {
		l.refuse(at.line, path, "there is no variant %q: %s", name, names(f.variants))
	}
	if name == "" {
		l.fault(at.line, path, "an empty name: use null for the caller's default")
	}
	f.defaultVariant = name
}

func names(variants map[string]any) string {
	const most = 10
	sorted := slices.Sorted(maps.Keys(variants))
	switch {
	case len(sorted) == 0:
		return "there is none"
	case len(sorted) > most:
		sorted = append(sorted[:most], "...")
	}
	return "there is " + strings.Join(sorted, ", ")
}

// rule prepares targeting, if there is any, and returns it with the shared rules inserted.
func (l *loader) rule(f *definition, t *tree, path string) any {
	entries, isObject := t.value.([]entry)
	if isObject && len(entries) == 0 {
		return nil
	}
	if !isObject {
		l.fault(t.line, path, "an object is expected: a rule, or {} for none")
	}
	c := checker{loader: l}
	c.rule(t, path, 0)
	c.results(f, t, path, 0)
	rule := l.expand(t, 0)
	f.rule = l.compiler.compile(rule)
	if l.compiler.left < 0 {
		l.refuse(t.line, path, "with shared rules inserted, the rules are too large")
		l.compiler.left = 0
	}
	return rule
}

// readEvaluators reads the shared rules, and refuses cyclic ones.
func (l *loader) readEvaluators(t *tree) {
	if t == nil || t.value == nil {
		return
	}
	const path = "$evaluators"
	entries, ok := t.value.([]entry)
	if !ok {
		l.refuse(t.line, path, "an object of rules by name is expected")
		return
	}
	l.unique(entries, path)
	entries = counting(entries)
	l.evaluators = map[string]*tree{}
	for _, e := range entries {
		l.evaluators[e.key] = e.value
		if text, _ := json.Marshal(e.value.value); len(text) < 3 { // such as {}, "" and 5: flagd checks the length too
			l.refuse(e.line, join(path, e.key), "an empty rule")
		} else if _, ok := e.value.value.([]entry); !ok {
			l.fault(e.line, join(path, e.key), "an object is expected: a rule")
		}
	}
	state := map[string]int{}
	for _, e := range entries {
		if l.cyclic(e.key, state) {
			l.refuse(e.line, join(path, e.key), "its $ref leads back to itself")
			delete(l.evaluators, e.key)
		}
	}
	for _, e := range entries {
		if rule := l.evaluators[e.key]; rule != nil {
			c := checker{loader: l}
			c.rule(rule, join(path, e.key), 0)
		}
	}
}

// cyclic walks the shared rules that a rule refers to. The state is 1 while a rule is being walked, 2 when it is known
// to be acyclic.
func (l *loader) cyclic(name string, state map[string]int) bool {
	switch state[name] {
	case 1:
		return true
	case 2:
		return false
	}
	state[name] = 1
	if rule := l.evaluators[name]; rule != nil && slices.ContainsFunc(references(rule), func(other string) bool {
		return l.cyclic(other, state)
	}) {
		return true
	}
	state[name] = 2
	return false
}

// references returns the names that a rule refers to.
func references(t *tree) []string {
	var found []string
	switch v := t.value.(type) {
	case []*tree:
		for _, element := range v {
			found = append(found, references(element)...)
		}
	case []entry:
		if name, ok := reference(v); ok {
			return []string{name}
		}
		for _, e := range v {
			found = append(found, references(e.value)...)
		}
	}
	return found
}

// reference returns the name in {"$ref": name}.
func reference(entries []entry) (string, bool) {
	if len(entries) != 1 || entries[0].key != "$ref" {
		return "", false
	}
	name, ok := entries[0].value.value.(string)
	return name, ok
}

// expand returns the rule with the shared rules inserted; unknown references stay.
func (l *loader) expand(t *tree, depth int) any {
	if l.compiler.left--; l.compiler.left < 0 || depth > maxDepth*10 {
		l.compiler.left = -1
		return nil
	}
	switch v := t.value.(type) {
	case []*tree:
		list := make([]any, len(v))
		for i, element := range v {
			list[i] = l.expand(element, depth+1)
		}
		return list
	case []entry:
		if name, ok := reference(v); ok && l.evaluators[name] != nil {
			return l.expand(l.evaluators[name], depth+1)
		}
		object := make(map[string]any, len(v))
		for _, e := range v {
			object[e.key] = l.expand(e.value, depth+1)
		}
		return object
	}
	return t.value
}
