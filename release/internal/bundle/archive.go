// Package bundle writes what a release consists of besides its images: archives of the programs, checksums,
// completions, and the manifest for kubectl's plugin manager, krew.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Entry is a file of an archive.
type Entry struct {
	Name    string // in the archive
	Source  string // copied from this file
	Content string // or written
	Mode    fs.FileMode
}

// Archive writes entries as a .tar.gz in their order. All are of one time, and of root.
func Archive(file string, entries []Entry, at time.Time) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write an archive: %w", err)
	}
	defer func() {
		if failed := out.Close(); err == nil {
			err = failed
		}
	}()
	zipped := gzip.NewWriter(out)
	packed := tar.NewWriter(zipped)
	for _, entry := range entries {
		if err := entry.write(packed, at); err != nil {
			return fmt.Errorf("add %s to %s: %w", entry.Name, filepath.Base(file), err)
		}
	}
	if err := packed.Close(); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if err := zipped.Close(); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

func (e Entry) write(to *tar.Writer, at time.Time) error {
	var from io.Reader = strings.NewReader(e.Content)
	size := int64(len(e.Content))
	if e.Source != "" {
		in, err := os.Open(e.Source)
		if err != nil {
			return err
		}
		defer in.Close()
		info, err := in.Stat()
		if err != nil {
			return err
		}
		from, size = in, info.Size()
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: e.Name, Size: size, Mode: int64(e.Mode.Perm()),
		ModTime: at, Format: tar.FormatPAX}
	if err := to.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(to, from)
	return err
}

// Folder are the files below a folder, as entries in the order of their names.
func Folder(dir, name string) ([]Entry, error) {
	var entries []Entry
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		below, err := filepath.Rel(dir, file)
		entries = append(entries, Entry{Name: name + "/" + filepath.ToSlash(below), Source: file, Mode: 0o644})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	return entries, nil
}

// Checksums writes the SHA-256 of every file in a folder to checksums.txt there, as sha256sum reads it.
func Checksums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list the release: %w", err)
	}
	var lines []string
	for _, entry := range entries {
		sum, err := Sum(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		lines = append(lines, sum+"  "+entry.Name()+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	if err := os.WriteFile(filepath.Join(dir, "checksums.txt"), []byte(strings.Join(lines, "")), 0o644); err != nil {
		return fmt.Errorf("write the checksums: %w", err)
	}
	return nil
}

// Sum is the SHA-256 of a file, in hexadecimal digits.
func Sum(file string) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("count a checksum: %w", err)
	}
	defer in.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, in); err != nil {
		return "", fmt.Errorf("count the checksum of %s: %w", file, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
