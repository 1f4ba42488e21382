package adopt

import (
	"fmt"
	"testing"
)

// TestSideBySide: pods of one node move side by side, fewer where many nodes are changed together or one has few
// processors, and always one.
func TestSideBySide(t *testing.T) {
	for _, test := range []struct{ nodes, processors, want int }{
		{1, 0, 4}, {1, 64, 4}, {4, 8, 4}, {25, 8, 4}, {32, 8, 4}, {33, 8, 3}, {64, 8, 2}, {128, 8, 1}, {5000, 8, 1},
		{1, 1, 1}, {3, 2, 2}, {64, 1, 1},
	} {
		b := &builder{processors: map[string]int{}}
		var nodes []string
		for i := range test.nodes {
			nodes = append(nodes, fmt.Sprint("n-", i))
			b.processors[nodes[i]] = 16
		}
		b.processors[nodes[test.nodes/2]] = test.processors // one node differs
		if got := b.sideBySide(nodes); got != test.want {
			t.Errorf("%d nodes, one with %d processors: %d pods at a time, want %d",
				test.nodes, test.processors, got, test.want)
		}
	}
}
