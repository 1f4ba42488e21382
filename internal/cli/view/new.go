package view

import (
	"os"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/run"
)

// New chooses how a run is shown: live on a terminal, JSON when asked for, lines otherwise.
func New(a *app.App, p *plan.Plan) View {
	if a.Output == "json" {
		return &Events{Out: a.Out}
	}
	if file, ok := terminal.FileOf(a.Out); ok && terminal.Is(file) {
		return newLive(file, p, func() (width, height int) { return terminal.Size(file) }, os.Getenv("NO_COLOR") != "")
	}
	return &Lines{Out: a.Out, Script: run.NewScript(p), Begun: time.Now()}
}
