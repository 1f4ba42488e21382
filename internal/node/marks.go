package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/internal/step"
)

// marksTable changes marks of packets in a joint phase. Its chains come before the filter rules of iptables and of
// networks, and are of the type filter, so that a packet's route stays as it was chosen.
const marksTable = "theseus-marks"

// marksPriority is the one of the table mangle.
const marksPriority = -150

// marksScript is the table in place of a former one; without marks, the table goes.
func marksScript(marks []step.Mark) string {
	var script strings.Builder
	fmt.Fprintf(&script, "add table ip %[1]s\ndelete table ip %[1]s\n", marksTable)
	if len(marks) == 0 {
		return script.String()
	}
	fmt.Fprintf(&script, "table ip %s {\n", marksTable)
	for _, hook := range []step.Hooked{step.Forwarded, step.Sent} {
		fmt.Fprintf(&script, "chain %[1]s { type filter hook %[1]s priority %[2]d; policy accept;\n",
			hook, marksPriority)
		for _, mark := range marks {
			if mark.Hook == hook {
				script.WriteString(markRule(mark))
			}
		}
		script.WriteString("}\n")
	}
	return script.String() + "}\n"
}

func markRule(mark step.Mark) string {
	var rule strings.Builder
	for _, bits := range mark.Is {
		fmt.Fprintf(&rule, "meta mark & %#x == %#x ", bits.Mask, bits.Value)
	}
	for _, bits := range mark.IsNot {
		fmt.Fprintf(&rule, "meta mark & %#x != %#x ", bits.Mask, bits.Value)
	}
	fmt.Fprintf(&rule, "meta mark set meta mark & %#x", ^mark.Set.Mask)
	if mark.Set.Value != 0 {
		fmt.Fprintf(&rule, " | %#x", mark.Set.Value)
	}
	return rule.String() + "\n"
}

// markTable is the table as this process has written it, and what nft lists of it since.
type markTable struct{ script, listed string }

// mark puts the table as a joint phase wants it, and takes it away where none does; it says what it did. A table of a
// former process is written once more, as it may be of an order before this one; so is one whose rules have been
// changed.
func (n *Node) mark(ctx context.Context, marks []step.Mark) ([]string, error) {
	if len(marks) == 0 {
		return n.unmark(ctx)
	}
	script := marksScript(marks)
	list := []string{"list", "table", "ip", marksTable}
	before, err := n.Commands.run(ctx, "", "nft", list...)
	present, known := err == nil, n.marks.script != ""
	if present && n.marks == (markTable{script, before}) {
		return nil, nil
	}
	if _, err := n.Commands.run(ctx, script, "nft", "-f", "-"); err != nil {
		return nil, fmt.Errorf("change marks of packets: %w", err)
	}
	after, err := n.Commands.run(ctx, "", "nft", list...)
	if err != nil {
		return nil, fmt.Errorf("change marks of packets: %w", err)
	}
	n.marks = markTable{script, after}
	if before == after && !known {
		return nil, nil
	}
	return []string{fmt.Sprintf("%d rules for marks of packets", len(marks))}, nil
}

// unmark takes the table away.
func (n *Node) unmark(ctx context.Context) ([]string, error) {
	n.marks = markTable{}
	all, err := n.nftables(ctx, true)
	if err != nil || !slices.Contains(all, "ip "+marksTable) {
		return nil, err
	}
	if _, err := n.Commands.run(ctx, marksScript(nil), "nft", "-f", "-"); err != nil {
		return nil, fmt.Errorf("change marks of packets: %w", err)
	}
	return []string{"marks as before"}, nil
}
