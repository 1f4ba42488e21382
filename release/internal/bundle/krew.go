package bundle

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/theseus-cni/theseus/release/internal/source"
)

//go:embed krew.yaml.tmpl
var krewText string

var krewTemplate = template.Must(template.New("krew").Parse(krewText))

// Plugin is an archive with the program for one platform.
type Plugin struct {
	source.Platform
	File, SHA256 string
}

// Krew is the manifest by which krew installs `kubectl theseus`.
func Krew(repository, version string, plugins []Plugin) (string, error) {
	var text strings.Builder
	values := struct {
		Repository, Version string
		Plugins             []Plugin
	}{repository, version, plugins}
	if err := krewTemplate.Execute(&text, values); err != nil {
		return "", fmt.Errorf("write krew's manifest: %w", err)
	}
	return text.String(), nil
}
