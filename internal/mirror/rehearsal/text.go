package rehearsal

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	corev1 "k8s.io/api/core/v1"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// maxListed is how many lines of a list are printed; JSON has all.
const maxListed = 10

// Table is a part of what is told of a copy, for people.
type Table struct {
	Title string
	// Head names the columns of Rows; it may be empty.
	Head []string
	Rows [][]string
}

func tableOf[T any](title string, head []string, rows []T, cells func(T) []string) Table {
	t := Table{Title: title, Head: head}
	for _, row := range rows {
		t.Rows = append(t.Rows, cells(row))
	}
	return t
}

// Tables describe the copy: first what it cannot have, then classes, workloads and budgets.
func (c *Copy) Tables() []Table {
	all := []Table{
		tableOf("What the copy cannot have", []string{"NOT IN THE COPY", "WHAT FOLLOWS"}, c.Lacks,
			func(l Lack) []string { return []string{l.What, l.Follows} }),
		tableOf("Classes of nodes",
			[]string{"CLASS", "ROLE", "NODES", "PLAYED BY", "CAPACITY", "KERNEL", "LABELS AND TAINTS"}, c.Classes,
			func(k Class) []string {
				return []string{k.Name, role(k), fmt.Sprint(len(k.Nodes)), strings.Join(k.Plays, ","),
					k.Capacity, k.Kernel, marks(k)}
			}),
		tableOf(fmt.Sprintf("Workloads (%s of the stand-in program in all, and those of DaemonSets)",
			cluster.Count(c.Pods, "pod")), []string{"WORKLOAD", "PODS", "IN THE COPY"}, c.Workloads,
			func(w Workload) []string {
				n := fmt.Sprint(w.Copy)
				if w.Kind == "DaemonSet" {
					n = "one on each of its nodes"
				}
				return []string{w.Kind + " " + w.Namespace + "/" + w.Name, fmt.Sprint(w.Original), n}
			}),
	}
	if len(c.Budgets) > 0 {
		all = append(all, tableOf("Budgets (pods that may be evicted at once)",
			[]string{"BUDGET", "ALLOWS", "IN THE COPY"}, c.Budgets, func(w Budget) []string {
				return []string{w.Namespace + "/" + w.Name, fmt.Sprint(w.Original), fmt.Sprint(w.Copy)}
			}))
	}
	if len(c.Traffic) > 0 {
		all = append(all, tableOf("Connections that stand-ins open all the time",
			[]string{"FROM", "TO", "SERVICE", "POLICIES SAY"}, c.Traffic, func(p Pair) []string {
				return []string{p.From, p.To, p.at(), p.says()}
			}))
	}
	if bounds := c.bounds(); len(bounds) > 0 {
		all = append(all, tableOf(
			"Quotas (bounded when the pods of the copy are ready, so that the same further pods fit)",
			[]string{"QUOTA", "RESOURCE", "USED", "ALLOWED"}, bounds, func(row [4]string) []string { return row[:] }))
	}
	if len(c.Network.Said) > 0 {
		all = append(all, tableOf("Settings of the network", []string{"OBJECT", "IN THE COPY"}, c.Network.Said,
			func(o cni.CopiedObject) []string { return []string{o.Object, o.Copy} }))
	}
	if len(c.Left) > 0 {
		all = append(all, tableOf("Objects that are not copied", nil, c.Left,
			func(l Left) []string { return []string{l.Object, l.Why} }))
	}
	return all
}

// Text prints the copy. What it cannot have and the classes are whole, and other tables the first maxListed rows.
func (c *Copy) Text(to io.Writer) error {
	var b strings.Builder
	for i, t := range c.Tables() {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(t.Title + ":\n")
		rows := t.Rows
		if i > 1 {
			rows = listed(rows)
		}
		if len(rows) == 0 {
			b.WriteString("  none\n")
			continue
		}
		table(&b, t.Head, rows)
		more(&b, len(t.Rows)-len(rows))
	}
	fmt.Fprintf(&b, "\n%s\n", c.Sum())
	_, err := io.WriteString(to, b.String())
	return err
}

// Sum counts the objects of the copy.
func (c *Copy) Sum() string {
	return fmt.Sprintf("The copy has %s.", sumOf(c.All()))
}

// Text prints what a scratch cluster needs.
func (n *Needs) Text(to io.Writer) error {
	var b strings.Builder
	b.WriteString("The scratch cluster needs:\n")
	rows := [][]string{{"network", strings.TrimSpace(n.Network + " " + n.Version)},
		{"workers", fmt.Sprintf("%d or more", n.Workers)}}
	if n.ControlPlane > 0 {
		rows = append(rows, []string{"control-plane nodes", fmt.Sprintf("%d or more", n.ControlPlane)})
	}
	table(&b, nil, rows)
	b.WriteString("\nClasses of nodes:\n")
	rows = nil
	for _, k := range n.Classes {
		rows = append(rows,
			[]string{k.Name, role(k), fmt.Sprint(len(k.Nodes)), k.Capacity, k.Kernel, marks(k)})
	}
	table(&b, []string{"CLASS", "ROLE", "NODES", "CAPACITY", "KERNEL", "LABELS AND TAINTS"}, rows)
	_, err := io.WriteString(to, b.String())
	return err
}

func role(k Class) string {
	if k.ControlPlane {
		return "control plane"
	}
	return "worker"
}

// bounds are the bounds of the original's quotas, each with the quota's name.
func (c *Copy) bounds() (all [][4]string) {
	for _, quota := range c.Quotas {
		for _, bound := range quota.Bounds {
			all = append(all, [4]string{quota.Namespace + "/" + quota.Name, bound.Resource, bound.Used, bound.Hard})
		}
	}
	return all
}

// marks are a class's labels and taints for people.
func marks(k Class) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(k.Labels)) {
		all = append(all, strings.TrimSuffix(key+"="+k.Labels[key], "="))
	}
	for _, taint := range k.Taints {
		all = append(all, taintText(taint))
	}
	if len(all) == 0 {
		return "-"
	}
	return few(all)
}

func taintText(taint corev1.Taint) string {
	return strings.TrimSuffix(taint.Key+"="+taint.Value, "=") + ":" + string(taint.Effect)
}

func listed[T any](all []T) []T { return all[:min(len(all), maxListed)] }

func more(b *strings.Builder, n int) {
	if n > 0 {
		fmt.Fprintf(b, "  and %d more: --dry-run -o json has all\n", n)
	}
}

// table prints rows in columns, indented.
func table(b *strings.Builder, head []string, rows [][]string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	if len(head) > 0 {
		fmt.Fprintln(w, "  "+strings.Join(head, "\t"))
	}
	for _, row := range rows {
		fmt.Fprintln(w, strings.TrimRight("  "+strings.Join(row, "\t"), "\t"))
	}
	w.Flush() //nolint:errcheck // a builder takes everything
}

// CoverageTable is how much of the original the copy covers.
func CoverageTable(all []Coverage) Table {
	return tableOf("Coverage (alike in the copy and in the original)", nil, all, func(c Coverage) []string {
		if c.All == 0 {
			return []string{c.Area, "nothing to compare", c.Note}
		}
		return []string{c.Area, fmt.Sprintf("%d of %d", c.Alike, c.All), c.Note}
	})
}

// CoverageText prints how much of the original the copy covers.
func CoverageText(to io.Writer, all []Coverage) error {
	var b strings.Builder
	t := CoverageTable(all)
	b.WriteString(t.Title + ":\n")
	table(&b, nil, t.Rows)
	for _, c := range all {
		for i, text := range c.Not {
			if i == maxListed {
				fmt.Fprintf(&b, "  not alike: and %d more of %s: -o FILE.json has all\n", len(c.Not)-i, c.Area)
				break
			}
			fmt.Fprintf(&b, "  not alike: %s\n", text)
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}
