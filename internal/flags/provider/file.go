package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
)

// pollFiles is how often files are polled. A change is loaded once it is seen twice, so that the writer has finished.
const pollFiles = 250 * time.Millisecond

// File is a flag set in one file: YAML if its name ends in .yaml or .yml, else JSON.
type File struct{ Path string }

// String implements Source.
func (f File) String() string { return f.Path }

// Load implements Source.
func (f File) Load(ctx context.Context) (*flagset.Set, error) {
	return loadSettled(ctx, []string{f.Path}, func() (*flagset.Set, error) { return ReadFile(f.Path, flagset.Strict) })
}

// Watch implements Source.
func (f File) Watch(ctx context.Context, changed func()) error {
	return watchFiles(ctx, func() string { return signature([]string{f.Path}) }, changed)
}

// ReadFile reads a flag set from a file.
func ReadFile(path string, mode flagset.Mode) (*flagset.Set, error) {
	input, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer input.Close()
	data, err := io.ReadAll(io.LimitReader(input, flagset.MaxBytes+1))
	if err != nil {
		return nil, err
	}
	return flagset.Parse(path, data, FormatOf(path), mode)
}

// FormatOf returns the format of a file, by its name.
func FormatOf(path string) flagset.Format {
	if extension := filepath.Ext(path); extension == ".yaml" || extension == ".yml" {
		return flagset.YAML
	}
	return flagset.JSON
}

// Directory is all flag sets in a folder: its .json, .yaml and .yml files, except hidden ones. A flag must not be in
// two of them.
type Directory struct{ Path string }

// String implements Source.
func (d Directory) String() string { return d.Path }

// Load implements Source.
func (d Directory) Load(ctx context.Context) (*flagset.Set, error) {
	files, err := d.files()
	if err != nil {
		return nil, err
	}
	return loadSettled(ctx, files, func() (*flagset.Set, error) { return d.read(files) })
}

func (d Directory) read(files []string) (*flagset.Set, error) {
	sets := make([]*flagset.Set, len(files))
	for i, file := range files {
		var err error
		if sets[i], err = ReadFile(file, flagset.Strict); err != nil {
			return nil, err
		}
	}
	return flagset.Merge(sets...)
}

// Watch implements Source.
func (d Directory) Watch(ctx context.Context, changed func()) error {
	return watchFiles(ctx, func() string {
		files, err := d.files()
		if err != nil {
			return err.Error()
		}
		return signature(files)
	}, changed)
}

func (d Directory) files() ([]string, error) {
	entries, err := os.ReadDir(d.Path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasPrefix(name, ".") && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(name)) {
			files = append(files, filepath.Join(d.Path, name))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no .json, .yaml or .yml file in it", d.Path)
	}
	return files, nil
}

// signature describes files by their metadata, without reading them.
func signature(files []string) string {
	var b strings.Builder
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			fmt.Fprintf(&b, "%s %v\n", file, err)
			continue
		}
		fmt.Fprintf(&b, "%s %d %d %v\n", file, info.Size(), info.ModTime().UnixNano(), identity(info))
	}
	return b.String()
}

var errUnsettled = errors.New("it is being written continuously")

// loadSettled reads files, and reads them again if they were written meanwhile.
func loadSettled(ctx context.Context, files []string, read func() (*flagset.Set, error)) (*flagset.Set, error) {
	const attempts = 20
	for range attempts {
		before := signature(files)
		set, err := read()
		if signature(files) == before {
			return set, err
		}
		if err := outage.Sleep(ctx, pollFiles/10); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: %w", files[0], errUnsettled)
}

// watchFiles polls files, and calls changed once their signature has changed and is stable.
func watchFiles(ctx context.Context, look func() string, changed func()) error {
	// Changes between the last read and now are unknown, so the first poll counts as a change.
	told, last := "", ""
	for {
		now := look()
		if now == last && now != told {
			told = now
			changed()
		}
		last = now
		if err := outage.Sleep(ctx, pollFiles); err != nil {
			return err
		}
	}
}
