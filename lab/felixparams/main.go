// Command felixparams writes the table of Felix' parameters (internal/felix/params.json) from the one that Calico
// publishes in its own module, felix/docs/config-params.json. The version of Calico is that of
// components/calico/go.mod, and the name of its release is given.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

func main() {
	output := flag.String("o", "", "file to write")
	release := flag.String("release", "", "release of Calico, such as v3.31.0")
	flag.Parse()
	data, err := table(*release)
	if err == nil {
		err = os.WriteFile(*output, data, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// upstream is the part of Calico's file that is used.
type upstream struct {
	Groups []struct {
		Fields []struct {
			NameConfigFile, NameYAML, StringSchema, StringDefault, OnParseFailure, AllowedConfigSources string
		}
	}
}

type parameter struct {
	Name    string `json:"name"`
	Field   string `json:"field,omitempty"`
	Schema  string `json:"schema"`
	Default string `json:"default,omitempty"`
	Fatal   bool   `json:"fatal,omitempty"`
	Local   bool   `json:"local,omitempty"`
}

// table makes the file; it needs Calico's module in the module cache.
func table(release string) ([]byte, error) {
	var module struct{ Dir, Version string }
	list := exec.Command("go", "-C", "components/calico", "list", "-m", "-json", "github.com/projectcalico/calico")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(out, &module); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "felix", "docs", "config-params.json"))
	if err != nil {
		return nil, err
	}
	var source upstream
	if err := json.Unmarshal(text, &source); err != nil {
		return nil, err
	}
	result := struct {
		Release    string      `json:"release"`
		Module     string      `json:"module"`
		Parameters []parameter `json:"parameters"`
	}{release, module.Version, nil}
	for _, group := range source.Groups {
		for _, f := range group.Fields {
			result.Parameters = append(result.Parameters, parameter{
				f.NameConfigFile, f.NameYAML, f.StringSchema, f.StringDefault, f.OnParseFailure == "Exit", f.AllowedConfigSources == "LocalOnly",
			})
		}
	}
	data, err := json.MarshalIndent(result, "", " ")
	return append(data, '\n'), err
}
