package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// newRun is a run of this process, on this terminal; begins says that the cluster does not have the plan yet.
func (a *app) newRun(client *kube.Client, p *plan.Plan, begins bool) *run.Run {
	r := &run.Run{Client: client, Plan: p, Begins: begins, Theseus: a.version, Waiting: a.waiting}
	r.Stoppable = func(at *run.Flight) (<-chan struct{}, func()) {
		stopping := &stoppable{stop: make(chan struct{}), say: r.View.Say, flight: at.String}
		return stopping.stop, a.signals.during(stopping)
	}
	r.Mirrored = func(ctx context.Context, own engine.Deps, records engine.Journal) (engine.Actor, engine.Gate, error) {
		pair, err := a.reach(ctx, p)
		if err != nil {
			return nil, nil, err
		}
		return pair.hands(own, records, r.Dir, r.View.Note)
	}
	r.Follow = func(ctx context.Context, origin *plan.Origin) func() { return a.followOrigin(ctx, origin, r.View.Say) }
	return r
}

// newView chooses how a run is shown: live on a terminal, JSON when asked for, lines otherwise.
func (a *app) newView(p *plan.Plan) view {
	if a.output == "json" {
		return &events{out: a.Out}
	}
	if file, ok := fileOf(a.Out); ok && isTerminal(file) {
		return newLive(file, p, func() (width, height int) { return screen(file) }, os.Getenv("NO_COLOR") != "")
	}
	return &lines{out: a.Out, script: run.NewScript(p), begun: time.Now()}
}

// screen is the size of a terminal now; one that does not tell, or is too small for words, has 80 by 24.
func screen(terminal *os.File) (width, height int) {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width < 20 || height < 5 {
		return 80, 24
	}
	return width, height
}

// stateDir is where this machine keeps what belongs to a migration: THESEUS_STATE_DIR, else the user's
// state folder.
func stateDir(migration string) (string, error) {
	base := os.Getenv("THESEUS_STATE_DIR")
	if base == "" {
		state := os.Getenv("XDG_STATE_HOME")
		if state == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fail(exitFailed, "set THESEUS_STATE_DIR", "no folder for the local journal: %w", err)
			}
			state = filepath.Join(home, ".local", "state")
		}
		base = filepath.Join(state, "theseus")
	}
	return filepath.Join(base, migration), nil
}

// room is what a disk must still take before a run begins, in bytes: the journal and the evidence of a small one.
const room = 1 << 20

// makeStateDir makes the folder, and makes sure that it can be written to.
func makeStateDir(migration string) (string, error) {
	dir, err := stateDir(migration)
	if err != nil {
		return "", err
	}
	trial := filepath.Join(dir, ".room")
	if err = os.MkdirAll(dir, 0o700); err == nil {
		err = os.WriteFile(trial, make([]byte, room), 0o600)
		err = errors.Join(err, os.Remove(trial))
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "", fail(exitFailed, "free some space, or set THESEUS_STATE_DIR to a folder on another disk", "no room for the local journal: %w", err)
	case err != nil:
		return "", fail(exitFailed, "set THESEUS_STATE_DIR to a folder that can be written", "no folder for the local journal: %w", err)
	}
	return dir, nil
}
