package debian

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Resolver finds the newest versions of packages for one architecture, by an apt of its own that knows of nothing
// installed. Apt verifies the signatures of the archive.
type Resolver struct {
	config   string
	archives Archives
}

// NewResolver asks the archive for its lists, and keeps them in dir.
func NewResolver(ctx context.Context, dir, suite, architecture string) (*Resolver, error) {
	if _, err := os.Stat(keyring); err != nil {
		return nil, &Problem{"the keys of Debian's archive are not on this machine: " + keyring,
			"apt-get install debian-archive-keyring"}
	}
	for _, folder := range []string{"etc/preferences.d", "etc/sources.list.d", "lists/partial",
		"cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return nil, fmt.Errorf("make a folder for apt: %w", err)
		}
	}
	archives, err := Configured(ctx)
	if err != nil {
		return nil, err
	}
	r := &Resolver{config: filepath.Join(dir, "apt.conf"), archives: archives}
	var sources strings.Builder
	for _, of := range []struct{ archive, suite string }{{main, suite}, {main, suite + "-updates"},
		{security, suite + "-security"}} {
		fmt.Fprintf(&sources, "deb [signed-by=%s] %s %s main\n", keyring, archives[of.archive], of.suite)
	}
	for file, text := range map[string]string{r.config: aptConfig(dir, architecture),
		filepath.Join(dir, "etc/sources.list"): sources.String(),
		filepath.Join(dir, "status"):           ""} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return nil, fmt.Errorf("write apt's configuration: %w", err)
		}
	}
	_, err = r.apt(ctx, "apt-get", "update", "-q")
	return r, err
}

// aptConfig keeps everything of apt's in dir, but for how this machine reaches servers.
func aptConfig(dir, architecture string) string {
	return fmt.Sprintf(`Dir::State "%[1]s";
Dir::State::status "%[1]s/status";
Dir::Cache "%[1]s/cache";
Dir::Etc::sourcelist "%[1]s/etc/sources.list";
Dir::Etc::sourceparts "%[1]s/etc/sources.list.d";
Dir::Etc::preferencesparts "%[1]s/etc/preferences.d";
APT::Architecture "%[2]s";
APT::Architectures { "%[2]s"; };
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
`, dir, architecture)
}

func (r *Resolver) apt(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "APT_CONFIG="+r.config, "LC_ALL=C")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, args[0], err, strings.Join(strings.Fields(errs.String()), " "))
	}
	return string(out), nil
}

// Closure are the newest versions of packages, and of all that they depend on.
func (r *Resolver) Closure(ctx context.Context, names []string) ([]Package, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out, err := r.apt(ctx, "apt-get", append([]string{"install", "--print-uris", "-qq", "-y"}, names...)...)
	if err != nil {
		return nil, err
	}
	return r.listed(ctx, out)
}

// Alone are the newest versions of packages, without what they depend on.
func (r *Resolver) Alone(ctx context.Context, names []string) ([]Package, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out, err := r.apt(ctx, "apt-get", append([]string{"download", "--print-uris", "-qq"}, names...)...)
	if err != nil {
		return nil, err
	}
	return r.listed(ctx, out)
}

// listed reads the lines of --print-uris: 'URL' name_version_architecture.deb size checksum.
func (r *Resolver) listed(ctx context.Context, out string) ([]Package, error) {
	var packages []Package
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		file, err := url.PathUnescape(r.archives.path(strings.Trim(fields[0], "'")))
		if err != nil {
			return nil, fmt.Errorf("read what apt printed: %w", err)
		}
		named, err := url.PathUnescape(fields[1])
		if err != nil {
			return nil, fmt.Errorf("read what apt printed: %w", err)
		}
		parts := strings.Split(named, "_")
		if len(parts) != 3 {
			return nil, fmt.Errorf("read what apt printed: %q is no package's file", named)
		}
		packages = append(packages, Package{Name: parts[0], Version: parts[1], File: file})
	}
	slices.SortFunc(packages, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	return packages, r.describe(ctx, packages)
}

// describe takes sizes and checksums of packages from the signed lists.
func (r *Resolver) describe(ctx context.Context, packages []Package) error {
	args := []string{"show"}
	for _, p := range packages {
		args = append(args, p.Name+"="+p.Version)
	}
	out, err := r.apt(ctx, "apt-cache", args...)
	if err != nil {
		return err
	}
	known := map[string]map[string]string{} // by the path below the archive
	for paragraph := range strings.SplitSeq(strings.TrimSpace(out), "\n\n") {
		fields := map[string]string{}
		for line := range strings.Lines(paragraph) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && fields[key] == "" {
				fields[key] = value
			}
		}
		known[fields["Filename"]] = fields
	}
	for i := range packages {
		p := &packages[i]
		_, below, _ := strings.Cut(p.File, "/")
		fields := known[below]
		if p.SHA256 = fields["SHA256"]; p.SHA256 == "" {
			return fmt.Errorf("apt has no checksum of %s", p.File)
		}
		if p.Size, err = strconv.ParseInt(fields["Size"], 10, 64); err != nil {
			return fmt.Errorf("read the size of %s: %w", p.Name, err)
		}
	}
	return nil
}
