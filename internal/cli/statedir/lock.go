package statedir

import (
	"os"
	"path/filepath"
	"syscall"

	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// Lock lets only one process at a time use a journal. The kernel releases the lock when the process ends.
func Lock(dir, name string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, exit.Fail(exit.Failed, "wait until it is done, or interrupt it",
			"another process is working on %s", name)
	}
	return func() { file.Close() }, nil
}
