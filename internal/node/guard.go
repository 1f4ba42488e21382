package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// guardSuffix makes the name of a table's copy.
const guardSuffix = "-theseus"

// guard copies the filter rules of nft tables, and of iptables chains, beside them. A packet passes both, so what is
// denied stays denied while the owner of the first takes them away and writes its rules elsewhere.
func (n *Node) guard(ctx context.Context, g step.Guard) (Answer, error) {
	limit := time.Duration(g.For).Truncate(time.Second)
	if limit <= 0 {
		return Answer{}, fmt.Errorf("a guard for %s makes no sense", time.Duration(g.For))
	}
	present, err := n.nftables(ctx, true)
	if err != nil {
		return Answer{}, err
	}
	made, err := n.guardIPTables(ctx, g, limit)
	if err != nil {
		return Answer{}, err
	}
	for _, name := range pick(g.Tables, present) {
		family, table, _ := strings.Cut(name, " ")
		text, err := n.Commands.run(ctx, "", "nft", "list", "table", family, table)
		if err != nil {
			return Answer{}, err
		}
		if _, err := n.Commands.run(ctx, guardOf(text, family, table, g.Without, limit), "nft", "-f", "-"); err != nil {
			return Answer{}, fmt.Errorf("guard table %s: %w", name, err)
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
		if _, err := n.Commands.run(ctx, "", "nft", "delete", "table", family, table); err != nil {
			return Answer{}, err
		}
		gone = append(gone, name)
	}
	if len(gone) == 0 {
		return Answer{Message: "released already"}, nil
	}
	return Answer{Changed: true, Message: "released: " + strings.Join(gone, ", ")}, nil
}

// guardOf turns what `nft list table` printed into a script that makes the copy in one transaction, in place
// of an earlier one. Of the base chains only those that filter are kept, so nothing is marked or translated
// twice; a chain that nobody enters does nothing. Each lets all pass once the only element of a set has timed
// out.
func guardOf(text, family, table string, without []string, limit time.Duration) string {
	version, number := "ip version", 4
	if family == "ip6" {
		version, number = "ip6 version", 6
	}
	copied := family + " " + table + guardSuffix
	var b strings.Builder
	fmt.Fprintf(&b, "add table %s\ndelete table %s\ntable %s {\n", copied, copied, copied)
	fmt.Fprintf(&b, "set theseus-armed { typeof %s; flags timeout; elements = { %d timeout %ds }; }\n",
		version, number, int(limit.Seconds()))
	_, body, _ := strings.Cut(text, "{\n")
	body = strings.TrimSuffix(strings.TrimSpace(body), "}") // the table's own
	for block := range strings.SplitSeq(body, "\n\n") {
		hook := hookOf(block)
		if hook != "" && (!strings.HasPrefix(hook, "type filter ") || !strings.Contains(hook, " priority filter;")) {
			continue
		}
		for line := range strings.Lines(block) {
			if strings.Contains(line, ` comment "`) && slices.ContainsFunc(without, func(words string) bool { return strings.Contains(line, words) }) {
				continue
			}
			b.WriteString(line)
			if hook != "" && strings.Contains(line, hook) {
				fmt.Fprintf(&b, "%s != @theseus-armed accept\n", version)
			}
		}
		b.WriteString("\n")
	}
	b.WriteString("}\n")
	return b.String()
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
