package build

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// keyLength is how many hex digits of a hash name a directory: enough that two programs never meet.
const keyLength = 16

// key is a hash of all inputs of a third-party program: its component's files, the flags, the
// environment and the Go version.
func key(dir string, t target, goVersion string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", fmt.Errorf("list %s: %w", dir, err)
	}
	sort.Strings(files)
	mod, sum := t.requirements(dir)
	files = append(files, mod, sum)

	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00", goVersion, strings.Join(t.args(""), "\x00"), strings.Join(t.env(), "\x00"))
	if t.patched != nil {
		fmt.Fprintf(h, "%v\x00", *t.patched)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("hash the component: %w", err)
		}
		fmt.Fprintf(h, "%s\x00%d\x00", filepath.Base(file), len(content))
		h.Write(content)
	}
	return hex.EncodeToString(h.Sum(nil))[:keyLength], nil
}

// fileKey names a file by its content.
func fileKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("hash %s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil))[:keyLength], nil
}
