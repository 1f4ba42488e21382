package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
)

// kubernetes is the version that the chart is rendered for: the first one for which it needs no values.
const kubernetes = "v1.30.0"

// Manifest is the name of the file with the chart's objects.
func (r Release) Manifest() string { return name + "-" + r.number() + ".yaml" }

// Render renders the chart that Pack has packed into the folder out, with its default values, into Manifest: for those
// who install it without Helm. Hooks are left out, because only Helm runs them.
func (r Release) Render(out string) error {
	packed, err := loader.Load(filepath.Join(out, r.File()))
	if err != nil {
		return fmt.Errorf("read the chart: %w", err)
	}
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		return err
	}
	can := *chartutil.DefaultCapabilities
	can.KubeVersion = *version
	values, err := chartutil.ToRenderValues(packed, nil, chartutil.ReleaseOptions{Name: name,
		Namespace: "theseus-system", Revision: 1, IsInstall: true}, &can)
	if err != nil {
		return fmt.Errorf("the values of the chart: %w", err)
	}
	files, err := engine.Render(packed, values)
	if err != nil {
		return fmt.Errorf("render the chart: %w", err)
	}
	for file := range files {
		if strings.HasSuffix(file, "NOTES.txt") {
			delete(files, file)
		}
	}
	_, objects, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return fmt.Errorf("sort the objects of the chart: %w", err)
	}
	var text strings.Builder
	for _, object := range objects {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", object.Name, object.Content)
	}
	if err := os.WriteFile(filepath.Join(out, r.Manifest()), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write the objects of the chart: %w", err)
	}
	return nil
}
