// Package outfile writes the files that a person asked for: completely or not at all, and readable only by their owner,
// since each describes a cluster.
package outfile

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Write replaces a file with data.
func Write(name string, data []byte) error {
	return WriteBy(name, func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	})
}

// WriteJSON replaces a file with a value as JSON.
func WriteJSON(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return Write(name, data)
}

// WriteBy replaces a file with the output of a function. Until the output is on disk, the former file remains
// unchanged. If a name leads to something other than a file, such as /dev/stdout, it is written directly.
func WriteBy(name string, write func(io.Writer) error) error {
	name = followed(name)
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return direct(name, write)
	}
	file, err := os.CreateTemp(filepath.Dir(name), temporary(name)+"*") // 0600
	if err != nil {
		return failed(name, err)
	}
	if err := fill(file, name, write); err != nil {
		os.Remove(file.Name()) //nolint:errcheck // the first error is the one that a person can fix
		return failed(name, err)
	}
	return syncFolder(filepath.Dir(name))
}

// followed is the file that symbolic links lead to: they stay as they are.
func followed(name string) string {
	if real, err := filepath.EvalSymlinks(name); err == nil {
		return real
	}
	return name
}

// temporary is how the names of a file's temporary files begin.
func temporary(name string) string { return "." + filepath.Base(name) + "." }

// Sweep removes the temporary files of writes that were killed. No process may be writing the file meanwhile.
func Sweep(name string) error {
	name = followed(name)
	entries, err := os.ReadDir(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), temporary(name)) {
			err = errors.Join(err, os.Remove(filepath.Join(filepath.Dir(name), entry.Name())))
		}
	}
	return err
}

// fill writes the temporary file, and renames it.
func fill(file *os.File, name string, write func(io.Writer) error) error {
	if err := write(file); err != nil {
		file.Close()
		return err
	}
	if err := file.Sync(); err != nil {
		file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}

// failed names the file that a person asked for, and not the temporary one, whose name is random.
func failed(name string, err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return &fs.PathError{Op: "write", Path: name, Err: err}
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
