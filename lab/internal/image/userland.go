package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/release/layer"
)

// tools are the programs of the shared layer, all from Debian packages: what CNIs call to program
// the kernel, and the few commands that manifests and people use inside containers.
func tools() []string {
	return []string{
		"ip", "ipset", "nft", "conntrack", "ethtool", "xtables-nft-multi", "xtables-legacy-multi",
		"sh", "cp", "cat", "ls", "sleep", "seq",
	}
}

// tables lists the names that iptables' two multi-call programs go by.
func tables() []string {
	var names []string
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			names = append(names, family+suffix)
		}
	}
	return names
}

// userland returns the files of the shared layer, and a key that changes when any of them does.
func userland() ([]layer.File, string, error) {
	files, err := programs(tools())
	if err != nil {
		return nil, "", err
	}
	var sources []string
	for _, f := range files {
		sources = append(sources, f.Source)
	}
	names, err := tableNames()
	if err != nil {
		return nil, "", err
	}
	files = append(files, names...)

	dirs, err := libraryDirs()
	if err != nil {
		return nil, "", err
	}
	extensions, err := xtablesExtensions()
	if err != nil {
		return nil, "", err
	}
	for _, f := range extensions {
		sources = append(sources, f.Source)
	}
	libs, err := libraries(sources, dirs)
	if err != nil {
		return nil, "", err
	}
	files = append(files, extensions...)
	files = append(files, libs...)
	files = append(files, base()...)
	key, err := filesKey(files)
	return files, key, err
}

// programs are programs of this machine, for an image.
func programs(names []string) ([]layer.File, error) {
	var files []layer.File
	for _, name := range names {
		found, err := exec.LookPath(name)
		if err != nil {
			return nil, fmt.Errorf("the images need %s: %w", name, err)
		}
		source, err := filepath.EvalSymlinks(found)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", name, err)
		}
		files = append(files, layer.Program("/usr/bin/"+name, source))
	}
	return files, nil
}

// ulogd is the daemon that Weave Net's policy controller starts to log what it drops, with its plugins
// where Weave Net's configuration expects them, and the pipe that it logs to.
func ulogd() ([]layer.File, error) {
	plugins, err := filepath.Glob("/usr/lib/*-linux-gnu/ulogd/*.so")
	if err != nil {
		return nil, fmt.Errorf("list ulogd's plugins: %w", err)
	}
	if len(plugins) == 0 {
		return nil, fmt.Errorf("no plugins of ulogd found: are Debian's packages ulogd2 and ulogd2-pcap installed?")
	}
	files := []layer.File{
		layer.Program("/usr/sbin/ulogd", "/usr/sbin/ulogd"),
		{Path: "/var/log/ulogd.pcap", Mode: 0o644 | fs.ModeNamedPipe},
	}
	for _, path := range plugins {
		files = append(files, layer.Program("/usr/lib/ulogd/"+filepath.Base(path), path))
	}
	return files, nil
}

// bird is Debian's BIRD 1.6 where Calico looks for its own, from the folder that lab/install.sh unpacks it to.
func bird() ([]layer.File, error) {
	const unpacked = "/usr/local/lib/theseus-lab/bird/usr/sbin/"
	if _, err := os.Stat(unpacked); err != nil {
		return nil, fmt.Errorf("the images need Debian's BIRD, which lab/install.sh unpacks: %w", err)
	}
	return []layer.File{
		layer.Program("/usr/bin/bird", unpacked+"bird"),
		layer.Program("/usr/bin/bird6", unpacked+"bird6"),
		layer.Program("/usr/bin/birdcl", unpacked+"birdc"),
	}, nil
}

// missing are the libraries that the files need beyond what the shared layer has.
func missing(files, shared []layer.File) ([]layer.File, error) {
	var sources []string
	for _, f := range files {
		if f.Source != "" {
			sources = append(sources, f.Source)
		}
	}
	dirs, err := libraryDirs()
	if err != nil {
		return nil, err
	}
	needed, err := libraries(sources, dirs)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, f := range shared {
		there[f.Path] = true
	}
	return slices.DeleteFunc(needed, func(f layer.File) bool { return there[f.Path] }), nil
}

// base is the skeleton that the tools take for granted.
func base() []layer.File {
	files := []layer.File{
		layer.Symlink("/bin", "usr/bin"),
		layer.Symlink("/sbin", "usr/sbin"),
		layer.Symlink("/lib", "usr/lib"),
		layer.Symlink("/lib64", "usr/lib64"),
		layer.Directory("/usr/sbin", 0o755),
		layer.Directory("/run", 0o755),
		layer.Directory("/tmp", 0o777|fs.ModeSticky),
		layer.Directory("/var", 0o755),
		layer.Directory("/root", 0o700),
		{Path: "/etc/passwd", Mode: 0o644, Content: "root:x:0:0:root:/root:/bin/sh\n"},
		{Path: "/etc/group", Mode: 0o644, Content: "root:x:0:\n"},
	}
	for _, name := range []string{"/etc/protocols", "/etc/services"} {
		if _, err := os.Stat(name); err == nil {
			files = append(files, layer.File{Path: name, Mode: 0o644, Source: name})
		}
	}
	return files
}

// tableNames links iptables and its relatives to the multi-call program that this machine's
// iptables is: nft or legacy, whichever kube-proxy on the nodes uses too.
func tableNames() ([]layer.File, error) {
	found, err := exec.LookPath("iptables")
	if err != nil {
		return nil, fmt.Errorf("the images need iptables: %w", err)
	}
	chosen, err := filepath.EvalSymlinks(found)
	if err != nil {
		return nil, fmt.Errorf("find iptables: %w", err)
	}
	var files []layer.File
	for _, name := range tables() {
		family, suffix, _ := strings.Cut(name, "-")
		if suffix != "" {
			suffix = "-" + suffix
		}
		files = append(files,
			layer.Symlink("/usr/sbin/"+name, "../bin/"+filepath.Base(chosen)),
			layer.Symlink("/usr/sbin/"+family+"-nft"+suffix, "../bin/xtables-nft-multi"),
			layer.Symlink("/usr/sbin/"+family+"-legacy"+suffix, "../bin/xtables-legacy-multi"))
	}
	return files, nil
}

// xtablesExtensions are the matches and targets that iptables loads by name.
func xtablesExtensions() ([]layer.File, error) {
	paths, err := filepath.Glob("/usr/lib/*-linux-gnu/xtables/*.so")
	if err != nil {
		return nil, fmt.Errorf("list the iptables extensions: %w", err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no iptables extensions found: is Debian's iptables package installed?")
	}
	var files []layer.File
	for _, path := range paths {
		files = append(files, layer.File{Path: path, Mode: 0o644, Source: path})
	}
	return files, nil
}

// filesKey hashes the list of files: names, modes, and for what comes from this machine its size
// and time of change.
func filesKey(files []layer.File) (string, error) {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s\x00%o\x00%d\x00%s\x00%s\x00%s\x00", f.Path, f.Mode, f.Owner, f.Content, f.Link, f.Hard)
		if f.Source == "" {
			continue
		}
		info, err := os.Stat(f.Source)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", f.Source, err)
		}
		fmt.Fprintf(h, "%s\x00%d\x00%d\x00", f.Source, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
