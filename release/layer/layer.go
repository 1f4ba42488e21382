// Package layer writes layers of images: tars whose bytes depend on the files alone.
package layer

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// File is one entry of a layer. At most one of Source, Link and Hard is set; with none of them it is a file with
// the given content, a directory, or a named pipe.
type File struct {
	Path    string // absolute, in the image
	Mode    fs.FileMode
	Owner   int       // user and group
	Time    time.Time // the zero time is 1970
	Source  string    // copied from this file of the machine
	Content string    // or written
	Link    string    // or a symbolic link to this
	Hard    string    // or another name of this file of the same layer
}

// Program is a program of this machine.
func Program(path, source string) File { return File{Path: path, Mode: 0o755, Source: source} }

// Symlink is a symbolic link.
func Symlink(path, target string) File { return File{Path: path, Mode: 0o777, Link: target} }

// Directory is a directory.
func Directory(path string, mode fs.FileMode) File { return File{Path: path, Mode: mode | fs.ModeDir} }

// Text is a file that everybody may read.
func Text(path, content string) File { return File{Path: path, Mode: 0o644, Content: content} }

// Write writes the files as a tar, sorted by path; hard links follow what they name. Directories that no file is,
// but that some file is in, are made.
func Write(w io.Writer, files []File) error {
	sorted := slices.Clone(files)
	slices.SortStableFunc(sorted, func(a, b File) int {
		if (a.Hard == "") != (b.Hard == "") {
			if a.Hard == "" {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Path, b.Path)
	})
	out := &writer{Writer: tar.NewWriter(w), made: map[string]bool{"/": true}}
	for _, f := range sorted {
		if err := out.add(f); err != nil {
			return fmt.Errorf("add %s to the layer: %w", f.Path, err)
		}
	}
	return out.Close()
}

// writer is a tar, and the directories that it has.
type writer struct {
	*tar.Writer
	made map[string]bool
}

// add writes a file, after the directories above it that are not there yet.
func (w *writer) add(f File) error {
	if parent := path.Dir(f.Path); !w.made[parent] {
		if err := w.add(Directory(parent, 0o755)); err != nil {
			return err
		}
	}
	if f.Mode.IsDir() {
		w.made[f.Path] = true
	}
	return w.write(f)
}

func (w *writer) write(f File) error {
	header := &tar.Header{
		Name:    strings.TrimPrefix(f.Path, "/"),
		Mode:    int64(f.Mode.Perm()),
		Uid:     f.Owner,
		Gid:     f.Owner,
		ModTime: time.Unix(0, 0),
		Format:  tar.FormatPAX,
	}
	if !f.Time.IsZero() {
		header.ModTime = f.Time
	}
	if f.Mode&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}
	switch {
	case f.Mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		return w.WriteHeader(header)
	case f.Mode&fs.ModeNamedPipe != 0:
		header.Typeflag = tar.TypeFifo
		return w.WriteHeader(header)
	case f.Link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.Link
		return w.WriteHeader(header)
	case f.Hard != "":
		header.Typeflag, header.Linkname = tar.TypeLink, strings.TrimPrefix(f.Hard, "/")
		return w.WriteHeader(header)
	case f.Source != "":
		return w.copy(header, f.Source)
	}
	header.Typeflag, header.Size = tar.TypeReg, int64(len(f.Content))
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.WriteString(w, f.Content)
	return err
}

func (w *writer) copy(header *tar.Header, source string) error {
	in, err := os.Open(source)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}
