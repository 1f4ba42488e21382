// Package outfile writes the files that a person asked for: whole or not at all, and readable by their owner alone,
// since each says something of a cluster.
package outfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Write replaces a file by data.
func Write(name string, data []byte) error {
	return WriteBy(name, func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	})
}

// WriteBy replaces a file by what a function writes. Until that is on disk, the former file stays as it is; where a name
// leads to something other than a file, such as /dev/stdout, it is written directly.
func WriteBy(name string, write func(io.Writer) error) error {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real // a link stays a link
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return direct(name, write)
	}
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*") // 0600
	if err != nil {
		return fmt.Errorf("%s was not written: %w", name, err)
	}
	err = errors.Join(write(file), file.Sync())
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("%s was not written, and is as it was: %w", name, errors.Join(err, os.Remove(file.Name())))
	}
	return syncFolder(filepath.Dir(name))
}

func direct(name string, write func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}

// syncFolder makes a rename durable.
func syncFolder(name string) error {
	folder, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
