package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/mod/semver"

	"github.com/theseus-cni/theseus/release/chart"
	"github.com/theseus-cni/theseus/release/internal/bundle"
	"github.com/theseus-cni/theseus/release/internal/oci"
	"github.com/theseus-cni/theseus/release/internal/sbom"
	"github.com/theseus-cni/theseus/release/internal/source"
)

// refusal is an error with a hint.
type refusal struct{ text, hint string }

func (r refusal) Error() string { return r.text }
func (r refusal) Hint() string  { return r.hint }

// release makes a release.
func (a *app) release() *cobra.Command {
	var registry, dir string
	command := &cobra.Command{
		Use: "release VERSION",
		Short: "Make a release: images, the Helm chart, archives of theseus for every platform, " +
			"checksums, and a manifest for krew",
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			version := args[0]
			if !semver.IsValid(version) || semver.Canonical(version) != version {
				return refusal{fmt.Sprintf("%q is no version of a module", version), "make release VERSION=v0.2.0"}
			}
			if _, err := os.Stat(dir); err == nil {
				return refusal{dir + " is there already", "remove it, or name another folder with --dir"}
			}
			m, err := a.maker(command.Context(), version, dir)
			if err != nil {
				return err
			}
			defer os.RemoveAll(m.Work)
			return a.write(command.Context(), m, registry, dir)
		},
	}
	a.limit(command)
	command.Flags().StringVar(&registry, "registry", DefaultRegistry,
		"registry and folder that the images will be pushed to")
	command.Flags().StringVar(&dir, "dir", "bin/release", "the folder of the release, which must not exist")
	return command
}

// write makes everything in the folder of work, which becomes the release when it is whole.
func (a *app) write(ctx context.Context, m *oci.Maker, registry, dir string) error {
	out := filepath.Join(m.Work, "release")
	if err := os.Mkdir(out, 0o755); err != nil {
		return fmt.Errorf("make the folder of the release: %w", err)
	}
	images := filepath.Join(m.Work, "images")
	made, err := m.Layout(ctx, registry, images)
	if err != nil {
		return err
	}
	layout, err := bundle.Folder(images, "images")
	if err != nil {
		return err
	}
	prefix := "theseus_" + m.Source.Version + "_"
	if err := bundle.Archive(filepath.Join(out, prefix+"images.tar.gz"), layout, m.Source.Time); err != nil {
		return err
	}
	if err := packChart(m, made, registry, out); err != nil {
		return err
	}
	agent := made[0]
	plugins, err := a.programs(ctx, m, out, prefix, map[string]string{oci.AgentVariable: agent.Reference()})
	if err != nil {
		return err
	}
	krew, err := bundle.Krew(oci.Repository, m.Source.Version, plugins)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "krew.yaml"), []byte(krew), 0o644); err != nil {
		return fmt.Errorf("write krew's manifest: %w", err)
	}
	if err := bundle.Checksums(out); err != nil {
		return err
	}
	if err := os.Rename(out, dir); err != nil {
		return fmt.Errorf("keep the release: %w", err)
	}
	for _, image := range made {
		fmt.Fprintln(a.out, image.Reference())
	}
	fmt.Fprintln(a.out, dir)
	return nil
}

// packChart packs the Helm chart, which names the controller's image by its digest, and renders its objects.
func packChart(m *oci.Maker, made []oci.Made, registry, out string) error {
	for _, image := range made {
		if image.Command != "theseus-controller" {
			continue
		}
		of := chart.Release{Version: m.Source.Version, Registry: registry,
			Digest: image.Digest.String(), Time: m.Source.Time}
		if err := of.Pack(filepath.Join(m.Source.Dir, filepath.FromSlash(chart.Folder)), out); err != nil {
			return err
		}
		return of.Render(out)
	}
	return errors.New("the image of the controller was not made, and the chart names it")
}

// programs builds theseus for every platform, and writes an archive and a bill of materials for each.
func (a *app) programs(ctx context.Context, m *oci.Maker, out, prefix string,
	values map[string]string) ([]bundle.Plugin, error) {
	built := map[source.Platform]string{}
	for _, on := range m.Platforms {
		built[on] = filepath.Join(m.Work, "programs", on.OS, on.Architecture, "theseus")
		if err := m.Source.Build(ctx, "theseus", on, values, built[on]); err != nil {
			return nil, err
		}
	}
	more, err := companions(ctx, m, built)
	if err != nil {
		return nil, err
	}
	var plugins []bundle.Plugin
	for _, on := range m.Platforms {
		name := prefix + on.OS + "_" + on.Architecture
		subject := sbom.Subject{Name: "theseus", Version: m.Source.Version, Time: m.Source.Time,
			Source: oci.Repository, Purpose: "APPLICATION"}
		bill, err := sbom.Of(subject, []string{built[on]}, "", "", nil)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(out, name+".spdx.json"), bill, 0o644); err != nil {
			return nil, fmt.Errorf("write a bill of materials: %w", err)
		}
		entries := append([]bundle.Entry{{Name: "theseus", Source: built[on], Mode: 0o755}}, more...)
		file := filepath.Join(out, name+".tar.gz")
		if err := bundle.Archive(file, entries, m.Source.Time); err != nil {
			return nil, err
		}
		sum, err := bundle.Sum(file)
		if err != nil {
			return nil, err
		}
		plugins = append(plugins, bundle.Plugin{Platform: on, File: name + ".tar.gz", SHA256: sum})
	}
	return plugins, nil
}

// companions are the files that every archive has besides the program. The program for this machine prints the
// completions.
func companions(ctx context.Context, m *oci.Maker, built map[source.Platform]string) ([]bundle.Entry, error) {
	entries := []bundle.Entry{
		{Name: "LICENSE", Source: filepath.Join(m.Source.Dir, "LICENSE"), Mode: 0o644},
		{Name: "README.md", Source: filepath.Join(m.Source.Dir, "README.md"), Mode: 0o644},
		{Name: "CHANGELOG.md", Source: filepath.Join(m.Source.Dir, "CHANGELOG.md"), Mode: 0o644},
	}
	host, err := source.Host(ctx)
	if err != nil {
		return nil, err
	}
	program := built[host]
	if program == "" {
		return nil, fmt.Errorf("completions are printed by the program for this machine, and none is built for %s",
			host)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := exec.CommandContext(ctx, program, "completion", shell).Output()
		if err != nil {
			return nil, fmt.Errorf("print the completion for %s: %w", shell, err)
		}
		entries = append(entries,
			bundle.Entry{Name: "completions/theseus." + shell, Content: string(text), Mode: 0o644})
	}
	return entries, nil
}
