package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

const (
	repository = "../.."
	product    = "github.com/theseus-cni/theseus"
)

// output runs a program, and returns what it printed.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, errs.String())
	}
	return strings.TrimSpace(string(out))
}

// published makes a module proxy in a folder, which has the commit of this checkout under a version.
func published(t *testing.T, version string) string {
	t.Helper()
	proxy := t.TempDir()
	dir := filepath.Join(proxy, product, "@v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	archive, err := os.Create(filepath.Join(dir, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	root, err := filepath.Abs(repository)
	if err != nil {
		t.Fatal(err)
	}
	if err := zip.CreateFromVCS(archive, module.Version{Path: product, Version: version},
		root, "HEAD", ""); err != nil {
		t.Fatal(err)
	}
	mod := output(t, exec.Command("git", "-C", repository, "show", "HEAD:go.mod"))
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Now().UTC().Format(time.RFC3339))
	for name, text := range map[string]string{version + ".mod": mod + "\n", version + ".info": info,
		"list": version + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return proxy
}

// install runs go install for a program of the product, and returns the program. What go keeps of the module is
// removed again.
func install(t *testing.T, command string) string {
	t.Helper()
	version := "v0.0.0-test." + output(t, exec.Command("git", "-C", repository, "rev-parse", "--short=12", "HEAD"))
	proxy, bin := published(t, version), t.TempDir()
	modules := output(t, exec.Command("go", "env", "GOMODCACHE"))
	forget := func() {
		extracted := filepath.Join(modules, product+"@"+version)
		exec.Command("chmod", "-R", "u+w", extracted).Run() //nolint:errcheck // it may not exist
		os.RemoveAll(extracted)
		kept, err := filepath.Glob(filepath.Join(modules, "cache", "download", product, "@v", version+".*"))
		if err != nil {
			t.Error(err)
		}
		for _, file := range kept {
			os.Remove(file)
		}
	}
	forget()
	t.Cleanup(forget)
	cmd := exec.Command("go", "install", "-trimpath", product+"/cmd/"+command+"@"+version)
	cmd.Dir = bin // outside of any module
	cmd.Env = append(os.Environ(), "GOBIN="+bin, "GOFLAGS=", "CGO_ENABLED=0", "GOWORK=off", "GONOSUMDB="+product,
		"GOPROXY=file://"+proxy+","+output(t, exec.Command("go", "env", "GOPROXY")))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go install: %v\n%s", err, out)
	}
	if got := output(t, exec.Command(filepath.Join(bin, command), "--version")); !strings.HasPrefix(got,
		command+" "+version+" (") {
		t.Errorf("%s --version says %q, want the version %s", command, got, version)
	}
	return filepath.Join(bin, command)
}

// TestInstall: go install works for the commit of this checkout, from a module proxy.
func TestInstall(t *testing.T) { install(t, "theseus-agent") }

// TestInstallFull is the same for the command line.
func TestInstallFull(t *testing.T) {
	full(t)
	install(t, "theseus")
}

// full skips a test that takes minutes; the Makefile says which are left out.
func full(t *testing.T) {
	t.Helper()
	if os.Getenv("THESEUS_FULL") != "1" {
		t.Skip("NOT TESTED: it takes minutes; THESEUS_FULL=1 tests it")
	}
}
