package debian

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// helper is the program of apt that fetches one file as apt does, with this machine's proxies.
const helper = "/usr/lib/apt/apt-helper"

// Archive fetches pinned packages, and keeps them.
type Archive struct {
	Dir      string    // where packages are kept, by their checksums
	Archives Archives  // asked first
	Say      io.Writer // is told of what is fetched
}

// collection is Debian's of everything that its archives ever had, asked second.
const collection = "http://snapshot.debian.org/archive/"

// collected is where the collection has a package: it has a folder for every time.
func collected(taken time.Time, file string) string {
	archive, rest, _ := strings.Cut(file, "/")
	return collection + archive + "/" + taken.UTC().Format("20060102T150405Z") + "/" + rest
}

// Fetch returns the file of a package.
func (a *Archive) Fetch(ctx context.Context, taken time.Time, p Package) (string, error) {
	kept := filepath.Join(a.Dir, p.SHA256+".deb")
	if sum, err := checksum(kept); err == nil && sum == p.SHA256 {
		return kept, nil
	}
	if err := os.MkdirAll(a.Dir, 0o755); err != nil {
		return "", fmt.Errorf("keep packages: %w", err)
	}
	fmt.Fprintf(a.Say, "fetching %s %s\n", p.Name, p.Version)
	var failed []error
	file := (&url.URL{Path: p.File}).EscapedPath()
	for _, address := range []string{a.Archives.at(file), collected(taken, file)} {
		err := download(ctx, address, kept, p.SHA256)
		if err == nil {
			return kept, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		failed = append(failed, err)
	}
	return "", &Problem{fmt.Sprintf("no archive has %s %s as the lock pins it: %v",
		p.Name, p.Version, oneLine(errors.Join(failed...))),
		"Debian removes old versions at every point release; " + Renewing}
}

// download fetches a file by its checksum; it appears when it is whole.
func download(ctx context.Context, from, to, sum string) error {
	work, err := os.MkdirTemp(filepath.Dir(to), "fetch-")
	if err != nil {
		return fmt.Errorf("keep packages: %w", err)
	}
	defer os.RemoveAll(work)
	file := filepath.Join(work, "package.deb")
	cmd := exec.CommandContext(ctx, helper, "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2",
		"download-file", from, file, "SHA256:"+sum)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", from, err, out)
	}
	if got, err := checksum(file); err != nil || got != sum {
		return fmt.Errorf("%s: its checksum is %s, not %s (%v)", from, got, sum, err)
	}
	if err := os.Rename(file, to); err != nil {
		return fmt.Errorf("keep a package: %w", err)
	}
	return nil
}

func checksum(file string) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, in); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
