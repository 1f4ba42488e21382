package bench

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// busy is the delay of the sender from which on the client's machine is said to be busy, in microseconds.
const busy = 1000

// Words are what the result says and what it does not, in sentences.
func (r *Result) Words() []string {
	var words []string
	if r.Stopped != "" {
		words = append(words, "The benchmark was stopped before its end: later measurements are missing.")
	}
	any := func(is func(Row) bool) bool { return slices.ContainsFunc(r.Rows, is) }
	if any(func(row Row) bool { return row.Short }) {
		words = append(words, "Rows marked * carried less than was offered. The limit may be the path, the CPUs "+
			"at its "+
			"ends, or the client.")
	}
	if any(func(row Row) bool { return !row.Short && row.Runs > 0 }) {
		words = append(words,
			"The other rates are those that were offered (--rate, --throughput): the path may carry more.")
	}
	if any(func(row Row) bool { return strings.HasPrefix(row.Name, string(Stream)) }) {
		words = append(words, "TCP includes the time in which connections are opened and their rates grow.")
	}
	words = append(words, fmt.Sprintf("Latencies start at the time at which an operation was scheduled, and include "+
		"the delays of the client and of the responder. Operations without an answer within %s count as slower than "+
		"that.", Timeout))
	if r.Bounds.Runs == 1 {
		words = append(words, "One run has no spread, so it cannot show how much runs differ.")
	} else {
		words = append(words, fmt.Sprintf("Values are medians of the runs (%d, unless a row says less), with the "+
			"least "+
			"and the greatest in brackets. If the brackets of two results overlap, they show no difference; if "+
			"not, the "+
			"difference may still be chance, so repeat both.", r.Bounds.Runs))
	}
	if any(func(row Row) bool {
		return row.Sent > 0 && !row.P999.known() || row.UnderLoadSent > 0 && !row.UnderLoadP999.known()
	}) {
		words = append(words, fmt.Sprintf("-: too few operations in a run. P99 needs %d, P99.9 needs %d.",
			shares[1].least, shares[2].least))
	}
	for _, row := range r.Rows {
		if row.Queued > 0 {
			words = append(words, fmt.Sprintf("%s, %s: %d operations waited in the client, because too many "+
				"others were in "+
				"progress: their latencies include that wait.",
				row.Path, row.Name, row.Queued))
		}
	}
	for _, s := range r.Samples {
		if s.Server != "" {
			words = append(words, fmt.Sprintf("All DNS queries are for one name, and went to %s. If that server, or a "+
				"cache, is on the client's node, they crossed no network.", s.Server))
			break
		}
	}
	if r.Other == "" && any(func(row Row) bool { return row.Path == Service }) {
		words = append(words, "The pod behind the Service is on the client's node: its requests crossed no network.")
	}
	where := "one node"
	if r.Other != "" {
		where = "one pair of nodes"
	}
	words = append(words, "All rows are of "+where+
		", with the cluster's other traffic at that time. Other nodes, and other hours, may differ.")
	late := int64(0)
	for _, s := range r.Samples {
		for _, l := range []*Latency{s.Latency, s.UnderLoad} {
			if l != nil {
				late = max(late, l.SenderP99)
			}
		}
	}
	if late > busy {
		words = append(words, fmt.Sprintf("The client itself was late by %s (P99 of the worst measurement): node "+
			"%s was "+
			"busy, and the latencies include that delay.", Millis(float64(late)), r.Client))
	}
	return words
}

// WriteTable writes the result for people.
func (r *Result) WriteTable(w io.Writer) error {
	var text strings.Builder
	if r.Stopped != "" {
		fmt.Fprintf(&text, "STOPPED: %s\n\n", r.Stopped)
	}
	table := tabwriter.NewWriter(&text, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "MEASURED\tRATE\tLOST\tP50 ms\tP99 ms\tP99.9 ms")
	for i, row := range r.Rows {
		if i == 0 || r.Rows[i-1].Path != row.Path {
			fmt.Fprintln(table, row.Path+"\t\t\t\t\t")
		}
		if row.Runs == 0 {
			fmt.Fprintf(table, "  %s\tnot measured: see below\t\t\t\t\n", row.Name)
			continue
		}
		latency := "-\t-\t-"
		if row.Sent > 0 {
			latency = row.P50.millis() + "\t" + row.P99.millis() + "\t" + row.P999.millis()
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", row.Name, row.rate(r.Bounds.Runs), row.lost(), latency)
		if row.UnderLoadSent > 0 {
			fmt.Fprintf(table, "    round trip under it\t\t%s\t%s\t%s\t%s\n", of(row.UnderLoadLost, row.UnderLoadSent),
				row.UnderLoadP50.millis(), row.UnderLoadP99.millis(), row.UnderLoadP999.millis())
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
	fmt.Fprintln(w)
	for _, row := range r.Rows {
		switch {
		case row.Error == "":
		case row.Runs == 0:
			fmt.Fprintf(w, "%s, %s: not measured: %s\n", row.Path, row.Name, row.Error)
		default:
			fmt.Fprintf(w, "%s, %s: the last error: %s\n", row.Path, row.Name, row.Error)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(r.Counters)) {
		fmt.Fprintf(w, "Kernel's counters of node %s, all traffic of the node: %s\n", node, drops(r.Counters[node]))
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note: "+note)
	}
	for _, words := range r.Says {
		fmt.Fprintln(w, words)
	}
	return nil
}

// drops are the counters that stand for losses, without those that count what was carried.
func drops(counters map[string]int64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if !slices.Contains([]string{"softnet.processed", "tcp.OutSegs", "udp.InDatagrams"}, name) {
			all = append(all, fmt.Sprintf("%s +%d", name, counters[name]))
		}
	}
	if len(all) == 0 {
		return "no counter of drops has risen"
	}
	return strings.Join(all, ", ")
}

func (row Row) rate(runs int) string {
	few := ""
	if row.Runs < runs {
		few = fmt.Sprintf(" (%d of %d runs)", row.Runs, runs)
	}
	if row.Name == string(RoundTrip) {
		return fmt.Sprintf("%d/s", row.Offered) + few
	}
	text := fmt.Sprintf("%.0f", row.Value.Median)
	if row.Runs > 1 {
		text += fmt.Sprintf(" [%.0f-%.0f]", row.Value.Least, row.Value.Most)
	}
	if row.Unit != "/s" {
		text += " "
	}
	text += row.Unit
	if row.Short {
		text += " *"
	}
	return text + few
}

func (row Row) lost() string {
	if row.Sent == 0 {
		if row.Retransmits > 0 {
			return fmt.Sprintf("%d sent again", row.Retransmits)
		}
		return "-"
	}
	return of(row.Lost, row.Sent)
}

func of(lost, sent int64) string {
	if lost == 0 {
		return "0"
	}
	return fmt.Sprintf("%d of %d", lost, sent)
}

func (s Spread) millis() string { return s.over(1000).String() }

// Millis writes microseconds as milliseconds with the significant digits.
func Millis(micros float64) string { return bare(micros) + "ms" }

// String writes a latency as milliseconds.
func (m Micros) String() string {
	switch m {
	case Over:
		return Millis(math.Inf(1))
	case few:
		return "-"
	}
	return Millis(float64(m))
}

func bare(micros float64) string { return Figure(micros / 1000).String() }

// Text is what a benchmark costs, for a person who is asked to agree. A container may use so many
// processors and MiB.
func (c Cost) Text(b Bounds, processors, memory int) []string {
	return []string{
		fmt.Sprintf("load     one measurement at a time: TCP at up to %d Mbit/s (1 and %d streams), up to %d "+
			"datagrams or requests a second,", b.Megabits, many, b.Rate),
		fmt.Sprintf("         %d new connections a second, %d DNS queries a second to the cluster's name server, "+
			"and %d "+
			"probes a second;", b.Rate/connectionShare, b.Rate/questionShare, b.probes()),
		"         every datagram and probe is echoed, so that the network carries it twice",
		fmt.Sprintf("nodes    up to %d CPUs and %d MiB of the client's node, and half of that of the other one; each "+
			"new connection and DNS", 4*processors, 4*memory),
		"         query leaves a conntrack entry on both nodes for a while. The pods have no controller: kubectl " +
			"drain of",
		"         these nodes fails at first, but it cordons the node, which stops the load",
		fmt.Sprintf("in all   at most %.1f GB by TCP, %d datagrams, requests and probes, %d connections, %d DNS "+
			"queries", float64(c.Bytes)/1e9, c.Operations-c.Connects-c.Questions, c.Connects, c.Questions),
		"         (cloud providers charge for traffic between zones)",
		fmt.Sprintf("time     %s for %d runs of %s each, and about a minute to make and remove the pods",
			c.Time.Round(time.Second), b.Runs, b.Duration),
		fmt.Sprintf("bound    TCP is at most %d%% of the nodes' links, and their conntrack tables at most %d%% "+
			"full, if "+
			"the nodes report these", b.LinkShare, full),
		"stops    when a node under load is not Ready, cordoned, tainted, under pressure or deleted; when the " +
			"client's node is overloaded;",
		fmt.Sprintf("         when, within a second, more than half of the probes, requests or DNS queries take over "+
			"%s, or more than %d%% have no answer%s", b.MaxRoundTrip, LostShare, b.then()),
	}
}

// then is what follows a measurement that was stopped because it was slow.
func (b Bounds) then() string {
	if b.KeepGoing {
		return " (the next measurement follows)"
	}
	return ""
}

// LostShare is the share of a second's probes without an answer from which on the load stops, in percent. At rest, none
// are lost.
const LostShare = 5
