package node

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
)

// table is one iptables table as iptables-save prints it.
type table struct {
	name   string
	chains []chain
	rules  []rule
}

// chain is a chain; policy is empty for those that are not built in.
type chain struct {
	name, policy string
}

// rule is one rule as saved. Fed back with -D for -A, the spec removes exactly this rule.
type rule struct {
	chain string
	spec  string // what follows the chain's name
}

// parseSave reads the output of iptables-save, without counters.
func parseSave(text string) ([]table, error) {
	var tables []table
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "#") && strings.Contains(line, "is incompatible") {
			return nil, fmt.Errorf("iptables cannot read its own table: %s", strings.TrimPrefix(line, "# "))
		}
		if line == "" || line == "COMMIT" || strings.HasPrefix(line, "#") {
			continue
		}
		if strings.HasPrefix(line, "*") {
			tables = append(tables, table{name: line[1:]})
			continue
		}
		if len(tables) == 0 {
			return nil, fmt.Errorf("a line outside any table: %q", line)
		}
		if err := tables[len(tables)-1].add(line); err != nil {
			return nil, err
		}
	}
	return tables, lines.Err()
}

// add takes one line of a table: ":NAME POLICY [0:0]" or "-A NAME ...".
func (t *table) add(line string) error {
	if declared, found := strings.CutPrefix(line, ":"); found {
		fields := strings.Fields(declared)
		if len(fields) < 2 {
			return fmt.Errorf("not a chain: %q", line)
		}
		t.chains = append(t.chains, chain{fields[0], strings.Trim(fields[1], "-")})
		return nil
	}
	r, ok := parseRule(line)
	if !ok {
		return fmt.Errorf("not a rule: %q", line)
	}
	t.rules = append(t.rules, r)
	return nil
}

// parseRule reads "-A CHAIN SPEC".
func parseRule(line string) (rule, bool) {
	rest, found := strings.CutPrefix(line, "-A ")
	if !found {
		return rule{}, false
	}
	name, spec, _ := strings.Cut(rest, " ")
	return rule{name, spec}, name != ""
}

// parseChain reads the rules of one chain out of what `iptables -S CHAIN` prints.
func parseChain(text string) []rule {
	var rules []rule
	for line := range strings.Lines(text) {
		if r, ok := parseRule(strings.TrimSpace(line)); ok {
			rules = append(rules, r)
		}
	}
	return rules
}

// option returns the value after any of the names in a rule's spec.
func (r rule) option(names ...string) string {
	if values := r.options(names...); len(values) > 0 {
		return values[0]
	}
	return ""
}

// options returns the values after any of the names in a rule's spec, in order.
func (r rule) options(names ...string) []string {
	var values []string
	words := split(r.spec)
	for i, word := range words[:max(len(words)-1, 0)] {
		if slices.Contains(names, word) {
			values = append(values, words[i+1])
		}
	}
	return values
}

// links are the interfaces that the rule matches on, or excludes.
func (r rule) links() []string {
	return r.options("-i", "--in-interface", "-o", "--out-interface", "--physdev-in", "--physdev-out")
}

// sets are the ipsets that the rule matches on, or excludes.
func (r rule) sets() []string { return r.options("--match-set") }

// target is the chain or target that the rule jumps or goes to.
func (r rule) target() string { return r.option("-j", "--jump", "-g", "--goto") }

// comment is the rule's comment, or empty.
func (r rule) comment() string { return r.option("--comment") }

// split cuts a spec into words the way iptables-restore does: double quotes hold words together, and a
// backslash within them takes the next character as it is.
func split(spec string) []string {
	var words []string
	var word strings.Builder
	quoted, started, escaped := false, false, false
	for _, r := range spec {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case quoted && r == '\\':
			escaped = true
		case r == '"':
			quoted, started = !quoted, true
		case r == ' ' && !quoted:
			if started {
				words = append(words, word.String())
			}
			word.Reset()
			started = false
		default:
			word.WriteRune(r)
			started = true
		}
	}
	if started {
		words = append(words, word.String())
	}
	return words
}
