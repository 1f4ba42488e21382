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
)

// maxListed is how many lines of a list are printed; JSON has all.
const maxListed = 10

// Text prints the copy: what it cannot have first, then classes, workloads and budgets.
func (c *Copy) Text(to io.Writer) error {
	var b strings.Builder
	b.WriteString("What the copy cannot have:\n")
	table(&b, [][]string{{"NOT IN THE COPY", "WHAT FOLLOWS"}}, c.Lacks, func(l Lack) []string {
		return []string{l.What, l.Follows}
	})
	b.WriteString("\nClasses of nodes:\n")
	table(&b, [][]string{{"CLASS", "ROLE", "NODES", "PLAYED BY", "CAPACITY", "KERNEL", "LABELS AND TAINTS"}},
		c.Classes, func(k Class) []string {
			return []string{k.Name, role(k), fmt.Sprint(len(k.Nodes)), strings.Join(k.Plays, ","),
				k.Capacity, k.Kernel, marks(k)}
		})
	fmt.Fprintf(&b, "\nWorkloads (%s of the stand-in program in all, and those of DaemonSets):\n",
		cluster.Count(c.Pods, "pod"))
	if len(c.Workloads) == 0 {
		b.WriteString("  none\n")
	} else {
		table(&b, [][]string{{"WORKLOAD", "PODS", "IN THE COPY"}}, listed(c.Workloads), func(w Workload) []string {
			n := fmt.Sprint(w.Copy)
			if w.Kind == "DaemonSet" {
				n = "one on each of its nodes"
			}
			return []string{w.Kind + " " + w.Namespace + "/" + w.Name, fmt.Sprint(w.Original), n}
		})
		more(&b, len(c.Workloads))
	}
	if len(c.Budgets) > 0 {
		b.WriteString("\nBudgets (pods that may be evicted at once):\n")
		table(&b, [][]string{{"BUDGET", "ALLOWS", "IN THE COPY"}}, listed(c.Budgets), func(w Budget) []string {
			return []string{w.Namespace + "/" + w.Name, fmt.Sprint(w.Original), fmt.Sprint(w.Copy)}
		})
		more(&b, len(c.Budgets))
	}
	if bounds := c.bounds(); len(bounds) > 0 {
		b.WriteString("\nQuotas (bounded when the pods of the copy are ready, so that the same further pods fit):\n")
		table(&b, [][]string{{"QUOTA", "RESOURCE", "USED", "ALLOWED"}}, listed(bounds),
			func(row [4]string) []string { return row[:] })
		more(&b, len(bounds))
	}
	if len(c.Left) > 0 {
		b.WriteString("\nObjects that are not copied:\n")
		table(&b, nil, listed(c.Left), func(l Left) []string { return []string{l.Object, l.Why} })
		more(&b, len(c.Left))
	}
	kinds := map[string]int{}
	for _, object := range c.All() {
		kinds[object.GetKind()]++
	}
	var counts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		counts = append(counts, fmt.Sprintf("%s %d", kind, kinds[kind]))
	}
	fmt.Fprintf(&b, "\nThe copy has %s: %s.\n", cluster.Count(len(c.All()), "object"), strings.Join(counts, ", "))
	_, err := io.WriteString(to, b.String())
	return err
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
	table(&b, nil, rows, func(row []string) []string { return row })
	b.WriteString("\nClasses of nodes:\n")
	table(&b, [][]string{{"CLASS", "ROLE", "NODES", "CAPACITY", "KERNEL", "LABELS AND TAINTS"}}, n.Classes,
		func(k Class) []string {
			return []string{k.Name, role(k), fmt.Sprint(len(k.Nodes)), k.Capacity, k.Kernel, marks(k)}
		})
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

func more(b *strings.Builder, all int) {
	if n := all - maxListed; n > 0 {
		fmt.Fprintf(b, "  and %d more: --dry-run -o json has all\n", n)
	}
}

// table prints rows in columns, indented.
func table[T any](b *strings.Builder, head [][]string, rows []T, cells func(T) []string) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, row := range head {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	for _, row := range rows {
		fmt.Fprintln(w, strings.TrimRight("  "+strings.Join(cells(row), "\t"), "\t"))
	}
	w.Flush() //nolint:errcheck // a builder takes everything
}

// CoverageText prints how much of the original the copy covers.
func CoverageText(to io.Writer, all []Coverage) error {
	var b strings.Builder
	b.WriteString("Coverage (alike in the copy and in the original):\n")
	table(&b, nil, all, func(c Coverage) []string {
		if c.All == 0 {
			return []string{c.Area, "nothing to compare", c.Note}
		}
		return []string{c.Area, fmt.Sprintf("%d of %d", c.Alike, c.All), c.Note}
	})
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
