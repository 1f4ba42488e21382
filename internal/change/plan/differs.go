package plan

import (
	"slices"
	"strings"
)

// mostDiffer is how many lines may differ between two steps of which one is described by the difference.
const mostDiffer = 8

// differs says what differs between the texts of two steps, apart from the names of nodes and waves. ok is false where
// it is too much, or cannot be said without the place where it belongs: what is done between two other actions, or what
// is not done on a node.
func (d *describer) differs(from, to int) (text string, ok bool) {
	was, is := strings.Split(strings.TrimSuffix(d.texts[from], "\n"), "\n"),
		strings.Split(strings.TrimSuffix(d.texts[to], "\n"), "\n")
	gone, come := compareLines(d.alike.lines(d.texts[from]), d.alike.lines(d.texts[to]))
	if n := len(gone) + len(come); n > mostDiffer || 2*n > len(was)+len(is) {
		return "", false
	}
	b := &strings.Builder{}
	for _, k := range gone {
		word, _, _ := strings.Cut(was[k], ": ")
		replaced := slices.ContainsFunc(come, func(k int) bool { return strings.HasPrefix(is[k], word+": ") })
		switch {
		case replaced && once(word):
		case once(word), d.alike.without(was[k]) != was[k]:
			return "", false
		default:
			b.WriteString("   not done: " + strings.TrimPrefix(strings.TrimSpace(was[k]), "- ") + "\n")
		}
	}
	for _, k := range come {
		action, acts := strings.CutPrefix(is[k], "   - ")
		switch {
		case acts && lastActions(is, come, k):
			b.WriteString("   at the end, once: " + action + "\n")
		case acts, strings.HasPrefix(is[k], "   Undo: "):
			return "", false
		default:
			b.WriteString(other(is[k], gone, was) + "\n")
		}
	}
	return b.String(), true
}

// other is a line in place of another of its kind, or in addition to others.
func other(line string, gone []int, was []string) string {
	word, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
	if slices.ContainsFunc(gone, func(k int) bool { return strings.HasPrefix(was[k], "   "+word+": ") }) {
		return "   " + word + " instead: " + text
	}
	return "   also " + word + ": " + text
}

// once says whether a step has at most one line that begins with a word.
func once(word string) bool {
	return slices.Contains([]string{"   Why", "   Stop", "   Gate", "   On failure"}, word)
}

// lastActions says whether all actions after a line are among some lines, too.
func lastActions(all []string, among []int, line int) bool {
	for k := line; k < len(all); k++ {
		if strings.HasPrefix(all[k], "   - ") && !slices.Contains(among, k) {
			return false
		}
	}
	return true
}

// compareLines are the lines that one list has and the other lacks, by a longest common subsequence.
func compareLines(a, b []string) (gone, come []int) {
	common := make([][]int, len(a)+1) // of the lines from these on
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			gone, i = append(gone, i), i+1
		default:
			come, j = append(come, j), j+1
		}
	}
	return gone, come
}
