package network

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/theseus-cni/theseus/lab/internal/phrase"
)

// upstream reads a file of a component's module and adapts it.
func upstream(params Params, component, module, file string, edits []phrase.Edit) ([]byte, error) {
	if params.Modules == nil {
		return nil, fmt.Errorf("%s's manifest comes with its source, and no source was given", component)
	}
	dir, err := params.Modules(component, module)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(file)))
	if err != nil {
		return nil, fmt.Errorf("read %s's manifest: %w", component, err)
	}
	adapted, err := phrase.Apply(string(text), edits)
	if err != nil {
		return nil, fmt.Errorf("adapt %s's %s: %w", component, file, err)
	}
	return []byte(adapted), nil
}

// own reads a manifest of this package and fills in its placeholders.
func own(file string, values ...string) ([]byte, error) {
	text, err := manifests.ReadFile("manifests/" + file)
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return []byte(strings.NewReplacer(values...).Replace(string(text))), nil
}
