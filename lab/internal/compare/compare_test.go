package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestOrder: every network is measured once in each round, and each is first in turn.
func TestOrder(t *testing.T) {
	networks := []string{"a", "b", "c"}
	for round, want := range map[int]string{1: "a b c", 2: "b c a", 3: "c a b", 4: "a b c"} {
		if got := strings.Join(Order(networks, round), " "); got != want {
			t.Errorf("round %d: %s, want %s", round, got, want)
		}
	}
	if !slices.Equal(networks, []string{"a", "b", "c"}) {
		t.Errorf("Order changed its argument: %v", networks)
	}
}

func TestMedian(t *testing.T) {
	for want, of := range map[float64][]float64{4: {4}, 5: {1, 5, 9}, 5.5: {1, 5, 6, 9}} {
		if got := median(of); got != want {
			t.Errorf("%v: %v, want %v", of, got, want)
		}
	}
	if got := count(median(nil)); got != "-" {
		t.Errorf("of nothing: %s", got)
	}
}

// ran is a run with TCP at a rate, and datagrams of which some were lost, as theseus writes its results.
func ran(network string, round int, tcp float64, lost int64, counters string) Run {
	return Run{Network: network, Round: round, Seconds: 40, Result: json.RawMessage(fmt.Sprintf(`{"rows": [
		{"path": "pod to pod, two nodes", "name": "round trip at rest", "unit": "/s", "runs": 1, "sent": 500, "value": {"median": 0},
			"p50Micros": {"median": 120}, "p99Micros": {"median": 900}},
		{"path": "pod to pod, two nodes", "name": "TCP, 1 stream", "unit": "Mbit/s", "runs": 1, "value": {"median": %[1]v}, "short": true,
			"retransmits": %[2]d, "underLoadSent": 500, "underLoadP50Micros": {"median": 300}, "underLoadP99Micros": {"median": null}},
		{"path": "pod to pod, two nodes", "name": "datagrams", "unit": "/s", "runs": 1, "sent": 2000, "lost": %[2]d, "value": {"median": 2000},
			"p50Micros": {"median": 200}, "p99Micros": {"median": %[1]v}, "underLoadSent": 50, "underLoadLost": 1,
			"underLoadP50Micros": {"median": 210}, "underLoadP99Micros": {"median": null}}],
		"counters": %[3]s}`, tcp, lost, counters))}
}

func example() *Comparison {
	stopped := ran("weave", 2, 600, 9, `{"cmpb-node-2": {"udp.RcvbufErrors": 5, "link.weave.tx_dropped": 2, "tcp.OutSegs": 99}}`)
	stopped.Failed = "the load was stopped: node cmpb-node-1 is not Ready"
	var part Result
	if err := json.Unmarshal(stopped.Result, &part); err != nil {
		panic(err)
	}
	part.Rows = part.Rows[:2]
	stopped.Result, _ = json.Marshal(part) //nolint:errchkjson // plain data
	return &Comparison{Began: time.Date(2026, 11, 27, 1, 2, 3, 0, time.UTC), CPUs: 2, Nodes: 2, Rounds: 3,
		Load:     []string{"--runs", "1"},
		Networks: []Network{{"flannel", "kube-router, which enforces policy"}, {"weave", ""}, {"<bridge>", ""}},
		Runs: []Run{
			ran("flannel", 1, 4000, 0, `{"cmpa-node-1": {"softnet.processed": 9}}`),
			ran("weave", 1, 500, 7, `{"cmpb-node-2": {"udp.RcvbufErrors": 3, "softnet.dropped": 1}}`),
			{Network: "<bridge>", Round: 1, Failed: "pod theseus-bench-far is not ready"},
			stopped, {Network: "<bridge>", Round: 2, Failed: "the same"}, ran("flannel", 2, 4400, 0, `{}`),
			{Network: "<bridge>", Round: 3, Failed: "the same"}, ran("flannel", 3, 4100, 0, `{}`),
			ran("weave", 3, 550, 0, `{}`),
		}}
}

// TestComparison: the table, the JSON and the words of a comparison in which a network drops, one is stopped in a
// round, and one has no result.
func TestComparison(t *testing.T) {
	c := example()
	for range 2 { // it is summed up after every run
		if err := c.Sum(); err != nil {
			t.Fatal(err)
		}
	}
	var table, page bytes.Buffer
	if err := c.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	golden(t, "table.txt", table.Bytes())
	shown := *c
	shown.Runs = nil // they are the input
	text, err := json.MarshalIndent(shown, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "compare.json", text)
	if err := c.WritePage(&page, drawn(t)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 networks under the same load", `<header class="bad">`,
		"4 of 9 measurements failed", `<td class="n warn">4100 [4000-4400] *</td>`, `<td class="n bad">failed</td>`,
		"&lt;bridge&gt; failed in round 1",
		"2026-11-27 01:02 UTC", "&lt;bridge&gt; was not measured.", "theseus bench network --runs 1"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page.String(), "<bridge>") {
		t.Error("the page has a name that is not escaped")
	}
	if got := len(c.FailedRuns()); got != 4 {
		t.Errorf("%d failed", got)
	}
}

// TestClean: without losses and failures, the table has no rows of them, and the words claim none.
func TestClean(t *testing.T) {
	c := &Comparison{Rounds: 1, Networks: []Network{{Name: "a"}, {Name: "b"}}}
	for _, name := range []string{"a", "b"} {
		c.Runs = append(c.Runs, Run{Network: name, Round: 1, Result: json.RawMessage(`{"rows": [{"path": "p",
			"name": "datagrams", "unit": "/s", "runs": 1, "sent": 2000, "value": {"median": 2000},
			"p50Micros": {"median": 1000}, "p99Micros": {"median": 2000}, "underLoadSent": 500}]}`)})
	}
	if err := c.Sum(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := c.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{"datagrams, lost", "failed", "2000 *", "softnet", "[", "with kube"} {
		if strings.Contains(out.String(), not) {
			t.Errorf("%q is in:\n%s", not, out.String())
		}
	}
	for _, want := range []string{
		"a lost no operation and no probe; no drop counter that Theseus reads rose on its nodes.",
		"One round has no spread", "the rate that was offered"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in:\n%s", want, out.String())
		}
	}
}

// TestRowNotMeasured: a row without a figure makes its run a failed one, and the words say why, and claim no more of
// its network than was measured.
func TestRowNotMeasured(t *testing.T) {
	c := &Comparison{Rounds: 2, Networks: []Network{{Name: "a"}, {Name: "b"}}}
	for round := 1; round <= 2; round++ {
		for _, name := range []string{"a", "b"} {
			questions := `"runs": 1, "sent": 100, "value": {"median": 100}`
			if name == "a" && round == 1 {
				questions = `"runs": 0, "error": "the server is <away>"`
			}
			c.Runs = append(c.Runs, Run{Network: name, Round: round, Result: json.RawMessage(`{"rows": [
				{"path": "p", "name": "datagrams", "unit": "/s", "runs": 1, "sent": 2000, "value": {"median": 2000},
					"error": "the last of the errors"},
				{"path": "to DNS", "name": "DNS questions", "unit": "/s", ` + questions + `}]}`)})
		}
	}
	for range 2 { // it is summed up after every run
		if err := c.Sum(); err != nil {
			t.Fatal(err)
		}
	}
	var table, page bytes.Buffer
	if err := errors.Join(c.WriteTable(&table), c.WritePage(&page, drawn(t))); err != nil {
		t.Fatal(err)
	}
	const why = "a, round 1, to DNS, DNS questions: not measured: the server is <away>\n"
	for _, want := range []string{"100 (failed in 1 of 2)", "\na lost no operation and no probe as far as it was " +
		"measured; ", "\nb lost no operation and no probe; "} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in:\n%s", want, table.String())
		}
	}
	if strings.Count(table.String(), why) != 1 || strings.Count(table.String(), "not measured") != 1 {
		t.Errorf("%q is not in, or not alone:\n%s", why, table.String())
	}
	for _, want := range []string{`<header class="bad">`, "1 of 4 measurements failed", "the server is &lt;away&gt;"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if failed := c.FailedRuns(); len(failed) != 1 || failed[0].Network != "a" || failed[0].Round != 1 {
		t.Errorf("failed: %+v", failed)
	}
}

func TestUnreadable(t *testing.T) {
	c := &Comparison{Networks: []Network{{Name: "a"}}, Runs: []Run{{Network: "a", Round: 2,
		Result: json.RawMessage(`{"rows": 1}`)}}}
	if err := c.Sum(); err == nil || !strings.Contains(err.Error(), "the result of a in round 2") {
		t.Errorf("%v", err)
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := "testdata/" + name
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Errorf("%s is other; got:\n%s", file, got)
	}
}

// drawn are drawings with a style.
func drawn(t *testing.T) Drawings {
	t.Helper()
	const section = "<section id=\"drawings\"><svg><title>a</title></svg></section>"
	d, err := DrawingsOf("<head><style>svg {}</style></head><main>" + section +
		"<section>more</section></main>")
	if err != nil || d.Style != "svg {}" || d.Section != section {
		t.Fatalf("%+v, %v", d, err)
	}
	return d
}

// TestDrawingsOf: a page without drawings is an error, and the comparison's page does without them.
func TestDrawingsOf(t *testing.T) {
	for _, page := range []string{"", "<style>a", "<style></style><section id=\"drawings\">"} {
		if _, err := DrawingsOf(page); err == nil {
			t.Errorf("%q has drawings", page)
		}
	}
	var page bytes.Buffer
	if err := (&Comparison{}).WritePage(&page, Drawings{}); err != nil || strings.Contains(page.String(), "<svg") {
		t.Errorf("%v: %s", err, page.String())
	}
	page.Reset()
	if err := (&Comparison{}).WritePage(&page, drawn(t)); err != nil ||
		!strings.Contains(page.String(), "<svg><title>a</title></svg>") || !strings.Contains(page.String(), "svg {}") {
		t.Errorf("%v: %s", err, page.String())
	}
}
