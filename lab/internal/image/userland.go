package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tools are the programs of the shared layer, all from Debian packages: what CNIs call to program
// the kernel, and the few commands that manifests and people use inside containers.
func tools() []string {
	return []string{
		"ip", "ipset", "nft", "conntrack", "ethtool", "xtables-nft-multi", "xtables-legacy-multi",
		"sh", "cp", "cat", "ls", "sleep",
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
	var files []file
	var sources []string
	for _, name := range tools() {
		found, err := exec.LookPath(name)
		if err != nil {
			return nil, "", fmt.Errorf("the images need %s: %w", name, err)
		}
		source, err := filepath.EvalSymlinks(found)
		if err != nil {
			return nil, "", fmt.Errorf("find %s: %w", name, err)
		}
		files = append(files, program("/usr/bin/"+name, source))
		sources = append(sources, source)
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
