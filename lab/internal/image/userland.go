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
func userland() ([]file, string, error) {
	files, err := programs(tools())
	if err != nil {
		return nil, "", err
	}
	var sources []string
	for _, f := range files {
		sources = append(sources, f.source)
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
		sources = append(sources, f.source)
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
func programs(names []string) ([]file, error) {
	var files []file
	for _, name := range names {
		found, err := exec.LookPath(name)
		if err != nil {
			return nil, fmt.Errorf("the images need %s: %w", name, err)
		}
		source, err := filepath.EvalSymlinks(found)
		if err != nil {
			return nil, fmt.Errorf("find %s: %w", name, err)
		}
		files = append(files, program("/usr/bin/"+name, source))
	}
	return files, nil
}

// ulogd is the daemon that Weave Net's policy controller starts to log what it drops, with its plugins
// where Weave Net's configuration expects them, and the pipe that it logs to.
func ulogd() ([]file, error) {
	plugins, err := filepath.Glob("/usr/lib/*-linux-gnu/ulogd/*.so")
	if err != nil {
		return nil, fmt.Errorf("list ulogd's plugins: %w", err)
	}
	if len(plugins) == 0 {
		return nil, fmt.Errorf("no plugins of ulogd found: are Debian's packages ulogd2 and ulogd2-pcap installed?")
	}
	files := []file{
		program("/usr/sbin/ulogd", "/usr/sbin/ulogd"),
		{path: "/var/log/ulogd.pcap", mode: 0o644 | fs.ModeNamedPipe},
	}
	for _, path := range plugins {
		files = append(files, program("/usr/lib/ulogd/"+filepath.Base(path), path))
	}
	return files, nil
}

// bird is Debian's BIRD 1.6 where Calico looks for its own, from the folder that lab/install.sh unpacks it to.
func bird() ([]file, error) {
	const unpacked = "/usr/local/lib/theseus-lab/bird/usr/sbin/"
	if _, err := os.Stat(unpacked); err != nil {
		return nil, fmt.Errorf("the images need Debian's BIRD, which lab/install.sh unpacks: %w", err)
	}
	return []file{
		program("/usr/bin/bird", unpacked+"bird"),
		program("/usr/bin/bird6", unpacked+"bird6"),
		program("/usr/bin/birdcl", unpacked+"birdc"),
	}, nil
}

// missing are the libraries that the files need beyond what the shared layer has.
func missing(files, shared []file) ([]file, error) {
	var sources []string
	for _, f := range files {
		if f.source != "" {
			sources = append(sources, f.source)
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
		there[f.path] = true
	}
	return slices.DeleteFunc(needed, func(f file) bool { return there[f.path] }), nil
}

// base is the skeleton that the tools take for granted.
func base() []file {
	files := []file{
		symlink("/bin", "usr/bin"),
		symlink("/sbin", "usr/sbin"),
		symlink("/lib", "usr/lib"),
		symlink("/lib64", "usr/lib64"),
		directory("/usr/sbin", 0o755),
		directory("/run", 0o755),
		directory("/tmp", 0o777|fs.ModeSticky),
		directory("/var", 0o755),
		directory("/root", 0o700),
		{path: "/etc/passwd", mode: 0o644, content: "root:x:0:0:root:/root:/bin/sh\n"},
		{path: "/etc/group", mode: 0o644, content: "root:x:0:\n"},
	}
	for _, name := range []string{"/etc/protocols", "/etc/services"} {
		if _, err := os.Stat(name); err == nil {
			files = append(files, file{path: name, mode: 0o644, source: name})
		}
	}
	return files
}

// tableNames links iptables and its relatives to the multi-call program that this machine's
// iptables is: nft or legacy, whichever kube-proxy on the nodes uses too.
func tableNames() ([]file, error) {
	found, err := exec.LookPath("iptables")
	if err != nil {
		return nil, fmt.Errorf("the images need iptables: %w", err)
	}
	chosen, err := filepath.EvalSymlinks(found)
	if err != nil {
		return nil, fmt.Errorf("find iptables: %w", err)
	}
	var files []file
	for _, name := range tables() {
		family, suffix, _ := strings.Cut(name, "-")
		if suffix != "" {
			suffix = "-" + suffix
		}
		files = append(files,
			symlink("/usr/sbin/"+name, "../bin/"+filepath.Base(chosen)),
			symlink("/usr/sbin/"+family+"-nft"+suffix, "../bin/xtables-nft-multi"),
			symlink("/usr/sbin/"+family+"-legacy"+suffix, "../bin/xtables-legacy-multi"))
	}
	return files, nil
}

// xtablesExtensions are the matches and targets that iptables loads by name.
func xtablesExtensions() ([]file, error) {
	paths, err := filepath.Glob("/usr/lib/*-linux-gnu/xtables/*.so")
	if err != nil {
		return nil, fmt.Errorf("list the iptables extensions: %w", err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no iptables extensions found: is Debian's iptables package installed?")
	}
	var files []file
	for _, path := range paths {
		files = append(files, file{path: path, mode: 0o644, source: path})
	}
	return files, nil
}

// filesKey hashes the list of files: names, modes, and for what comes from this machine its size
// and time of change.
func filesKey(files []file) (string, error) {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintf(h, "%s\x00%o\x00%d\x00%s\x00%s\x00%s\x00", f.path, f.mode, f.owner, f.content, f.link, f.hard)
		if f.source == "" {
			continue
		}
		info, err := os.Stat(f.source)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", f.source, err)
		}
		fmt.Fprintf(h, "%s\x00%d\x00%d\x00", f.source, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}
