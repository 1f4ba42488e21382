package main

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// TestFresh holds the product's table to that of the Calico that the lab builds.
func TestFresh(t *testing.T) {
	const built = "v3.31.0"
	for _, r := range releases {
		if r.Release != built {
			continue
		}
		text, err := upstreamFile(r, "")
		if err != nil {
			t.Fatal(err)
		}
		want, err := parse(text)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile("../../internal/felix/params.json")
		if err != nil {
			t.Fatal(err)
		}
		var have file
		if err := json.Unmarshal(data, &have); err != nil {
			t.Fatal(err)
		}
		// A table is made of spans, so its order is another.
		if !reflect.DeepEqual(byName(have.of(built)), byName(want)) {
			t.Error("internal/felix/params.json is stale: go generate ./internal/felix")
		}
		return
	}
	t.Errorf("no release %s", built)
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
	merged := merge(tables)
	for i, r := range releases {
		if !reflect.DeepEqual(byName(merged.of(r.Release)), byName(tables[i])) {
			t.Errorf("%s: %v", r.Release, merged.of(r.Release))
		}
	}
	if len(merged.Parameters) != 5 {
		t.Errorf("%d spans", len(merged.Parameters))
	}
}
