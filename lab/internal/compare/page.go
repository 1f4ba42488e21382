package compare

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html
var pageText string

// cellOf is a cell of the page.
type cellOf struct{ Text, Tone string }

// rowOf is a row of the page; one with a path alone is a headline.
type rowOf struct {
	Path, Title string
	Cells       []cellOf
}

// Drawings are those of a page of theseus bench draw, with their style.
type Drawings struct {
	Style   template.CSS
	Section template.HTML
}

// DrawingsOf takes the drawings out of a page of theseus bench draw.
func DrawingsOf(page string) (d Drawings, err error) {
	between := func(begin, end string) string {
		_, rest, _ := strings.Cut(page, begin)
		inner, _, found := strings.Cut(rest, end)
		if !found {
			err = fmt.Errorf("the page of theseus bench draw has no %s", begin)
		}
		return inner
	}
	const section = `<section id="drawings">`
	d = Drawings{template.CSS(between("<style>", "</style>")), //nolint:gosec // theseus escapes what it writes
		template.HTML(section + between(section, "</section>") + "</section>")} //nolint:gosec // the same
	return d, err
}

// WritePage writes the comparison as one file of HTML, which loads nothing.
func (c *Comparison) WritePage(w io.Writer, drawings Drawings) error {
	page, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	var rows []rowOf
	path := ""
	for _, line := range c.shown() {
		if line.Path != path {
			path = line.Path
			rows = append(rows, rowOf{Path: path})
		}
		row := rowOf{Title: line.Title()}
		for _, cell := range line.Cells {
			tone := ""
			switch {
			case cell.Failed > 0, line.lost && cell.Of > 0 && cell.Median > 0:
				tone = "bad"
			case cell.Short:
				tone = "warn"
			}
			row.Cells = append(row.Cells, cellOf{line.text(cell), tone})
		}
		rows = append(rows, row)
	}
	return page.Execute(w, map[string]any{"C": c, "Rows": rows, "Failed": c.FailedRuns(),
		"Drawings": drawings})
}
