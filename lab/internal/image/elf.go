package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/theseus-cni/theseus/release/layer"
)

// libraries returns every shared library that the programs need, directly or not, and the dynamic
// loaders that load them, as files where the loader looks for them. Nothing is executed.
func libraries(programs []string, dirs []string) ([]layer.File, error) {
	found := map[string]layer.File{}
	queue := append([]string(nil), programs...)
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		needed, loader, err := needs(next)
		if err != nil {
			return nil, err
		}
		if loader != "" {
			found[loader] = layer.Program(usrMerged(loader), loader)
		}
		for _, name := range needed {
			if strings.HasPrefix(name, "ld-linux") {
				continue // the loader itself, found by its path above
			}
			if _, seen := found[name]; seen {
				continue
			}
			source, err := locate(name, dirs)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", next, err)
			}
			found[name] = layer.File{Path: usrMerged(source), Mode: 0o644, Source: source}
			queue = append(queue, source)
		}
	}
	var files []layer.File
	for _, f := range found {
		files = append(files, f)
	}
	sort.Slice(files, func(i, j int) bool { return files[i].Path < files[j].Path })
	return files, nil
}

// needs reads what an ELF file asks for. A file that is no ELF, such as a script or nothing at all, needs nothing.
func needs(path string) (libs []string, loader string, err error) {
	f, err := elf.Open(path)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close()
	libs, err = f.ImportedLibraries()
	if err != nil {
		return nil, "", fmt.Errorf("read what %s needs: %w", path, err)
	}
	for _, segment := range f.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, segment.Filesz)
		if _, err := segment.ReadAt(name, 0); err != nil {
			return nil, "", fmt.Errorf("read the loader of %s: %w", path, err)
		}
		loader = strings.TrimRight(string(name), "\x00")
	}
	return libs, loader, nil
}

func locate(name string, dirs []string) (string, error) {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("library %s is in none of %s", name, strings.Join(dirs, ", "))
}

// libraryDirs are the directories that Debian's loader searches.
func libraryDirs() ([]string, error) {
	dirs, err := filepath.Glob("/usr/lib/*-linux-gnu")
	if err != nil {
		return nil, fmt.Errorf("list the library directories: %w", err)
	}
	return append(dirs, "/usr/lib", "/usr/lib64"), nil
}

// usrMerged is path as it reads where /bin, /sbin, /lib and /lib64 are links into /usr.
func usrMerged(path string) string {
	for _, top := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(path, top) {
			return "/usr" + path
		}
	}
	return path
}
