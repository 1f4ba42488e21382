package bench

import (
	"fmt"
	"io"
	"maps"
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
	short := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Short })
	if short {
		words = append(words, "Rows marked * carried less than was offered: that is what the path, or the processors at its ends, could carry.")
	}
	if slices.ContainsFunc(r.Rows, func(row Row) bool { return !row.Short && row.Runs > 0 }) {
		words = append(words, "The other rates are those that were offered (--rate, --throughput): the path may carry more.")
	}
	words = append(words, "Latencies are counted from the time at which an operation was to be sent, and include the delays of the client and of the responder.")
	if r.Bounds.Runs == 1 {
		words = append(words, "One run has no spread: whether another run would differ is not known.")
	} else {
		words = append(words, fmt.Sprintf("Values are medians of %d runs, with the least and the greatest in brackets. A difference between two results that is within these is no difference.", r.Bounds.Runs))
	}
	if n := int(float64(min(r.Bounds.Rate, probeRate)) * r.Bounds.Duration.Seconds()); n < 10000 {
		words = append(words, fmt.Sprintf("The p99.9 of a round trip rests on the %s slowest of %d probes in each run.", count(max(1, n/1000)), n))
	}
	where := "one node"
	if r.Other != "" {
		where = "one pair of nodes"
	}
	words = append(words, "All rows are of "+where+", with the cluster's other traffic at that time. Other nodes, and other hours, may differ.")
	late := int64(0)
	for _, s := range r.Samples {
		for _, l := range []*Latency{s.Latency, s.Beside} {
			if l != nil {
				late = max(late, l.SenderP99)
			}
		}
	}
	if late > busy {
		words = append(words, fmt.Sprintf("The client itself was late by %s (p99 of the worst measurement): node %s was busy, and latencies are its own in part.", Millis(float64(late)), r.Client))
	}
	return words
}

func count(n int) string {
	if n == 1 {
		return "one"
	}
	return fmt.Sprint(n)
}

// WriteTable writes the result for people.
func (r *Result) WriteTable(w io.Writer) error {
	var text strings.Builder
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
		if row.P50.Median > 0 {
			latency = row.P50.millis() + "\t" + row.P99.millis() + "\t" + row.P999.millis()
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", row.Name, row.rate(), row.lost(), latency)
		if row.BesideSent > 0 {
			fmt.Fprintf(table, "    round trip under it\t\t%s\t%s\t%s\t%s\n", of(row.BesideLost, row.BesideSent), row.BesideP50.millis(), row.BesideP99.millis(), row.BesideP999.millis())
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
		return "none of those that count drops has risen"
	}
	return strings.Join(all, ", ")
}

func (row Row) rate() string {
	if row.Name == string(RoundTrip) {
		return fmt.Sprintf("%d/s", row.Offered)
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
	return text
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

func (s Spread) millis() string {
	if s.Least == s.Most {
		return bare(s.Median)
	}
	return fmt.Sprintf("%s [%s-%s]", bare(s.Median), bare(s.Least), bare(s.Most))
}

// Millis writes microseconds as milliseconds with the significant digits.
func Millis(micros float64) string { return bare(micros) + "ms" }

func bare(micros float64) string {
	switch millis := micros / 1000; {
	case millis < 10:
		return fmt.Sprintf("%.2f", millis)
	case millis < 100:
		return fmt.Sprintf("%.1f", millis)
	default:
		return fmt.Sprintf("%.0f", millis)
	}
}

// Text is what a benchmark costs, for a person who is asked to agree.
func (c Cost) Text(b Bounds) []string {
	return []string{
		fmt.Sprintf("load     one measurement at a time: TCP at up to %d Mbit/s (1 and %d streams), up to %d datagrams or requests a second,", b.Megabits, many, b.Rate),
		fmt.Sprintf("         %d new connections a second, %d DNS questions a second to the cluster's name server, and %d probes a second", b.Rate/connectionShare, b.Rate/questionShare, b.probes()),
		fmt.Sprintf("in all   at most %.1f GB by TCP, %d datagrams, requests and probes, %d connections, %d DNS questions", float64(c.Bytes)/1e9, c.Operations-c.Connects-c.Questions, c.Connects, c.Questions),
		fmt.Sprintf("time     %s for %d runs of %s each, and about a minute to make and remove the pods", c.Time.Round(time.Second), b.Runs, b.Duration),
		fmt.Sprintf("stops    when a node under load is not Ready, or over half of a second's probes under load take over %s", b.MaxRoundTrip),
	}
}
