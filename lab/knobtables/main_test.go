package main

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"
)

// TestFresh holds the product's tables to that of the Calico that the lab builds, and to the newest Cilium.
func TestFresh(t *testing.T) {
	for name, test := range map[string]struct{ release, path string }{
		"felix":  {"v3.31.0", "../../internal/flags/felix/params.json"},
		"cilium": {"v1.20.2", "../../internal/flags/setting/cilium.json"},
	} {
		p := projects[name]
		at := slices.IndexFunc(p.releases, func(r release) bool { return r.Release == test.release })
		want, err := p.table(p.releases[at])
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(test.path)
		if err != nil {
			t.Fatal(err)
		}
		var have file
		if err := json.Unmarshal(data, &have); err != nil {
			t.Fatal(err)
		}
		// A table is made of spans, so its order is another.
		if !reflect.DeepEqual(byName(have.of(test.release)), byName(want)) {
			t.Errorf("%s is stale: go generate ./internal/...", test.path)
		}
	}
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

func byName(table []parameter) map[string]parameter {
	named := map[string]parameter{}
	for _, p := range table {
		named[p.Name] = p
	}
	return named
}

// TestMerge holds that a table comes out of the file as it went in.
func TestMerge(t *testing.T) {
	a, b, c := parameter{Name: "A"}, parameter{Name: "B", Default: "1"}, parameter{Name: "B", Default: "2"}
	tables := [][]parameter{{a, b}, {a, c}, {b}, {a, b}}
	releases := []release{{Release: "1"}, {Release: "2"}, {Release: "3"}, {Release: "4"}}
	merged := merge(releases, tables)
	for i, r := range releases {
		if !reflect.DeepEqual(byName(merged.of(r.Release)), byName(tables[i])) {
			t.Errorf("%s: %v", r.Release, merged.of(r.Release))
		}
	}
	if len(merged.Parameters) != 5 {
		t.Errorf("%d spans", len(merged.Parameters))
	}
}
