package version

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// Build is what a binary says of its own build. What the toolchain did not record is empty.
type Build struct {
	Version  string // of the module, such as v0.2.0; "dev" for a build that carries none
	Commit   string // the whole hash
	Date     string // when that commit was made, in RFC 3339
	Modified bool   // files differed from the commit
	Go       string // version of the toolchain
	Platform string // such as linux/amd64
}

// Read is what this binary says.
func Read() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{Version: "dev"}
	}
	return of(info)
}

func of(info *debug.BuildInfo) Build {
	b := Build{Version: info.Main.Version, Go: info.GoVersion}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "dev"
	}
	var system, architecture string
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			b.Commit = setting.Value
		case "vcs.time":
			b.Date = setting.Value
		case "vcs.modified":
			b.Modified = setting.Value == "true"
		case "GOOS":
			system = setting.Value
		case "GOARCH":
			architecture = setting.Value
		}
	}
	if system != "" {
		b.Platform = system + "/" + architecture
	}
	return b
}

// Line is the build in one line, for --version: "theseus v0.2.0 (commit 1a2b3c4d5e6f, 2026-01-02T03:04:05Z, go1.26.8
// linux/amd64)".
func (b Build) Line(program string) string {
	var known []string
	if b.Commit != "" {
		commit := "commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Modified {
			commit += " with changes"
		}
		known = append(known, commit)
	}
	if b.Date != "" {
		known = append(known, b.Date)
	}
	if tool := strings.TrimSpace(b.Go + " " + b.Platform); tool != "" {
		known = append(known, tool)
	}
	if len(known) == 0 {
		return fmt.Sprintf("%s %s", program, b.Version)
	}
	return fmt.Sprintf("%s %s (%s)", program, b.Version, strings.Join(known, ", "))
}
