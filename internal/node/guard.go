package node

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// guardSuffix makes the name of a table's copy.
const guardSuffix = "-theseus"

// guard copies the filter and NAT rules of nft tables, and of iptables chains, next to them. A packet passes both, so
// what is denied stays denied while the owner of the first takes them away and writes its rules elsewhere. A new
// connection that the owner's rules do not translate is translated by the copy: if it left without, connection tracking
// would keep it so, and no answer would find its way back.
func (n *Node) guard(ctx context.Context, g step.Guard) (Answer, error) {
	limit := time.Duration(g.For).Truncate(time.Second)
	if limit <= 0 {
		return Answer{}, fmt.Errorf("a guard for %s is not supported", time.Duration(g.For))
	}
	present, err := n.nftables(ctx, true)
	if err != nil {
		return Answer{}, err
	}
	made, err := n.guardIPTables(ctx, g, limit)
	if err != nil {
		return Answer{}, err
	}
	for _, name := range step.Pick(g.Tables, present) {
		family, table, _ := strings.Cut(name, " ")
		if slices.Contains(present, name+guardSuffix) {
			again, err := n.rearm(ctx, family, table+guardSuffix, limit)
			if err != nil {
				return Answer{}, fmt.Errorf("guard table %s again: %w", name, err)
			}
			if again {
				made = append(made, name)
				continue
			}
		}
		text, err := n.Commands.run(ctx, "", "nft", "list", "table", family, table)
		if err != nil {
			return Answer{}, err
		}
		for _, script := range guardOf(text, family, table, g.Without, limit) {
			if _, err := n.Commands.run(ctx, script, "nft", "-f", "-"); err != nil {
				return Answer{}, fmt.Errorf("guard table %s: %w", name, err)
			}
		}
		made = append(made, name)
	}
	if len(made) == 0 {
		return Answer{Message: "nothing to guard"}, nil
	}
	return Answer{Changed: true, Message: "guarded for " + limit.String() + ": " + strings.Join(made, ", ")}, nil
}

// release removes the copies.
func (n *Node) release(ctx context.Context, g step.Guard) (Answer, error) {
	present, err := n.nftables(ctx, true)
	if err != nil {
		return Answer{}, err
	}
	gone, err := n.releaseIPTables(ctx, g)
	if err != nil {
		return Answer{}, err
	}
	for _, name := range g.Tables {
		if !slices.Contains(present, name+guardSuffix) {
			continue
		}
		family, table, _ := strings.Cut(name+guardSuffix, " ")
		if err := n.removeTable(ctx, family, table); err != nil {
			return Answer{}, err
		}
		gone = append(gone, name)
	}
	if len(gone) == 0 {
		return Answer{Message: "released already"}, nil
	}
	return Answer{Changed: true, Message: "released: " + strings.Join(gone, ", ")}, nil
}

// removeTable removes an nft table, its base chains first, in a transaction of their own. While the kernel takes a
// whole table away, a packet that is on its way through the table's rules finds its sets and maps empty already, and
// meets a rule that drops what they would have accepted (seen on Linux 6.18: 1 datagram in 6 of 40 removals, at a
// thousand a second).
func (n *Node) removeTable(ctx context.Context, family, table string) error {
	text, err := n.Commands.run(ctx, "", "nft", "list", "table", family, table)
	if err != nil {
		return err
	}
	if script := unhook(text, family, table); script != "" {
		if _, err := n.Commands.run(ctx, script, "nft", "-f", "-"); err != nil {
			return err
		}
	}
	_, err = n.Commands.run(ctx, "", "nft", "delete", "table", family, table)
	return err
}

// unhook deletes the base chains of what `nft list table` printed.
func unhook(text, family, table string) string {
	var script strings.Builder
	_, body, _ := strings.Cut(text, "{\n")
	for block := range strings.SplitSeq(body, "\n\n") {
		name, ok := strings.CutPrefix(strings.TrimSpace(block), "chain ")
		if name, _, _ = strings.Cut(name, " {"); ok && hookOf(block) != "" {
			fmt.Fprintf(&script, "flush chain %[1]s %[2]s %[3]s\ndelete chain %[1]s %[2]s %[3]s\n", family, table, name)
		}
	}
	return script.String()
}

// rearm gives a copy that still guards its whole time again; false says that it does not guard any more.
func (n *Node) rearm(ctx context.Context, family, table string, limit time.Duration) (bool, error) {
	text, err := n.Commands.run(ctx, "", "nft", "list", "set", family, table, armedSet)
	if err != nil || !strings.Contains(text, "elements = ") {
		return false, err
	}
	at, number := strings.Join([]string{family, table, armedSet}, " "), versionOf(family)
	_, err = n.Commands.run(ctx, fmt.Sprintf("delete element %s { %d }\nadd element %s { %d timeout %ds }\n",
		at, number, at, number, int(limit.Seconds())), "nft", "-f", "-")
	return err == nil, err
}

func versionOf(family string) int {
	if family == "ip6" {
		return 6
	}
	return 4
}

// guardOf turns what `nft list table` printed into two scripts that make the copy, in place of an earlier one: all of
// it but its base chains, which nothing enters yet, and these. In one transaction, a set of intervals may still be
// empty when the rules that match it are in force already, and what only they accept is dropped (seen on Linux 6.18:
// 102 of 27,801 datagrams in one round of many). Of the base chains those that filter and those that translate are
// kept, so nothing is marked twice. Those that translate come after their owner's, in either data plane: the first
// translation of a connection is the only one. Each lets all pass once the only element of a set has timed out.
func guardOf(text, family, table string, without []string, limit time.Duration) []string {
	copied := family + " " + table + guardSuffix
	var rules, hooks strings.Builder
	fmt.Fprintf(&rules, "add table %s\ndelete table %s\ntable %s {\n", copied, copied, copied)
	fmt.Fprintf(&rules, "set %s { typeof %s version; flags timeout; elements = { %d timeout %ds }; }\n",
		armedSet, family, versionOf(family), int(limit.Seconds()))
	fmt.Fprintf(&hooks, "table %s {\n", copied)
	_, body, _ := strings.Cut(text, "{\n")
	body = strings.TrimSuffix(strings.TrimSpace(body), "}") // the table's own
	for block := range strings.SplitSeq(body, "\n\n") {
		hook, into := hookOf(block), &rules
		if hook != "" {
			after, translates := laterNAT(hook)
			if !translates && (!strings.HasPrefix(hook, "type filter ") ||
				!strings.Contains(hook, " priority filter;")) {
				continue
			}
			if translates {
				block, hook = strings.Replace(block, hook, after, 1), after
			}
			into = &hooks
		}
		for line := range strings.Lines(block) {
			if strings.Contains(line, ` comment "`) &&
				slices.ContainsFunc(without, func(words string) bool { return strings.Contains(line, words) }) {
				continue
			}
			into.WriteString(line)
			if hook != "" && strings.Contains(line, hook) {
				fmt.Fprintf(into, "%s version != @%s accept\n", family, armedSet)
			}
		}
		into.WriteString("\n")
	}
	rules.WriteString("}\n")
	hooks.WriteString("}\n")
	return []string{rules.String(), hooks.String()}
}

// Where a copy's base chains translate: after those of iptables (-100 and 100), and of owners next to them (such as
// 110).
const (
	laterPreRouting  = -40
	laterOutput      = 160
	laterPostRouting = 190
)

// hookNAT is the line that makes a base chain translate, in a hook whose translations matter for packets that are
// forwarded or sent from here.
var hookNAT = regexp.MustCompile(`^type nat hook (prerouting|output|postrouting) priority [^;]+;`)

// laterNAT is the hook of a copy of a base chain that translates; false for other hooks.
func laterNAT(hook string) (string, bool) {
	found := hookNAT.FindStringSubmatch(hook)
	if found == nil {
		return "", false
	}
	priority := map[string]int{"prerouting": laterPreRouting, "output": laterOutput,
		"postrouting": laterPostRouting}[found[1]]
	return fmt.Sprintf("type nat hook %s priority %d;%s", found[1], priority, strings.TrimPrefix(hook, found[0])), true
}

// hookOf is the line that makes a block a base chain; empty for other blocks.
func hookOf(block string) string {
	for line := range strings.Lines(block) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "type ") && strings.Contains(line, " hook ") {
			return line
		}
	}
	return ""
}
