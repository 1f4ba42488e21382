package debian

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Package is a package at one version, for one architecture.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	File    string `json:"file"` // path in the archive, such as debian/pool/main/n/nftables/nftables_1.0.6-2_amd64.deb
	Size    int64  `json:"size"`
	SHA256  string `json:"sha256"`
}

// Lock pins the packages of images.
type Lock struct {
	// Taken is when Debian's archive had all of them, for snapshot.debian.org.
	Taken time.Time `json:"taken"`
	// Suite is Debian's, such as bookworm.
	Suite string `json:"suite"`
	// Images are the packages by the image's name and the architecture, in the order of their names.
	Images map[string]map[string][]Package `json:"images"`
}

// ReadLock reads a lock.
func ReadLock(file string) (*Lock, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the lock of Debian's packages: %w", err)
	}
	lock := &Lock{}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(lock); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return lock, nil
}

// Write writes the lock.
func (l *Lock) Write(file string) error {
	text, err := json.MarshalIndent(l, "", " ")
	if err != nil {
		return fmt.Errorf("encode the lock of Debian's packages: %w", err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the lock of Debian's packages: %w", err)
	}
	return nil
}

// Of are the packages of an image for an architecture.
func (l *Lock) Of(image, architecture string) ([]Package, error) {
	packages := l.Images[image][architecture]
	if len(packages) == 0 {
		return nil, &Problem{fmt.Sprintf("the lock has no packages of the image %s for %s",
			image, architecture), Renewing}
	}
	return packages, nil
}

// Renewing is the hint that renews the lock.
const Renewing = "renew the lock, and read its difference: make images-lock"

// Problem is an error with a hint.
type Problem struct{ text, hint string }

func (p *Problem) Error() string { return p.text }

// Hint says what to try.
func (p *Problem) Hint() string { return p.hint }
