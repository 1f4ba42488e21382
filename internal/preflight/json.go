package preflight

import (
	"encoding/json"
	"io"

	"github.com/theseus-cni/theseus/internal/finding"
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

func encode(output io.Writer, value any) error {
	encoder := json.NewEncoder(output)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
