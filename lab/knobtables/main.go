// Command knobtables writes the tables of settings that are generated from what projects publish, release by release:
//
//	felix   internal/flags/felix/params.json, of Calico's felix/docs/config-params.json, which it has since v3.30
//	cilium  internal/flags/setting/cilium.json, of Cilium's Documentation/cmdref of its agent and its operator
//
// They come from the module proxy.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// release is one of a project.
type release struct {
	Release string `json:"release"`
	// Module is the version on the module proxy, where it is not the release's name.
	Module string `json:"module,omitempty"`
}

// project is where a table comes from.
type project struct {
	module   string
	releases []release // in their order
	parse    func(text []byte, path string) ([]parameter, error)
	paths    []string
}

var projects = map[string]project{
	"felix": {
		module: "github.com/projectcalico/calico", parse: parseFelix, paths: []string{"felix/docs/config-params.json"},
		releases: []release{
			{Release: "v3.30.1", Module: "v0.0.0-20250529224300-393b14e729a6"},
			{Release: "v3.31.0", Module: "v0.0.0-20251021213802-b1f3c43f8437"},
		},
	},
	"cilium": {
		module: "github.com/cilium/cilium", parse: parseCilium,
		paths: []string{"Documentation/cmdref/cilium-agent.md", "Documentation/cmdref/cilium-operator.md"},
		releases: []release{{Release: "v1.16.0"}, {Release: "v1.17.0"}, {Release: "v1.18.4"},
			{Release: "v1.19.0"}, {Release: "v1.20.2"}},
	},
}

func main() {
	output := flag.String("o", "", "file to write")
	flag.Parse()
	p, known := projects[flag.Arg(0)]
	err := fmt.Errorf("say which table: felix or cilium")
	if known {
		err = p.write(*output)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func (p project) write(output string) error {
	var tables [][]parameter
	for _, r := range p.releases {
		table, err := p.table(r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Release, err)
		}
		tables = append(tables, table)
	}
	data, err := json.MarshalIndent(merge(p.releases, tables), "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(output, append(data, '\n'), 0o644)
}

// table reads what the project publishes of one release.
func (p project) table(r release) ([]parameter, error) {
	var table []parameter
	for _, path := range p.paths {
		text, err := p.file(r, path)
		if err != nil {
			return nil, err
		}
		more, err := p.parse(text, path)
		if err == nil && len(more) == 0 {
			err = errors.New("no settings in it")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, one := range more {
			if !slices.ContainsFunc(table, func(other parameter) bool { return other.Name == one.Name }) {
				table = append(table, one)
			}
		}
	}
	return table, nil
}

func (p project) file(r release, path string) ([]byte, error) {
	// Outside of any module, so that it needs no go.sum.
	text, err := output("go", "-C", os.TempDir(), "mod", "download", "-json", p.module+"@"+cmp.Or(r.Module, r.Release))
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
	// the database does not know it
	command.Env = append(os.Environ(), "GOWORK=off", "GONOSUMDB=github.com/projectcalico/calico")
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
	Schema  string   `json:"schema,omitempty"`
	Default string   `json:"default,omitempty"`
	Fatal   bool     `json:"fatal,omitempty"`
	Local   bool     `json:"local,omitempty"`
	About   string   `json:"about,omitempty"`
}

func merge(releases []release, tables [][]parameter) file {
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

// parseFelix takes of Calico's file what is used.
func parseFelix(text []byte, _ string) ([]parameter, error) {
	var source struct {
		Groups []struct {
			Fields []struct {
				NameConfigFile, NameYAML, YAMLType, StringSchema, StringDefault string
				OnParseFailure, AllowedConfigSources, Description               string
				YAMLEnumValues                                                  []string
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
				f.OnParseFailure == "Exit", f.AllowedConfigSources == "LocalOnly",
				strings.TrimSuffix(strings.Join(strings.Fields(about), " "), "."),
			})
		}
	}
	return table, nil
}

var (
	ciliumFlag    = regexp.MustCompile(`^ +(?:-\w, )?--([\w.-]+)(?: ([a-zA-Z0-9<>:=,]+))?  +(.*)$`)
	ciliumDefault = regexp.MustCompile(` ?\(default "?(.*?)"?\)$`)
	quotedWords   = regexp.MustCompile(`\(("[\w-]+"(?:, | or |, or )?){2,}\)`)
	bracedWords   = regexp.MustCompile(`\{ ?[\w-]+(?: \| [\w-]+)+ ?\}`)
	word          = regexp.MustCompile(`[\w-]+`)
)

// parseCilium reads the flags of a command, which are the keys of cilium-config too.
func parseCilium(text []byte, path string) ([]parameter, error) {
	var table []parameter
	for line := range strings.Lines(string(text)) {
		m := ciliumFlag.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		p := parameter{Name: m[1], Kind: cmp.Or(m[2], "bool"), About: m[3], Local: strings.Contains(path, "operator")}
		if d := ciliumDefault.FindStringSubmatch(p.About); d != nil {
			p.Default = d[1]
			p.About = strings.TrimSuffix(p.About, d[0])
		} else if p.Kind == "bool" {
			p.Default = "false"
		}
		if p.Kind == "string" {
			if list := quotedWords.FindString(p.About) + bracedWords.FindString(p.About); list != "" {
				for _, one := range word.FindAllString(list, -1) {
					if one != "or" {
						p.Values = append(p.Values, one)
					}
				}
			}
		}
		table = append(table, p)
	}
	return table, nil
}
