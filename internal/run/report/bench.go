package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

//go:embed page/bench.html
var benchHTML string

//go:embed page/load.html
var loadHTML string

// Bench is the result of a benchmark as one self-contained page, with the drawings and the table.
func Bench(r *bench.Result) ([]byte, error) {
	t, err := template.New("bench").Parse(benchHTML + loadHTML)
	if err != nil {
		return nil, fmt.Errorf("the benchmark's page: %w", err)
	}
	level, word := Good, "measured"
	if r.Stopped != "" {
		level, word = Stopped, "stopped"
	}
	where := r.Client
	if r.Other != "" {
		where += " and " + r.Other
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{"Style": template.CSS(pageCSS), "Level": level, "Word": word, "Result": r,
		"Where": where, "Table": r.Table(), "Remarks": r.Remarks(), "Drawings": resultDrawings(r)})
	if err != nil {
		return nil, fmt.Errorf("the benchmark's page: %w", err)
	}
	return out.Bytes(), nil
}
