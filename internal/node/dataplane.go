package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/step"
)

// dataplanePause is the time between two looks at the rules.
const dataplanePause = 250 * time.Millisecond

// dataplane looks until the rules are as wanted, or the time is up; then the error says what is missing, and the
// answer still has what was seen.
func (n *Node) dataplane(ctx context.Context, d step.Dataplane) (Answer, error) {
	if d.Want != "" && d.Want != step.IPTables && d.Want != step.NFTables {
		return Answer{}, fmt.Errorf("the data plane %q is not known", d.Want)
	}
	deadline := time.Now().Add(time.Duration(d.For))
	var since *pace
	for {
		r, err := n.rules(ctx, d)
		if err != nil && time.Now().Before(deadline) && ctx.Err() == nil {
			_ = outage.Sleep(ctx, dataplanePause) // what is being written cannot always be read
			continue
		}
		if err != nil {
			return Answer{}, err
		}
		seen := r.attest(n.Name, d, &since)
		missing := lacking(d, seen)
		switch {
		case missing == "" && (d.Want != "" || time.Now().After(deadline)):
			return answer(false, attested(seen), seen)
		case missing != "" && time.Now().After(deadline), ctx.Err() != nil:
			got, encoding := answer(false, "", seen)
			if encoding != nil {
				return Answer{}, encoding
			}
			return got, fmt.Errorf("%s, for %s", cmp.Or(missing, "it was not watched to the end"), time.Duration(d.For))
		}
		_ = outage.Sleep(ctx, dataplanePause)
	}
}

// lacking says what is not as wanted yet; empty when all is.
func lacking(d step.Dataplane, seen step.Attestation) string {
	switch {
	case d.Want == "":
		return ""
	case seen.Kernel != d.Want:
		return fmt.Sprintf("rules are in %s, not in %s alone", seen.Kernel, d.Want)
	case d.Want == step.NFTables && seen.Sets > 0:
		return fmt.Sprintf("%d ipsets of iptables are left", seen.Sets)
	case len(seen.Bare) > 0:
		return "there are no rules for " + strings.Join(seen.Bare, ", ")
	case d.Passed && seen.Passed == 0:
		return "no packet to or from a pod passed the rules in " + d.Want
	case d.Refused && seen.Refused == 0:
		return "no packet was dropped or rejected by the rules in " + d.Want
	}
	return ""
}

func attested(seen step.Attestation) string {
	return fmt.Sprintf("%s: %d pods, %d packets let through and %d refused while watched",
		seen.Kernel, seen.Pods, seen.Passed, seen.Refused)
}

// ruleset is what a node has of an agent's rules.
type ruleset struct {
	tables []string // nft
	chains int      // iptables
	sets   []string
	links  []string
	// filter are the rules of the filter chains of both data planes.
	filter []counted
}

// counted is a rule with its counter.
type counted struct {
	plane, chain string
	verdict      string // "accept", "return", "drop" or empty
	packets      int64
}

// pace is what the counters were at the first look, in the data plane that they are of.
type pace struct {
	plane           string
	passed, refused int64
}

// attest turns a ruleset into an attestation; counters count from the first look that saw the same data plane.
func (r ruleset) attest(node string, d step.Dataplane, since **pace) step.Attestation {
	seen := step.Attestation{Node: node, At: time.Now().UTC(), Kernel: "none", Tables: r.tables, Chains: r.chains,
		Sets: len(r.sets), Pods: len(r.links)}
	switch {
	case len(r.tables) > 0 && r.chains > 0:
		seen.Kernel = "both"
	case len(r.tables) > 0:
		seen.Kernel = step.NFTables
	case r.chains > 0:
		seen.Kernel = step.IPTables
	}
	chains := map[string]bool{}
	now := pace{plane: seen.Kernel}
	for _, rule := range r.filter {
		name, link, ok := podChain(rule.chain, d.PerLink)
		if !ok || !slices.Contains(r.links, link) || d.Want != "" && rule.plane != d.Want {
			continue
		}
		chains[name] = true
		switch rule.verdict {
		case "accept", "return":
			now.passed += rule.packets
		case "drop":
			now.refused += rule.packets
		}
	}
	for _, link := range r.links {
		if slices.ContainsFunc(d.PerLink, func(prefix string) bool { return !chains[prefix+link] }) {
			seen.Bare = append(seen.Bare, link)
		}
	}
	if *since == nil || (*since).plane != now.plane || now.passed < (*since).passed || now.refused < (*since).refused {
		*since = &now
	}
	seen.Passed, seen.Refused = now.passed-(*since).passed, now.refused-(*since).refused
	return seen
}

// podChain takes apart the name of a pod's chain, which in nft begins with its table of iptables.
func podChain(chain string, perLink []string) (name, link string, ok bool) {
	for _, prefix := range perLink {
		if at := strings.Index(chain, prefix); at == 0 || at > 0 && chain[at-1] == '-' {
			return chain[at:], chain[at+len(prefix):], true
		}
	}
	return "", "", false
}

// rules reads all that there is of an agent's rules.
func (n *Node) rules(ctx context.Context, d step.Dataplane) (ruleset, error) {
	var r ruleset
	for _, b := range backends() {
		text, err := n.Commands.run(ctx, "", b.program("-save"), "-c")
		if err != nil {
			return r, err
		}
		chains, rules := countedSave(text, d.Chains)
		r.chains += chains
		r.filter = append(r.filter, rules...)
	}
	present, err := n.nftables(ctx, true)
	if err != nil {
		return r, err
	}
	r.tables = step.Pick(d.Tables, present)
	for _, name := range r.tables {
		kind, table, _ := strings.Cut(name, " ")
		text, err := n.Commands.run(ctx, "", "nft", "-j", "list", "table", kind, table)
		if err != nil {
			return r, err
		}
		rules, err := countedTable(text)
		if err != nil {
			return r, err
		}
		r.filter = append(r.filter, rules...)
	}
	sets, err := n.ipsets(ctx, true)
	if err != nil {
		return r, err
	}
	r.sets = step.Pick(d.Sets, sets)
	all, err := links()
	for _, link := range all {
		if step.Matches(d.Links, link.Name) {
			r.links = append(r.links, link.Name)
		}
	}
	return r, err
}

// countedLine is a rule as `iptables-save -c` prints it.
var countedLine = regexp.MustCompile(`^\[(\d+):\d+\] -A (\S+)(?:.* -j (ACCEPT|RETURN|DROP))?`)

// countedSave reads the chains that patterns mean, of all tables, and the rules of those of the filter table.
func countedSave(text string, patterns []string) (chains int, rules []counted) {
	filter := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			filter = line == "*filter"
		case strings.HasPrefix(line, ":"):
			if name, _, _ := strings.Cut(line[1:], " "); step.Matches(patterns, name) {
				chains++
			}
		case filter:
			found := countedLine.FindStringSubmatch(line)
			if found == nil || !step.Matches(patterns, found[2]) {
				continue
			}
			packets, _ := strconv.ParseInt(found[1], 10, 64) // digits, as the expression demands
			rules = append(rules, counted{step.IPTables, found[2], strings.ToLower(found[3]), packets})
		}
	}
	return chains, rules
}

// countedTable reads the rules of a table as `nft -j list table` prints it.
func countedTable(text string) ([]counted, error) {
	var listed struct {
		NFTables []struct {
			Rule *struct {
				Chain string
				Expr  []map[string]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &listed); err != nil {
		return nil, fmt.Errorf("read an nft table: %w", err)
	}
	var rules []counted
	for _, item := range listed.NFTables {
		if item.Rule == nil {
			continue
		}
		rule := counted{plane: step.NFTables, chain: item.Rule.Chain}
		for _, expression := range item.Rule.Expr {
			for kind, value := range expression {
				var counter struct{ Packets int64 }
				switch kind {
				case "accept", "return", "drop":
					rule.verdict = kind
				case "counter":
					if json.Unmarshal(value, &counter) == nil { // a named counter is a text
						rule.packets = counter.Packets
					}
				}
			}
		}
		rules = append(rules, rule)
	}
	return rules, nil
}
