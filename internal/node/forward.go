package node

import (
	"slices"
	"strings"
)

// forward is the policy of the chain FORWARD, empty when there is none, and what may accept a new connection there.
func forward(tables []table) (policy string, accepting []string) {
	for i := range tables {
		t := &tables[i]
		at := slices.IndexFunc(t.chains, func(c chain) bool { return c.name == "FORWARD" })
		if t.name == "filter" && at >= 0 {
			return t.chains[at].policy, t.accepting("FORWARD")
		}
	}
	return "", nil
}

// accepting names what may accept a new connection in a chain: chains that it leads to by their names, and its own
// rules.
func (t *table) accepting(chain string) []string {
	rules := map[string][]rule{}
	for _, r := range t.rules {
		rules[r.chain] = append(rules[r.chain], r)
	}
	var accepts func(rule) bool
	accepts = func(r rule) bool { return r.accepts() || slices.ContainsFunc(rules[r.target()], accepts) }
	var found []string
	for _, r := range rules[chain] {
		switch {
		case r.accepts():
			found = append(found, r.spec)
		case accepts(r) && !slices.Contains(found, r.target()):
			found = append(found, r.target())
		}
	}
	return found
}

// accepts says whether a rule may accept a new connection: not one for what is there already, nor one for ICMP alone.
func (r rule) accepts() bool {
	if target := r.target(); target != "ACCEPT" && target != "NFQUEUE" {
		return false
	}
	if slices.Contains(r.options("-p"), "icmp") && !strings.Contains(r.spec, "! -p ") {
		return false
	}
	states := strings.Join(r.options("--ctstate", "--state"), ",")
	return states == "" || strings.Contains(r.spec, "! --") ||
		slices.ContainsFunc(strings.Split(states, ","), func(state string) bool {
			return state != "RELATED" && state != "ESTABLISHED"
		})
}
