package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/change/plan"
)

// mostLines is how long a runbook is at most, whatever the number of nodes.
const mostLines = 300

// TestRunbookIsShort: a runbook grows neither with the nodes nor with the waves; BenchmarkScale demands the same of
// the largest cluster.
func TestRunbookIsShort(t *testing.T) {
	for _, name := range []string{"flannel-to-calico-adopt", "bridge-to-calico-surge", "calico-to-nftables"} {
		t.Run(name, func(t *testing.T) {
			change := scaled[slices.IndexFunc(scaled, func(s scale) bool { return s.name == name })]
			book := plan.Runbook(mustMake(t, change.on(t, mostNodes/10, 12)))
			if lines := strings.Count(book, "\n"); lines > mostLines {
				t.Errorf("%d lines:\n%s", lines, book)
			}
		})
	}
}
