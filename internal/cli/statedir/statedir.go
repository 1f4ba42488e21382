package statedir

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// Of is the folder of a migration on this machine, in THESEUS_STATE_DIR or else the user's state
// folder.
func Of(migration string) (string, error) {
	base := os.Getenv("THESEUS_STATE_DIR")
	if base == "" {
		state := os.Getenv("XDG_STATE_HOME")
		if state == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", exit.Fail(exit.Failed, "set THESEUS_STATE_DIR", "no folder for the local journal: %w", err)
			}
			state = filepath.Join(home, ".local", "state")
		}
		base = filepath.Join(state, "theseus")
	}
	return filepath.Join(base, migration), nil
}

// room is the disk space that a run needs before it begins, in bytes: for the journal and the evidence of a small run.
const room = 1 << 20

// Make makes the folder, and checks that it can be written to.
func Make(migration string) (string, error) {
	dir, err := Of(migration)
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
		return "", exit.Fail(exit.Failed, "free disk space, or set THESEUS_STATE_DIR to a folder on another disk",
			"no disk space for the local journal: %w", err)
	case err != nil:
		return "", exit.Fail(exit.Failed, "set THESEUS_STATE_DIR to a writable folder",
			"no folder for the local journal: %w", err)
	}
	return dir, nil
}
