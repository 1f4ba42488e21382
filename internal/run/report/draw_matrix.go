package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// maxMatrixNodes is how many nodes at most get rows and columns of their own; of more, only the worst do.
const maxMatrixNodes = 24

// matrix is a table of sources and targets, laid out.
type matrix struct {
	Columns []heading
	// Sub are the second line of headings, one per column.
	Sub  []string
	Rows []matrixRow
	// Small is true when there is room for figures in the squares.
	Small bool
	Note  string
}

// heading spans the columns of one node, or of ends that are on no node.
type heading struct {
	Name string
	Span int
}

type matrixRow struct {
	// Name is set, with its span, on the first row of each node.
	Name    string
	Span    int
	Network string
	Squares []square
}

// square is one pair of ends. Tone "" marks a pair that was not measured.
type square struct {
	Tone, Text, Title string
}

// newMatrix lays out nodes against nodes; nil when nothing was measured.
func newMatrix(m Model) *matrix {
	if len(m.Cells) == 0 {
		return nil
	}
	fold, note := folding(m)
	out := layOut(&m, folded(m.Cells, fold))
	out.Note = note
	return out
}

// newNetworks sums up over nodes: from network to network.
func newNetworks(m Model) *matrix {
	if len(m.Cells) == 0 {
		return nil
	}
	out := layOut(&m, folded(m.Cells, func(string) string { return "all nodes" }))
	out.Small = true
	return out
}

// folding returns the name under which each node is shown.
func folding(m Model) (func(string) string, string) {
	if len(m.Nodes) <= maxMatrixNodes {
		return func(node string) string { return node }, ""
	}
	var worst []Node
	for _, node := range m.Nodes {
		if node.Lost > 0 || node.Leaked > 0 {
			worst = append(worst, node)
		}
	}
	rest := fmt.Sprintf("all %s", countOf(int64(len(m.Nodes)), "node"))
	if len(worst) == 0 {
		return func(string) string { return rest }, "Nothing was lost on any node, so all " +
			number(int64(len(m.Nodes))) + " are shown as one. The JSON report holds every pair."
	}
	slices.SortStableFunc(worst, func(a, b Node) int {
		return cmp.Or(cmp.Compare(b.Leaked, a.Leaked), cmp.Compare(b.Worst, a.Worst), cmp.Compare(b.Lost, a.Lost))
	})
	worst = worst[:min(len(worst), maxMatrixNodes)]
	shown := map[string]bool{}
	for _, node := range worst {
		shown[node.Name] = true
	}
	rest = fmt.Sprintf("%d other nodes", len(m.Nodes)-len(worst))
	note := fmt.Sprintf("The %d worst of %d nodes are shown one by one; the others are summed up. The JSON report "+
		"holds every pair.", len(worst), len(m.Nodes))
	return func(node string) string {
		if shown[node] {
			return node
		}
		return rest
	}, note
}

// folded sums cells up under the names that they are shown by.
func folded(cells []Cell, fold func(string) string) []Cell {
	byEnds := map[[2]v1alpha1.Endpoint]*Cell{}
	var order [][2]v1alpha1.Endpoint
	for _, cell := range cells {
		for _, end := range []*v1alpha1.Endpoint{&cell.Source, &cell.Target} {
			if end.Node != "" {
				end.Node = fold(end.Node)
			}
		}
		key := [2]v1alpha1.Endpoint{cell.Source, cell.Target}
		sum := byEnds[key]
		if sum == nil {
			byEnds[key] = &cell
			order = append(order, key)
			continue
		}
		sum.Paths += cell.Paths
		sum.Sent += cell.Sent
		sum.Lost += cell.Lost
		sum.Leaked += cell.Leaked
		sum.Gaps += cell.Gaps
		sum.Worst = max(sum.Worst, cell.Worst)
	}
	list := make([]Cell, 0, len(order))
	for _, key := range order {
		list = append(list, *byEnds[key])
	}
	return list
}

func layOut(m *Model, cells []Cell) *matrix {
	var sources, targets []v1alpha1.Endpoint
	byEnds := map[[2]v1alpha1.Endpoint]Cell{}
	for _, cell := range cells {
		sources, targets = append(sources, cell.Source), append(targets, cell.Target)
		byEnds[[2]v1alpha1.Endpoint{cell.Source, cell.Target}] = cell
	}
	sources, targets = distinct(sources), distinct(targets)
	out := &matrix{Small: len(targets) <= 16}
	for _, target := range targets {
		name, sub := columnName(target)
		if n := len(out.Columns); n > 0 && out.Columns[n-1].Name == name {
			out.Columns[n-1].Span++
		} else {
			out.Columns = append(out.Columns, heading{name, 1})
		}
		out.Sub = append(out.Sub, sub)
	}
	first := -1
	for i, source := range sources {
		line := matrixRow{Network: source.Network}
		if first < 0 || sources[first].Node != source.Node {
			first, line.Name = i, source.Node
		}
		for _, target := range targets {
			cell, ok := byEnds[[2]v1alpha1.Endpoint{source, target}]
			line.Squares = append(line.Squares, newSquare(m, cell, ok))
		}
		out.Rows = append(out.Rows, line)
		out.Rows[first].Span++
	}
	return out
}

func distinct(list []v1alpha1.Endpoint) []v1alpha1.Endpoint {
	slices.SortFunc(list, compareEnds)
	return slices.Compact(list)
}

// columnName splits an end into the two lines of its heading.
func columnName(end v1alpha1.Endpoint) (name, sub string) {
	if end.Node != "" {
		return end.Node, end.Network
	}
	return "not on a node", offNode(end.Address, end.Network)
}

func cellTarget(end v1alpha1.Endpoint) string {
	if end.Node != "" {
		return endName(end)
	}
	return offNode(end.Address, end.Network)
}

func newSquare(m *Model, cell Cell, measured bool) square {
	if !measured {
		return square{}
	}
	tone := m.lossTone(cell.Sent, cell.Lost, cell.Worst, "node "+cell.Source.Node, "node "+cell.Target.Node)
	s := square{Tone: tone, Text: "0"}
	if cell.Worst > 0 {
		s.Text = duration(cell.Worst)
	}
	if cell.Leaked > 0 {
		s.Tone, s.Text = "leak", number(cell.Leaked)+" answered"
	}
	s.Title = fmt.Sprintf("%s to %s: %s, %s, %s lost", endName(cell.Source), cellTarget(cell.Target),
		countOf(int64(cell.Paths), "path"), countOf(cell.Sent, "probe"), number(cell.Lost))
	if cell.Worst > 0 {
		s.Title += ", longest gap " + duration(cell.Worst)
	}
	if cell.Leaked > 0 {
		s.Title += ", " + number(cell.Leaked) + " denied answered"
	}
	return s
}
