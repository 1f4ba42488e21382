package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/step"
)

// writeDurably replaces a file such that after a crash it is either the old one or the new one.
func writeDurably(name string, content []byte) error {
	temporary := name + ".tmp"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return renameDurably(temporary, name)
}

// renameDurably renames within a file system and makes that last.
func renameDurably(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	err := syncDir(filepath.Dir(to))
	if old := filepath.Dir(from); old != filepath.Dir(to) {
		err = errors.Join(err, syncDir(old))
	}
	return err
}

func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// names lists a folder, sorted; one that does not exist is empty.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list a folder: %w", err)
	}
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all, nil
}

// confFiles are the files that the container runtime picks from, in its order: the first one serves.
func (n *Node) confFiles() ([]string, error) {
	dir, err := n.inConf("")
	if err != nil {
		return nil, err
	}
	all, err := names(dir)
	return slices.DeleteFunc(all, func(name string) bool {
		return !slices.Contains([]string{".conf", ".conflist", ".json"}, path.Ext(name))
	}), err
}

// existing resolves the paths of a residue to those that are there.
func (n *Node) existing(patterns []string) ([]string, error) {
	var found []string
	for _, pattern := range patterns {
		dir := path.Dir(pattern)
		all, err := names(filepath.Join(n.Root, dir))
		if err != nil {
			return nil, err
		}
		for _, name := range step.Pick([]string{path.Base(pattern)}, all) {
			if name = path.Join(dir, name); !n.emptyMount(name) {
				found = append(found, name)
			}
		}
	}
	return found, nil
}

// emptyMount says whether a path is a file system of its own with nothing on it: the administrator mounted
// it there, so it is no residue, and it cannot be removed either.
func (n *Node) emptyMount(name string) bool {
	full := filepath.Join(n.Root, name)
	var here, above unix.Stat_t
	if unix.Lstat(full, &here) != nil || unix.Lstat(filepath.Dir(full), &above) != nil || here.Dev == above.Dev {
		return false
	}
	inside, err := names(full)
	return err == nil && len(inside) == 0
}

// remove removes files and folders of the node, given below its root. It goes through no symbolic link
// that leads out of the root.
func (n *Node) remove(names []string) error {
	root, err := os.OpenRoot(n.Root)
	if err != nil {
		return fmt.Errorf("open the node's root: %w", err)
	}
	defer root.Close()
	var errs []error
	for _, name := range names {
		if err := n.unmount(name); err != nil {
			errs = append(errs, err) // and nothing in it is removed
			continue
		}
		err := root.RemoveAll(strings.TrimPrefix(name, "/"))
		if err != nil && !n.emptyMount(name) {
			errs = append(errs, fmt.Errorf("remove %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
