package image

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"
	"time"
)

// file is one entry of a layer. Exactly one of source, link and hard may be set; with none of them
// it is a file with the given content, a directory, or a named pipe.
type file struct {
	path    string // absolute, in the image
	mode    fs.FileMode
	owner   int    // user and group
	source  string // copied from this file of the machine
	content string // or written
	link    string // or a symbolic link to this
	hard    string // or another name of this file of the same layer
}

func program(path, source string) file { return file{path: path, mode: 0o755, source: source} }

func symlink(path, target string) file { return file{path: path, mode: 0o777, link: target} }

func directory(path string, mode fs.FileMode) file { return file{path: path, mode: mode | fs.ModeDir} }

// writeLayer writes the files as a tar. The result depends on the files alone: entries are sorted,
// hard links follow what they name, times are zero.
func writeLayer(w io.Writer, files []file) error {
	sorted := append([]file(nil), files...)
	sort.SliceStable(sorted, func(i, j int) bool {
		if (sorted[i].hard == "") != (sorted[j].hard == "") {
			return sorted[i].hard == ""
		}
		return sorted[i].path < sorted[j].path
	})
	out := tar.NewWriter(w)
	made := map[string]bool{"/": true}
	for _, f := range sorted {
		if f.mode.IsDir() {
			made[f.path] = true
		}
		if err := writeParents(out, f.path, made); err != nil {
			return err
		}
		if err := writeFile(out, f); err != nil {
			return fmt.Errorf("add %s to the layer: %w", f.path, err)
		}
	}
	return out.Close()
}

// writeParents writes the directories above p that are not there yet.
func writeParents(out *tar.Writer, p string, made map[string]bool) error {
	parent := path.Dir(p)
	if made[parent] {
		return nil
	}
	made[parent] = true
	if err := writeParents(out, parent, made); err != nil {
		return err
	}
	return writeFile(out, directory(parent, 0o755))
}

func writeFile(out *tar.Writer, f file) error {
	header := &tar.Header{
		Name:    strings.TrimPrefix(f.path, "/"),
		Mode:    int64(f.mode.Perm()),
		Uid:     f.owner,
		Gid:     f.owner,
		ModTime: time.Unix(0, 0),
		Format:  tar.FormatPAX,
	}
	if f.mode&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}
	switch {
	case f.mode.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
		return out.WriteHeader(header)
	case f.mode&fs.ModeNamedPipe != 0:
		header.Typeflag = tar.TypeFifo
		return out.WriteHeader(header)
	case f.link != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, f.link
		return out.WriteHeader(header)
	case f.hard != "":
		header.Typeflag, header.Linkname = tar.TypeLink, strings.TrimPrefix(f.hard, "/")
		return out.WriteHeader(header)
	case f.source != "":
		return writeSource(out, header, f.source)
	}
	header.Typeflag, header.Size = tar.TypeReg, int64(len(f.content))
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.WriteString(out, f.content)
	return err
}

func writeSource(out *tar.Writer, header *tar.Header, source string) error {
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
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return err
}
