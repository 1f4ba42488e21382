package metrics

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/reference/metrics.md")

// TestDocs: the page of the metrics has exactly those of the program. -update rewrites it.
func TestDocs(t *testing.T) {
	families, err := full(t).Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("# Metrics\n\n<!-- Made from the code: go test ./internal/run/metrics -run TestDocs -update -->\n\n" +
		"[Metrics and notifications](../how-to/metrics-and-notifications.md) says how to get them. Go's own metrics\n" +
		"(`go_...`, `process_...`) come with them. No metric has a label for a path.\n\n" +
		"| metric | type | labels | what it is |\n|---|---|---|---|\n")
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), "theseus_") {
			continue
		}
		var labels []string
		for _, label := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+label.GetName()+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", family.GetName(), strings.ToLower(family.GetType().String()),
			strings.Join(labels, ", "), family.GetHelp())
	}
	const page = "../../../docs/reference/metrics.md"
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Errorf("%s is not what the program has (-update rewrites it):\n%s", page, b.String())
	}
}
