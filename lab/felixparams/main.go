// Command felixparams writes the tables of Felix' parameters (internal/felix/params.json) from those that Calico
// publishes, felix/docs/config-params.json, which it has since v3.30. They come from the module proxy, or, for releases
// that it does not serve, from a clone of Calico's repository.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// release is one of Calico, whose module has no versions that are named like its releases.
type release struct {
	Release string `json:"release"`
	// Module is the version on the module proxy, Commit the one in the repository.
	Module string `json:"module,omitempty"`
	Commit string `json:"commit,omitempty"`
}

// releases are in their order.
var releases = []release{
	{Release: "v3.30.1", Module: "v0.0.0-20250529224300-393b14e729a6"},
	{Release: "v3.31.0", Module: "v0.0.0-20251021213802-b1f3c43f8437"},
	{Release: "v3.32.1", Commit: "0ca9d1b93644778cafdf1812f3dda02ac0c361e8"},
	{Release: "v3.33.0", Commit: "6609dea54713df1f84a77d8a7cecf25dff86fa5f"}, // the head of release-v3.33, of 21 August 2026
}

func main() {
	output := flag.String("o", "", "file to write; the releases in it that cannot be had now are kept")
	clone := flag.String("git", "", "a clone of github.com/projectcalico/calico")
	flag.Parse()
	if err := write(*output, *clone); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func write(output, clone string) error {
	old, err := os.ReadFile(output)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var kept file
	if len(old) > 0 {
		if err := json.Unmarshal(old, &kept); err != nil {
			return err
		}
	}
	var tables [][]parameter
	for _, r := range releases {
		text, err := upstreamFile(r, clone)
		table := kept.of(r.Release)
		if err == nil {
			table, err = parse(text)
		} else if table != nil {
			fmt.Fprintf(os.Stderr, "%s stays as it is: %v\n", r.Release, err)
			err = nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.Release, err)
		}
		tables = append(tables, table)
	}
	data, err := json.MarshalIndent(merge(tables), "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(output, append(data, '\n'), 0o644)
}

// upstreamFile reads Calico's table of one release.
func upstreamFile(r release, clone string) ([]byte, error) {
	const path = "felix/docs/config-params.json"
	if r.Module == "" {
		if clone == "" {
			return nil, errors.New("the module proxy has no such version: name a clone with -git")
		}
		return output("git", "-C", clone, "show", r.Commit+":"+path)
	}
	// Outside of any module, so that it needs no go.sum.
	text, err := output("go", "-C", os.TempDir(), "mod", "download", "-json", "github.com/projectcalico/calico@"+r.Module)
	if err != nil {
		return nil, err
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(text, &module); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(module.Dir, path))
}

func output(name string, args ...string) ([]byte, error) {
	command := exec.Command(name, args...)
	command.Env = append(os.Environ(), "GOWORK=off", "GONOSUMDB=github.com/projectcalico/calico") // the database does not know it
	command.Stderr = os.Stderr
	return command.Output()
}

// file is what is written. A parameter stands once for as long as it stays the same: from the release First to Last.
type file struct {
	Releases   []release `json:"releases"`
	Parameters []span    `json:"parameters"`
}

type span struct {
	First int `json:"first"`
	Last  int `json:"last"`
	parameter
}

type parameter struct {
	Name    string   `json:"name"`
	Field   string   `json:"field,omitempty"`
	Kind    string   `json:"kind,omitempty"`
	Values  []string `json:"values,omitempty"`
	Schema  string   `json:"schema"`
	Default string   `json:"default,omitempty"`
	Fatal   bool     `json:"fatal,omitempty"`
	Local   bool     `json:"local,omitempty"`
	About   string   `json:"about,omitempty"`
}

// of returns the table of a release, nil when it is not there.
func (f file) of(name string) []parameter {
	for i, r := range f.Releases {
		if r.Release != name {
			continue
		}
		var table []parameter
		for _, s := range f.Parameters {
			if s.First <= i && i <= s.Last {
				table = append(table, s.parameter)
			}
		}
		return table
	}
	return nil
}

func merge(tables [][]parameter) file {
	merged := file{Releases: releases}
	last := map[string]int{} // where a parameter's latest span is
	for i, table := range tables {
		for _, p := range table {
			at, ok := last[p.Name]
			if ok && merged.Parameters[at].Last == i-1 && equal(merged.Parameters[at].parameter, p) {
				merged.Parameters[at].Last = i
				continue
			}
			last[p.Name] = len(merged.Parameters)
			merged.Parameters = append(merged.Parameters, span{i, i, p})
		}
	}
	return merged
}

func equal(a, b parameter) bool {
	one, _ := json.Marshal(a) // a struct of texts
	two, _ := json.Marshal(b)
	return string(one) == string(two)
}

// parse takes of Calico's file what is used.
func parse(text []byte) ([]parameter, error) {
	var source struct {
		Groups []struct {
			Fields []struct {
				NameConfigFile, NameYAML, YAMLType, StringSchema, StringDefault, OnParseFailure, AllowedConfigSources, Description string
				YAMLEnumValues                                                                                                     []string
			}
		}
	}
	if err := json.Unmarshal(text, &source); err != nil {
		return nil, err
	}
	var table []parameter
	for _, group := range source.Groups {
		for _, f := range group.Fields {
			var values []string
			for _, value := range f.YAMLEnumValues {
				if value = strings.Trim(value, "`\""); value != "" {
					values = append(values, value)
				}
			}
			about, _, _ := strings.Cut(f.Description, ". ")
			about, _, _ = strings.Cut(about, "\n\n")
			table = append(table, parameter{
				f.NameConfigFile, f.NameYAML, f.YAMLType, values, f.StringSchema, f.StringDefault,
				f.OnParseFailure == "Exit", f.AllowedConfigSources == "LocalOnly", strings.TrimSuffix(strings.Join(strings.Fields(about), " "), "."),
			})
		}
	}
	if len(table) == 0 {
		return nil, errors.New("no parameters in it")
	}
	return table, nil
}
