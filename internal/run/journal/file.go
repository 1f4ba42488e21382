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
	equal   []bool // which records were equal to known ones when the file was opened
	size    int64  // bytes of whole lines
	dropped int64
}

// OpenFile opens a journal, or begins one. A last line that a crash cut off is dropped: no caller was told that
// it was durable. Damage anywhere else is an error.
func OpenFile(path string) (*File, error) { return openKnown(path, nil) }

// openKnown is OpenFile for a copy of a journal whose records are known (parse).
func openKnown(path string, known []engine.Record) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fileError(path, err)
	}
	_, missing := os.Stat(path)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fileError(path, err)
	}
	f := &File{path: path, file: file}
	if err := f.load(known); err != nil {
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
func (f *File) load(known []engine.Record) error {
	data, err := io.ReadAll(f.file)
	if err != nil {
		return fileError(f.path, err)
	}
	if f.records, f.equal, f.size, err = parse(f.path, data, known); err != nil {
		return err
	}
	if f.dropped = int64(len(data)) - f.size; f.dropped == 0 {
		return nil
	}
	return f.cut()
}

// parse reads the complete lines of a journal, and returns how many bytes they have. A line that is the text of the
// known record in its place is not decoded, since decoding takes most of the time. equal says which lines are such
// texts.
func parse(path string, data []byte, known []engine.Record) (records []engine.Record, equal []bool, size int64,
	err error) {
	lines := bytes.Count(data, []byte("\n"))
	records, equal = make([]engine.Record, 0, lines), make([]bool, 0, lines)
	var text []byte
	for rest := data; ; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		if !whole {
			return records, equal, size, nil
		}
		var r engine.Record
		n, same := len(records), false
		if n < len(known) && known[n].Seq == n+1 {
			text, err = known[n].AppendJSON(text[:0])
			same = err == nil && bytes.Equal(line, text)
		}
		if same {
			r = known[n]
		} else {
			if err := json.Unmarshal(line, &r); err != nil || r.Seq != n+1 {
				if len(after) == 0 && err != nil {
					return records, equal, size, nil // an incomplete last line
				}
				return nil, nil, 0, damaged(path, n+1, r.Seq, err)
			}
		}
		records, equal = append(records, r), append(equal, same)
		size += int64(len(line)) + 1
		rest = after
	}
}

// Copy is this machine's copy of a journal, as its file was at one moment.
type Copy struct {
	path string
	data []byte
}

// ReadCopy reads a copy without changing its file, which may be missing.
func ReadCopy(path string) (Copy, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Copy{}, fileError(path, err)
	}
	return Copy{path, data}, nil
}

// Compare returns the records of a copy of the journal of a plan, by its hash, and a *ContradictError if the cluster's
// records, which were read after the copy, contradict them. A damaged copy, or one of another plan, has no records.
func (c Copy) Compare(plan string, cluster []engine.Record) ([]engine.Record, error) {
	local, equal, _, err := parse(c.path, c.data, cluster)
	if err != nil || otherPlan(local, plan) {
		return nil, nil
	}
	contradiction := contradict(c.path, local, cluster, equal)
	if contradiction != nil {
		if _, err := engine.Replay(local); err != nil {
			return nil, nil
		}
	}
	return local, contradiction
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
	for i := range fresh {
		if lines, err = fresh[i].AppendJSON(lines); err != nil {
			return fmt.Errorf("journal %s: record %d: %w", f.path, fresh[i].Seq, err)
		}
		lines = append(lines, '\n')
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
