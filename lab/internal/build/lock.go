package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// lock takes the file lock at path, waiting for its holder, and returns a function that releases it.
// The kernel releases the lock with its process, so a killed build blocks no other one.
func lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		fmt.Fprintln(progress, "waiting for another build to finish ...")
		err = blockingLock(ctx, f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock the cache: %w", err)
	}
	return func() { f.Close() }, nil
}

// blockingLock waits until the lock is free or ctx ends. The goroutine that waits in the kernel
// ends with the lock: its descriptor is its own, so a late success is closed at once.
func blockingLock(ctx context.Context, f *os.File) error {
	fd, err := syscall.Dup(int(f.Fd()))
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer syscall.Close(fd)
		done <- syscall.Flock(fd, syscall.LOCK_EX)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
