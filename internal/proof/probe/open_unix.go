//go:build unix

package probe

import (
	"os"
	"syscall"
)

// openHere opens a file for reading. It follows no symbolic link and does not block on a pipe.
func openHere(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}
