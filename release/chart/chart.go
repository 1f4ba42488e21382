// Package chart packs the Helm chart of a release. The chart in the repository has no version and no image: a release
// has its own.
package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/release/internal/bundle"
)

// Folder is where the repository has the chart.
const Folder = "charts/theseus"

// Release is what a chart has of its release.
type Release struct {
	Version  string    // such as v0.2.0; it is also the tag of the image
	Registry string    // registry, and folder in it, of the image
	Digest   string    // of the image, such as sha256:0123...
	Time     time.Time // of the commit
}

// name of the chart, and of the folder in its archive.
const name = "theseus"

// edit replaces a line of a file.
type edit struct{ file, from, to string }

func (r Release) edits() []edit {
	return []edit{
		{"Chart.yaml", "version: 0.0.0-dev", "version: " + r.number()},
		{"Chart.yaml", "appVersion: dev", "appVersion: " + r.Version},
		{"values.yaml", "  registry: ghcr.io/theseus-cni", "  registry: " + r.Registry},
		{"values.yaml", `  tag: ""`, "  tag: " + r.Version},
		{"values.yaml", `  digest: ""`, "  digest: " + r.Digest},
	}
}

// number is the version as Helm writes it.
func (r Release) number() string { return strings.TrimPrefix(r.Version, "v") }

// File is the name of the chart's archive.
func (r Release) File() string { return name + "-" + r.number() + ".tgz" }

// Pack packs the chart in a folder into File, in the folder out.
func (r Release) Pack(dir, out string) error {
	entries, err := bundle.Folder(dir, name)
	if err != nil {
		return err
	}
	texts := map[string]string{}
	for _, e := range r.edits() {
		text, read := texts[e.file]
		if !read {
			content, err := os.ReadFile(filepath.Join(dir, e.file))
			if err != nil {
				return fmt.Errorf("read the chart: %w", err)
			}
			text = string(content)
		}
		if n := strings.Count("\n"+text, "\n"+e.from+"\n"); n != 1 {
			return fmt.Errorf("%s of the chart has the line %q %d times, want it once", e.file, e.from, n)
		}
		texts[e.file] = strings.TrimPrefix(strings.Replace("\n"+text, "\n"+e.from+"\n", "\n"+e.to+"\n", 1), "\n")
	}
	for i := range entries {
		if text, edited := texts[strings.TrimPrefix(entries[i].Name, name+"/")]; edited {
			entries[i].Source, entries[i].Content = "", text
		}
	}
	return bundle.Archive(filepath.Join(out, r.File()), entries, r.Time)
}
