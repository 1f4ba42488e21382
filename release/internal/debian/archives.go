package debian

import (
	"context"
	"fmt"
	"os/exec"
	"path"
	"strings"
)

// The archives that images are made of, by the names of their folders.
const main, security = "debian", "debian-security"

// Archives are the addresses of Debian's archives by their names, each with a slash at its end.
type Archives map[string]string

// Configured are the archives that this machine's apt is configured with.
func Configured(ctx context.Context) (Archives, error) {
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI)").Output()
	if err != nil {
		return nil, fmt.Errorf("ask apt where Debian's archives are: %w", err)
	}
	found := Archives{}
	for _, address := range strings.Fields(string(out)) {
		address = strings.TrimSuffix(address, "/") + "/"
		if name := path.Base(address); found[name] == "" {
			found[name] = address
		}
	}
	for _, name := range []string{main, security} {
		if found[name] == "" {
			return nil, &Problem{"apt on this machine has no lists of the archive " + name,
				"configure it in /etc/apt/sources.list, and run apt-get update"}
		}
	}
	return found, nil
}

// at is the address of a file whose path begins with the name of its archive.
func (a Archives) at(file string) string {
	name, rest, _ := strings.Cut(file, "/")
	return a[name] + rest
}

// path is the file of an address, and begins with the name of its archive.
func (a Archives) path(address string) string {
	for name, root := range a {
		if rest, within := strings.CutPrefix(address, root); within {
			return name + "/" + rest
		}
	}
	return address
}
