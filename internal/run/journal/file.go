package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/theseus-cni/theseus/internal/run/engine"
)

// errDamaged marks a file whose lines are not a journal.
var errDamaged = errors.New("damaged")

// File is a journal with one JSON record per line. A record counts once its line, newline included, is on
// the disk.
type File struct {
	path    string
	file    *os.File
	records []engine.Record
	size    int64 // bytes of whole lines
	dropped int64
}

// OpenFile opens a journal, or begins one. A last line that a crash cut off is dropped: no caller was told that
// it was durable. Damage anywhere else is an error.
func OpenFile(path string) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fileError(path, err)
	}
	_, missing := os.Stat(path)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fileError(path, err)
	}
	f := &File{path: path, file: file}
	if err := f.load(); err != nil {
		file.Close()
		return nil, err
	}
	if errors.Is(missing, fs.ErrNotExist) {
		if err := syncDir(filepath.Dir(path)); err != nil {
			file.Close()
			return nil, fileError(path, err)
		}
	}
	return f, nil
}

// load reads all complete lines, and cuts off an incomplete last one.
func (f *File) load() error {
	data, err := io.ReadAll(f.file)
	if err != nil {
		return fileError(f.path, err)
	}
	if f.records, f.size, err = parse(f.path, data); err != nil {
		return err
	}
	if f.dropped = int64(len(data)) - f.size; f.dropped == 0 {
		return nil
	}
	return f.cut()
}

// parse reads the complete lines of a journal, and returns how many bytes they have.
func parse(path string, data []byte) (records []engine.Record, size int64, err error) {
	rest := data
	for {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			return records, size, nil
		}
		var r engine.Record
		if err := json.Unmarshal(line, &r); err != nil || r.Seq != len(records)+1 {
			if len(after) == 0 && err != nil {
				return records, size, nil // an incomplete last line
			}
			return nil, 0, damaged(path, len(records)+1, r.Seq, err)
		}
		records = append(records, r)
		size += int64(len(line)) + 1
		rest = after
	}
}

// ReadFile reads this machine's journal without changing it. A missing or damaged file has no records.
func ReadFile(path string) ([]engine.Record, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fileError(path, err)
	}
	records, _, err := parse(path, data)
	if errors.Is(err, errDamaged) {
		return nil, nil
	}
	return records, err
}

func damaged(path string, line, seq int, err error) error {
	if err == nil {
		err = fmt.Errorf("it holds record %d", seq)
	}
	return engine.WithHint(fmt.Errorf("journal %s: line %d is %w: %w", path, line, errDamaged, err),
		"move the file away; the copy in the cluster is complete, and `theseus resume` writes a new file")
}

// Append implements engine.Journal. If it fails, the file is unchanged.
func (f *File) Append(_ context.Context, records ...engine.Record) error {
	var last engine.Record
	if n := len(f.records); n > 0 {
		last = f.records[n-1]
	}
	fresh, err := admit(records, len(f.records), last)
	if err != nil || len(fresh) == 0 {
		return err
	}
	var lines []byte
	for _, r := range fresh {
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("journal %s: record %d: %w", f.path, r.Seq, err)
		}
		lines = append(append(lines, line...), '\n')
	}
	if _, err = f.file.Write(lines); err == nil {
		err = f.file.Sync()
	}
	if err != nil {
		return fileError(f.path, errors.Join(err, f.cut()))
	}
	f.size += int64(len(lines))
	f.records = append(f.records, fresh...)
	return nil
}

// cut truncates the file after its last complete line.
func (f *File) cut() error {
	if err := f.file.Truncate(f.size); err != nil {
		return err
	}
	return f.file.Sync()
}

// Records implements engine.Journal.
func (f *File) Records(context.Context) ([]engine.Record, error) { return slices.Clone(f.records), nil }

// Dropped is how many bytes of an unfinished line were cut off when the file was opened.
func (f *File) Dropped() int64 { return f.dropped }

// Close closes the file; every record is on the disk already.
func (f *File) Close() error { return f.file.Close() }

// fileError adds the path and a hint to an error of a journal's file.
func fileError(path string, err error) error {
	wrapped := fmt.Errorf("journal %s: %w", path, err)
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return engine.WithHint(wrapped, "the disk is full: free disk space, then `theseus resume`")
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return engine.WithHint(wrapped, "the journal's folder must be writable: choose another one")
	}
	return wrapped
}

// syncDir makes a new file's name durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
