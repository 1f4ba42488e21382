// Package certs determines which names the certificates of a cluster need for its mirror, how to add and remove them,
// and how the authority validates each name. It also validates the certificate that an address serves for a name.
package certs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
)

// Rule maps a domain of the original to a domain of the mirror. Both are lower case, without a trailing dot.
type Rule struct{ Old, New string }

// Rules are the user's rules.
type Rules []Rule

// ParseRules parses rules of the form OLD=NEW.
func ParseRules(texts []string) (Rules, error) {
	var rules Rules
	for _, text := range texts {
		old, new, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("%q is no rule OLD=NEW", text)
		}
		var rule Rule
		var err error
		if rule.Old, err = domain(old); err != nil {
			return nil, err
		}
		if rule.New, err = domain(new); err != nil {
			return nil, err
		}
		switch {
		case rule.Old == rule.New:
			return nil, fmt.Errorf("%s stands for itself", rule.Old)
		case slices.ContainsFunc(rules, func(other Rule) bool { return other.Old == rule.Old }):
			return nil, fmt.Errorf("%s has two rules", rule.Old)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func domain(text string) (string, error) {
	name, err := zone.Canonical(text)
	if err != nil || strings.Contains(name, "*") || strings.HasPrefix(name, ".") {
		return "", fmt.Errorf("%q is no domain", text)
	}
	return strings.TrimSuffix(name, "."), nil
}

// Mirror returns a name's equivalent on the mirror; not ok if no rule applies. The rule with the longest domain wins.
func (r Rules) Mirror(name string) (mirror string, ok bool) {
	best := -1
	lower := strings.ToLower(strings.TrimSuffix(name, "."))
	for _, rule := range r {
		if lower != rule.Old && !strings.HasSuffix(lower, "."+rule.Old) || len(rule.Old) <= best {
			continue
		}
		best = len(rule.Old)
		mirror = strings.TrimSuffix(lower, rule.Old) + rule.New
	}
	return mirror, best >= 0
}

// Missing returns the mirror's names that a list of names lacks, without duplicates, in the order of the list.
func (r Rules) Missing(names []string) ([]string, error) {
	var missing []string
	for _, name := range names {
		mirror, ok := r.Mirror(name)
		if !ok || contains(names, mirror) || slices.Contains(missing, mirror) {
			continue
		}
		if _, err := zone.Canonical(mirror); err != nil {
			return nil, fmt.Errorf("%s: its name on the mirror, %s, is not a domain name", name, mirror)
		}
		missing = append(missing, mirror)
	}
	return missing, nil
}

func contains(names []string, name string) bool {
	return slices.ContainsFunc(names, func(one string) bool { return strings.EqualFold(one, name) })
}
