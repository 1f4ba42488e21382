package preflight

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// JSON writes a result as docs/findings.schema.json describes it.
func JSON(output io.Writer, result finding.Result) error {
	if result.Findings == nil {
		result.Findings = []finding.Finding{}
	}
	if result.NotChecked == nil {
		result.NotChecked = []finding.NotChecked{}
	}
	return encode(output, result)
}

// ListJSON writes the catalogue of checks, each with its page.
func ListJSON(output io.Writer, checks []check.Check) error {
	type entry struct {
		ID    string   `json:"id"`
		Title string   `json:"title"`
		Doc   string   `json:"doc"`
		Needs []string `json:"needs,omitempty"`
		URL   string   `json:"url"`
	}
	all := make([]entry, 0, len(checks))
	for _, c := range checks {
		all = append(all, entry{c.ID, c.Title, strings.TrimSpace(c.Doc), c.Needs, URL(c.ID)})
	}
	return encode(output, map[string]any{"checks": all})
}

func encode(output io.Writer, value any) error {
	encoder := json.NewEncoder(output)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
