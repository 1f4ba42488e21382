package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// Limits of asking a container runtime for its folders.
const (
	folderWait  = 5 * time.Second // for an answer
	folderFresh = time.Minute     // until a verb asks again
	mostEntries = 200             // of a folder in which symbolic links are searched
)

// folders are the runtime's folders with the paths below the node's root that they lead to, without symbolic links.
type folders struct {
	cluster.Folders
	conf    string
	plugins []string
}

// folders returns the folders that the node's runtime told most recently. The runtime is asked at most once during a
// verb. A runtime that is there and does not answer is an error: a plan names files only, and in which folder they are
// must not be guessed. A node without a runtime has the default folders.
func (n *Node) folders() (*folders, error) {
	n.folderMu.Lock()
	defer n.folderMu.Unlock()
	if n.told != nil && !n.tellAgain {
		return n.told, nil
	}
	n.tellAgain = false
	ctx, cancel := context.WithTimeout(context.Background(), folderWait)
	defer cancel()
	said, err := n.askRuntimes(ctx)
	if known := n.told != nil && n.told.Problem == ""; known && (err != nil || said.Problem != "") {
		n.toldAt = time.Now()
		return n.told, nil // a runtime that restarts has the folders that it had
	}
	if err != nil {
		return nil, fmt.Errorf("ask the container runtime for its CNI folders: %w", err)
	}
	told := &folders{Folders: said, conf: n.real(said.Conf)}
	for _, folder := range said.Plugins {
		told.plugins = append(told.plugins, n.real(folder))
	}
	told.Links = n.otherNames(told)
	n.told, n.toldAt = told, time.Now()
	return told, nil
}

// mayTellAgain lets the next use of the folders ask the runtime, if its answer is not fresh.
func (n *Node) mayTellAgain() {
	n.folderMu.Lock()
	defer n.folderMu.Unlock()
	n.tellAgain = n.told == nil || n.told.Problem != "" || time.Since(n.toldAt) > folderFresh
}

// inConf is the full path of a file in the folder of configurations.
func (n *Node) inConf(file string) (string, error) {
	told, err := n.folders()
	if err != nil {
		return "", err
	}
	return filepath.Join(n.Root, told.conf, file), nil
}

// folderFacts are the folders for the snapshot.
func (n *Node) folderFacts() *cluster.Folders {
	told, err := n.folders()
	if err != nil {
		return &cluster.Folders{Problem: err.Error()}
	}
	return &told.Folders
}

// real follows the symbolic links of a path within the node's root. A path that does not exist yet, and any path on a
// kernel before 5.6, is returned as it is.
func (n *Node) real(name string) string {
	file, err := n.pathIn(name)
	if err != nil {
		return name
	}
	defer file.Close()
	root, err := filepath.EvalSymlinks(n.Root)
	if err != nil {
		return name
	}
	found, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	below, err2 := filepath.Rel(root, found)
	if err != nil || err2 != nil || below == ".." || strings.HasPrefix(below, "../") {
		return name
	}
	return path.Join("/", below)
}

// pathIn opens a path of the node without reading it. Symbolic links, absolute ones too, stay within the node's root.
func (n *Node) pathIn(name string) (*os.File, error) {
	root, err := unix.Open(n.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6: absolute links would leave the root
		if rest, ok := strings.CutPrefix(name, "/var/run/"); ok {
			name = "/run/" + rest
		}
		fd, err = unix.Open(filepath.Join(n.Root, name), unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// otherNames are other names of the folders: the defaults, if they are symbolic links to them, and paths through
// symbolic links next to them, such as /var/snap/microk8s/current.
func (n *Node) otherNames(told *folders) map[string]string {
	all := map[string]string{}
	add := func(name, told, real string) {
		if name != told && n.real(name) == real {
			all[name] = told
		}
	}
	for _, name := range append(n.byLinks(told.Conf), cluster.DefaultConfFolder, told.conf) {
		add(name, told.Conf, told.conf)
	}
	for i, folder := range told.Plugins {
		for _, name := range append(n.byLinks(folder), cluster.DefaultPluginFolder, told.plugins[i]) {
			add(name, folder, told.plugins[i])
		}
	}
	return all
}

// byLinks replaces each part of a path by the symbolic links in the same folder.
func (n *Node) byLinks(name string) []string {
	var all []string
	for upper := name; upper != "/"; upper = path.Dir(upper) {
		rest := strings.TrimPrefix(name, upper)
		entries, err := os.ReadDir(filepath.Join(n.Root, path.Dir(upper)))
		if err != nil || len(entries) > mostEntries {
			continue
		}
		for _, entry := range entries {
			if entry.Type() == fs.ModeSymlink && entry.Name() != path.Base(upper) {
				all = append(all, path.Join(path.Dir(upper), entry.Name(), rest))
			}
		}
	}
	return all
}

// folder judges a folder that a runtime told: an absolute path below another folder.
func folder(name string) (string, error) {
	if clean := path.Clean(name); path.IsAbs(clean) && strings.Count(clean, "/") > 1 {
		return clean, nil
	}
	return "", fmt.Errorf("it names %q, which is not a folder for CNI files", name)
}

// toFolders judges what a runtime told.
func toFolders(conf string, plugins []string) (cluster.Folders, error) {
	var told cluster.Folders
	var err error
	if told.Conf, err = folder(conf); err != nil {
		return told, err
	}
	for _, name := range plugins {
		name, err := folder(name)
		if err != nil {
			return told, err
		}
		told.Plugins = append(told.Plugins, name)
	}
	if len(told.Plugins) == 0 {
		return told, errors.New("it names no folder of plugins")
	}
	return told, nil
}
