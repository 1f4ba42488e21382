package report

import (
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/proof/bench"
)

// TestNetworks: each measurement is drawn with a line for each network, by the drawing of one result; a network that
// lacks it says so, and names are escaped.
func TestNetworks(t *testing.T) {
	spread := func(micros float64) bench.Spread { return bench.SpreadOf([]float64{micros, 2 * micros}) }
	row := func(name, unit string, value float64) bench.Row {
		return bench.Row{Path: bench.TwoNodes, Name: name, Unit: unit, Runs: 2, Value: bench.SpreadOf([]float64{value}),
			P50: spread(value), P99: spread(9 * value),
			UnderLoadP50: spread(3 * value), UnderLoadP99: spread(7 * value)}
	}
	rest, stream, datagrams := row("round trip at rest", "/s", 100), row("TCP, 1 stream", "Mbit/s", 640),
		row("datagrams", "/s", 300)
	networks := []Network{
		{"<one>", &bench.Result{Client: "a", Other: "b", Rows: []bench.Row{rest, stream, datagrams},
			Samples: []bench.Sample{{Run: 1}, {Run: 2}, {Run: 1}}}},
		{"two", &bench.Result{Client: "c", Rows: []bench.Row{rest, datagrams}, Stopped: "node c is cordoned"}},
	}
	drawings := networkDrawings(networks)
	if len(drawings) != 3 {
		t.Fatalf("%d drawings", len(drawings))
	}
	for i, want := range []string{
		"pod to pod, two nodes, round trip at rest|<one>|two|pod to pod, two nodes, TCP, 1 stream|" +
			"<one>|two not measured|pod to pod, two nodes, datagrams|<one>|two",
		"pod to pod, two nodes, TCP, 1 stream|<one>|two not measured",
		"pod to pod, two nodes, datagrams|<one>|two",
	} {
		var names []string
		for _, row := range drawings[i].Rows {
			name := row.Name
			if row.Text == "not measured" {
				name += " not measured"
			}
			names = append(names, name)
		}
		if got := strings.Join(names, "|"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", drawings[i].Title, got, want)
		}
	}
	page, err := Networks(networks)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2 networks under the same load", "&lt;one&gt;: 2 runs on a and b",
		"two: 0 runs on c; stopped: node c is cordoned", `<section id="drawings">`, "Throughput",
		"<rect class=\"back\""} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(string(page), "<one>") {
		t.Error("a name is not escaped")
	}
	for want, result := range map[string]bench.Result{`class="verdict good"`: {},
		`class="verdict stopped"`: {Stopped: "x"}, `class="verdict bad"`: {Stopped: "x", Harmed: true}} {
		if page, err := Networks([]Network{{"one", &bench.Result{}}, {"two", &result}, {"three",
			&bench.Result{}}}); err != nil || !strings.Contains(string(page), want) {
			t.Errorf("%v: the page lacks %s", err, want)
		}
	}
	if page, err := Networks(nil); err != nil || !strings.Contains(string(page), "Nothing was measured") {
		t.Errorf("of none: %v", err)
	}
}
