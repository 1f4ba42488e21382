package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"

	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/network/bgp/draw"
)

//go:embed page/findings.html
var findingsHTML string

// Findings is the result of a preflight as one self-contained page: the verdict, the BGP graph before and after the
// change (no rows if there is none), every finding with its fix, and the checks that were not made.
func Findings(result finding.Result, graph []draw.Row) ([]byte, error) {
	drawn, err := picture(graph)
	if err != nil {
		return nil, err
	}
	t, err := template.New("findings").Parse(findingsHTML)
	if err != nil {
		return nil, fmt.Errorf("the findings' page: %w", err)
	}
	level, word, title := Good, "not blocked", "No check blocks this change"
	switch {
	case result.Blocks():
		level, word, title = Bad, "blocked", "This change is blocked"
	case result.Summary.Warn > 0:
		level = Fair
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{
		"Style": template.CSS(pageCSS), "Level": level, "Word": word, "Title": title,
		"Result": result, "Graph": drawn,
	})
	if err != nil {
		return nil, fmt.Errorf("the findings' page: %w", err)
	}
	return out.Bytes(), nil
}

// picture is a graph as SVG; empty where there is none.
func picture(graph []draw.Row) (template.HTML, error) {
	var drawn bytes.Buffer
	if len(graph) > 0 {
		if err := draw.SVG(&drawn, graph); err != nil {
			return "", err
		}
	}
	return template.HTML(drawn.String()), nil // draw escapes the names in it
}
