package node

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// Names of an iptables guard. A copy has its original's name with another beginning, so that it is as long and
// neither the owner nor its tools take it for their own.
const (
	copyPrefix   = "th"
	armedSet     = "theseus-armed"
	guardComment = "theseus-guard"
)

func copyName(name string) string { return copyPrefix + name[len(copyPrefix):] }

// guardedTables are the tables of iptables that are copied: what denies, and what translates.
var guardedTables = []string{"filter", "nat"}

// guardIPTables copies the chains of the filter and nat tables that the patterns mean, and the sets that their rules
// match. The jump to a copy that filters comes before everything else, and the one to a copy that translates after it:
// only a connection that nothing else translated gets there. The owner's own rules stay as they are.
func (n *Node) guardIPTables(ctx context.Context, g step.Guard, limit time.Duration) ([]string, error) {
	var made []string
	for _, b := range backends() {
		tables, err := n.save(ctx, b)
		if err != nil {
			return nil, err
		}
		for _, t := range tables {
			if !slices.Contains(guardedTables, t.name) || len(t.leftChains(g.Chains)) == 0 {
				continue // an earlier copy is kept: its original may be gone already
			}
			script, sets := t.guarded(g, armed(b.family))
			if err := n.copySets(ctx, sets, b.family, limit); err != nil {
				return nil, err
			}
			if err := n.restore(ctx, b, script); err != nil {
				return nil, fmt.Errorf("guard the %s table of %s: %w", t.name, b.program(""), err)
			}
			made = append(made, b.program("")+" "+t.name)
		}
	}
	return made, nil
}

// releaseIPTables removes the copies.
func (n *Node) releaseIPTables(ctx context.Context, g step.Guard) ([]string, error) {
	if len(g.Chains) == 0 {
		return nil, nil
	}
	copies := step.Residue{IPSets: []string{armedSet + "*"}}
	for _, pattern := range g.Chains {
		copies.Chains = append(copies.Chains, copyName(pattern))
	}
	for _, pattern := range g.Sets {
		copies.IPSets = append(copies.IPSets, copyName(pattern))
	}
	found, err := n.find(ctx, copies)
	if err != nil || found.Count() == 0 {
		return nil, err
	}
	left, failed, err := n.removeUntilGone(ctx, copies, found)
	if err == nil && left.Count() > 0 {
		err = errors.Join(failed, fmt.Errorf("a copy stays: %s", named(left)))
	}
	return []string{"iptables"}, err
}

func armed(f family) string {
	if f == ip6 {
		return armedSet + "6"
	}
	return armedSet + "4"
}

// halves are the two sets of addresses that are all addresses: a set takes no 0.0.0.0/0.
func halves(f family) (kind string, all []string) {
	if f == ip6 {
		return "inet6", []string{"::/1", "8000::/1"}
	}
	return "inet", []string{"0.0.0.0/1", "128.0.0.0/1"}
}

// copySets copies sets, as they are now, and makes the one whose elements' time is the guard's.
func (n *Node) copySets(ctx context.Context, sets []string, f family, limit time.Duration) error {
	var script strings.Builder
	kind, all := halves(f)
	fmt.Fprintf(&script, "create %s hash:net family %s timeout 0\n", armed(f), kind)
	for _, half := range all {
		fmt.Fprintf(&script, "add %s %s timeout %d\n", armed(f), half, int(limit.Seconds()))
	}
	for _, name := range sets {
		saved, err := n.Commands.run(ctx, "", "ipset", "save", name)
		if err != nil {
			return err
		}
		script.WriteString(copiedSet(saved, name))
	}
	_, err := n.Commands.run(ctx, script.String(), "ipset", "restore", "-exist")
	return err
}

// copiedSet turns what `ipset save NAME` printed into a script that makes the copy.
func copiedSet(saved, name string) string {
	var script strings.Builder
	for line := range strings.Lines(saved) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 3)
		if len(words) < 3 || words[1] != name {
			continue
		}
		fmt.Fprintf(&script, "%s %s %s\n", words[0], copyName(name), words[2])
		if words[0] == "create" {
			fmt.Fprintf(&script, "flush %s\n", copyName(name))
		}
	}
	return script.String()
}

// reference is where a rule names a chain or a set.
var reference = regexp.MustCompile(`(^| )(-j|-g|--match-set) (\S+)`)

// guarded is the script that copies a table's chains next to them, and the sets that the copies match.
func (t table) guarded(g step.Guard, armed string) (script string, sets []string) {
	chains := t.leftChains(g.Chains)
	rename := func(spec string) string {
		return reference.ReplaceAllStringFunc(spec, func(found string) string {
			words := reference.FindStringSubmatch(found)
			switch {
			case words[2] == "--match-set":
				sets = append(sets, words[3])
			case !slices.Contains(chains, words[3]):
				return found
			}
			return words[1] + words[2] + " " + copyName(words[3])
		})
	}
	var lines, jumps []string
	for _, name := range chains {
		lines = append(lines, ":"+copyName(name)+" - [0:0]")
	}
	for _, r := range t.rules {
		if r.comment() == guardComment {
			lines = append(lines, "-D "+r.chain+" "+r.spec)
		}
	}
	for _, r := range t.rules {
		comments := strings.Join(r.options("--comment"), " ")
		switch {
		case slices.ContainsFunc(g.Without, func(words string) bool { return strings.Contains(comments, words) }):
		case slices.Contains(chains, r.chain):
			// The owner knows its rules by their comments, wherever they are.
			lines = append(lines, "-A "+copyName(r.chain)+" "+withoutComments(rename(r.spec)))
		case slices.Contains(chains, r.target()):
			jumps = append(jumps, t.place(r.chain)+" -m set --match-set "+armed+
				" src -m comment --comment "+guardComment+
				" "+withoutComments(rename(r.spec)))
		}
	}
	if t.name != "nat" {
		slices.Reverse(jumps) // each is put before the others
	}
	var b strings.Builder
	writeTable(&b, t.name, append(lines, jumps...))
	slices.Sort(sets)
	return b.String(), slices.Compact(sets)
}

// place is where a jump to a copy goes: last where the first translation wins, first where any may deny.
func (t table) place(chain string) string {
	if t.name == "nat" {
		return "-A " + chain
	}
	return "-I " + chain + " 1"
}

// comment is the match that carries a comment.
var comment = regexp.MustCompile(`(^| )-m comment --comment ("(\\.|[^"\\])*"|\S+)`)

func withoutComments(spec string) string {
	return strings.TrimSpace(comment.ReplaceAllString(spec, ""))
}
