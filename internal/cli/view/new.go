package view

import (
	"os"
	"time"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/terminal"
	"github.com/theseus-cni/theseus/internal/run"
)

// New chooses how a run of this process is shown: live on a terminal, JSON when asked for, lines otherwise.
func New(a *app.App, p *plan.Plan) View { return Watching(a, p, time.Time{}) }

// Watching chooses how the run of another process is shown, which began at a time on that process' clock. The time may
// be zero.
func Watching(a *app.App, p *plan.Plan, begun time.Time) View {
	if a.Output == "json" {
		return &Events{Out: a.Out}
	}
	if file, ok := terminal.FileOf(a.Out); ok && terminal.Is(file) {
		live := newLive(file, p, func() (width, height int) { return terminal.Size(file) }, os.Getenv("NO_COLOR") != "")
		live.begun = begun
		return live
	}
	if begun.IsZero() {
		begun = time.Now()
	}
	return &Lines{Out: a.Out, Script: run.NewScript(p), Begun: begun}
}
