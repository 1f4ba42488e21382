package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/proof/bench"
)

//go:embed page/networks.html
var networksHTML string

// Network is the result of a network under a load that others were put under, too.
type Network struct {
	Name   string
	Result *bench.Result
}

// Runs says how many runs its result has.
func (n Network) Runs() string {
	runs := map[int]bool{}
	for _, s := range n.Result.Samples {
		runs[s.Run] = true
	}
	return cluster.Count(len(runs), "run")
}

// Networks draws the results of networks side by side, as one self-contained page. All are of the same load.
func Networks(networks []Network) ([]byte, error) {
	t, err := template.New("networks").Parse(networksHTML + loadHTML)
	if err != nil {
		return nil, fmt.Errorf("the page of networks: %w", err)
	}
	var bounds bench.Bounds
	if len(networks) > 0 {
		bounds = networks[0].Result.Bounds
	}
	level, word := Good, "measured"
	for _, network := range networks {
		switch {
		case network.Result.Harmed:
			level, word = Bad, "stopped"
		case network.Result.Stopped != "" && level == Good:
			level, word = Stopped, "stopped"
		}
	}
	var out bytes.Buffer
	if err := t.Execute(&out, map[string]any{"Level": level, "Word": word, "Style": template.CSS(pageCSS),
		"Networks": networks, "Bounds": bounds, "Drawings": networkDrawings(networks)}); err != nil {
		return nil, fmt.Errorf("the page of networks: %w", err)
	}
	return out.Bytes(), nil
}

// networkDrawings draw each measurement with a line for each network.
func networkDrawings(networks []Network) (all []*loadDrawing) {
	type key struct{ path, name string }
	var keys []key
	rows := map[key]map[string]bench.Row{}
	for _, network := range networks {
		for _, row := range network.Result.Rows {
			k := key{row.Path, row.Name}
			if rows[k] == nil {
				keys, rows[k] = append(keys, k), map[string]bench.Row{}
			}
			rows[k][network.Name] = row
		}
	}
	lines := func(values func(bench.Row) []loadValue) (all []loadLine) {
		for _, k := range keys {
			drawn := false
			var of []loadLine
			for _, network := range networks {
				row, ok := rows[k][network.Name]
				line := loadLine{path: k.path + ", " + k.name, name: network.Name}
				if ok {
					line.values = values(row)
				}
				drawn = drawn || line.values != nil
				of = append(of, line)
			}
			if drawn {
				all = append(all, of...)
			}
		}
		return all
	}
	for _, d := range []*loadDrawing{
		newLoadDrawing("Round trip at rest and under load", "ms", true, lines(func(row bench.Row) []loadValue {
			if row.Name == string(bench.RoundTrip) {
				return ranks(row.P50, row.P99)
			}
			return ranks(row.UnderLoadP50, row.UnderLoadP99)
		})),
		newLoadDrawing("Throughput", "Mbit/s", false, lines(func(row bench.Row) []loadValue {
			if row.Unit == "/s" {
				return nil
			}
			return []loadValue{{"rate", "measured", row.Value}}
		})),
		newLoadDrawing("Latencies of operations", "ms", true, lines(func(row bench.Row) []loadValue {
			if row.Unit != "/s" || row.Name == string(bench.RoundTrip) {
				return nil
			}
			return ranks(row.P50, row.P99)
		})),
	} {
		if d != nil {
			all = append(all, d)
		}
	}
	return all
}

// ranks are two latencies in microseconds.
func ranks(p50, p99 bench.Spread) []loadValue {
	return []loadValue{{"P50", "measured", p50.Millis()}, {"P99", "back", p99.Millis()}}
}
