package flagset

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// arity is how many arguments an operator takes; most 0 means any number.
type arity struct{ least, most int }

// arities are those of flagd's schema; < and > take three where the reference does.
var arities = map[string]arity{
	"==": {2, 2}, "!=": {2, 2}, "===": {2, 2}, "!==": {2, 2},
	"<": {2, 3}, "<=": {2, 3}, ">": {2, 3}, ">=": {2, 3},
	"!": {0, 1}, "!!": {0, 1}, "and": {1, 0}, "or": {1, 0}, "if": {1, 0}, "?:": {1, 0},
	"+": {1, 0}, "-": {1, 0}, "*": {1, 0}, "/": {1, 0}, "%": {2, 2}, "abs": {1, 1},
	"max": {1, 0}, "min": {1, 0}, "cat": {1, 0}, "substr": {2, 3}, "in": {2, 2}, "merge": {0, 0},
	"map": {2, 2}, "filter": {2, 2}, "reduce": {3, 3}, "all": {2, 2}, "none": {2, 2}, "some": {2, 2},
	"missing": {0, 0}, "missing_some": {2, 2}, "set": {3, 3}, "var": {0, 2},
	"contains_all": {2, 2}, "contains_any": {2, 2}, "contains_none": {2, 2},
	"starts_with": {2, 2}, "ends_with": {2, 2}, "sem_ver": {3, 3}, "fractional": {1, 0}, "cidr": {2, 2},
	"node_selector": {1, 2},
}

// alone lists the operators that take a single argument without a list.
var alone = []string{"!", "!!", "var", "missing", "abs", "+", "cat", "merge", "node_selector"}

// checker finds what is wrong in a rule before it is evaluated.
type checker struct{ *loader }

func (c *checker) rule(t *tree, path string, depth int) {
	switch v := t.value.(type) {
	case []*tree:
		for _, element := range v {
			c.rule(element, path, depth+1)
		}
	case []entry:
		if len(v) != 1 {
			c.fault(t.line, path, "an operator is an object with one key, but this one has %d", len(v))
			return
		}
		c.operator(v[0], join(path, v[0].key), depth)
	}
}

func (c *checker) operator(e entry, path string, depth int) {
	if e.key == "$ref" {
		name, _ := e.value.value.(string)
		if c.evaluators[name] == nil {
			c.fault(e.line, path, "there is no shared rule %q in $evaluators", name)
		}
		return
	}
	takes, ok := arities[e.key]
	if !ok {
		c.fault(e.line, path, "there is no operator %q", e.key)
		return
	}
	args, isList := e.value.value.([]*tree)
	if !isList {
		if !slices.Contains(alone, e.key) {
			c.fault(e.line, path, "expected a list of arguments")
			return
		}
		args = []*tree{e.value}
	}
	if len(args) < takes.least || takes.most > 0 && len(args) > takes.most {
		c.fault(e.line, path, "%s, here are %d", takes, len(args))
		return
	}
	if check := constants[e.key]; check != nil {
		if reason := check(args); reason != "" {
			c.fault(e.line, path, "%s", reason)
		}
	}
	if e.key == "node_selector" {
		args = args[1:]
	}
	for _, arg := range args {
		c.rule(arg, path, depth+1)
	}
}

func (a arity) String() string {
	switch {
	case a.most == 0:
		return fmt.Sprintf("at least %d arguments are expected", a.least)
	case a.least == a.most:
		return fmt.Sprintf("%d arguments are expected", a.least)
	}
	return fmt.Sprintf("%d to %d arguments are expected", a.least, a.most)
}

// constants check arguments that are constants in the rule; they return an empty text if the arguments are valid.
var constants = map[string]func(args []*tree) string{
	"var": checkVar, "starts_with": checkTexts, "ends_with": checkTexts, "sem_ver": checkSemver,
	"fractional": checkFractional, "cidr": checkCIDR, "node_selector": checkSelector,
}

// isRule reports whether a value is only known when it is evaluated.
func isRule(t *tree) bool {
	_, ok := t.value.([]entry)
	return ok
}

func checkVar(args []*tree) string {
	if len(args) == 0 {
		return ""
	}
	path, _ := args[0].value.(string)
	if rest, ok := strings.CutPrefix(path, flagdKey+"."); ok && rest != "flagKey" && rest != "timestamp" {
		return "$flagd has flagKey and timestamp"
	}
	return ""
}

func checkTexts(args []*tree) string {
	for _, arg := range args {
		if _, ok := arg.value.(string); !ok && !isRule(arg) {
			return "two strings are expected"
		}
	}
	return ""
}

func checkSemver(args []*tree) string {
	if name, _ := args[1].value.(string); !isRule(args[1]) && relations[name] == nil {
		return fmt.Sprintf("%v is not a relation: use one of =, !=, <, <=, >, >=, ^, ~", args[1].plain())
	}
	for _, arg := range []*tree{args[0], args[2]} {
		if _, ok := version(arg.plain()); !isRule(arg) && !ok {
			return fmt.Sprintf("%v is not a version", arg.plain())
		}
	}
	return ""
}

func checkFractional(args []*tree) string {
	if _, isBucket := args[0].value.([]*tree); !isBucket {
		args = args[1:]
	}
	if len(args) == 0 {
		return "there is no bucket"
	}
	total := 0.0
	for _, arg := range args {
		bucket, _ := arg.value.([]*tree)
		if len(bucket) == 0 || len(bucket) > 2 {
			return "a bucket is a list of a variant and a weight"
		}
		if len(bucket) == 1 {
			total++
			continue
		}
		weight, ok := bucket[1].value.(float64)
		if isRule(bucket[1]) {
			continue
		}
		if !ok || weight != math.Trunc(weight) || weight < 0 {
			return fmt.Sprintf("%v is not a weight: a weight is a whole number from 0", bucket[1].plain())
		}
		total += weight
	}
	if total > math.MaxInt32 {
		return fmt.Sprintf("the weights add up to %.0f, the most is %d", total, math.MaxInt32)
	}
	return ""
}

func checkCIDR(args []*tree) string {
	if _, ok := parsePrefixes(args[1].plain()); !ok && len(references(args[1])) == 0 && !hasRule(args[1]) {
		return fmt.Sprintf("%v is neither an address nor a prefix", args[1].plain())
	}
	return ""
}

// hasRule reports whether a value, or an element of a list, is a rule.
func hasRule(t *tree) bool {
	list, _ := t.value.([]*tree)
	return isRule(t) || slices.ContainsFunc(list, isRule)
}

func checkSelector(args []*tree) string {
	if _, err := parseNodeSelector(args[0].plain()); err != nil {
		return err.Error()
	}
	return ""
}

// booleans are the operators that yield true or false.
var booleans = []string{"==", "!=", "===", "!==", "<", "<=", ">", ">=", "!", "!!", "in", "all", "none", "some",
	"starts_with", "ends_with", "sem_ver", "cidr", "node_selector", "contains_all", "contains_any", "contains_none"}

// results finds variants that a rule yields but the flag does not have.
func (c *checker) results(f *definition, t *tree, path string, depth int) {
	if c.compiler.left--; depth > maxDepth || c.compiler.left < 0 {
		return
	}
	switch v := t.value.(type) {
	case string, float64, bool:
		name, _ := variantName(v)
		if _, ok := f.variants[name]; !ok {
			c.fault(t.line, path, "there is no variant %q: %s", name, names(f.variants))
		}
	case []entry:
		if len(v) != 1 {
			return
		}
		path = join(path, v[0].key)
		if name, ok := reference(v); ok && c.evaluators[name] != nil {
			c.results(f, &tree{t.line, c.evaluators[name].value}, path, depth+1)
			return
		}
		args, _ := v[0].value.value.([]*tree)
		switch {
		case v[0].key == "if" || v[0].key == "?:":
			for i, arg := range args {
				if i%2 == 1 || i == len(args)-1 {
					c.results(f, arg, path, depth+1)
				}
			}
		case v[0].key == "fractional":
			for _, arg := range args {
				if bucket, ok := arg.value.([]*tree); ok && len(bucket) > 0 {
					c.results(f, bucket[0], path, depth+1)
				}
			}
		case slices.Contains(booleans, v[0].key):
			for _, name := range []string{"true", "false"} {
				if _, ok := f.variants[name]; !ok {
					c.warn(v[0].line, path, "it yields %s, but there is no variant of that name: %s",
						name, names(f.variants))
				}
			}
		}
	}
}
