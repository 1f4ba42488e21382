package objects

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table in the documentation")

// TestCatalogueInTheDocumentation holds the table of docs/strategies/mirror.md to the catalogue.
func TestCatalogueInTheDocumentation(t *testing.T) {
	var table strings.Builder
	table.WriteString("| kind | if | action | why |\n|---|---|---|---|\n")
	for _, danger := range Dangers() {
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", danger.Kind, danger.When, danger.Action, danger.Why)
	}
	const file = "../../../docs/strategies/mirror.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(page), table.String()) {
		return
	}
	if !*update {
		t.Fatal("the table differs: go test ./internal/mirror/objects -update")
	}
	before, rest, _ := strings.Cut(string(page), "| kind |")
	_, after, _ := strings.Cut(rest, "\n\n")
	if err := os.WriteFile(file, []byte(before+table.String()+"\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
