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
	if any(func(row Row) bool { return row.Name == string(Blast) && row.Lost > 0 }) {
		words = append(words, "UDP does not slow down when datagrams are lost. The path may have dropped them, or the "+
			"responder's socket. udp.RcvbufErrors counts what the sockets of the host network dropped, of any "+
			"program. If it rises for pod to host, the receiver may have been too slow. For a receiver in a pod "+
			"it shows nothing: then LOST cannot tell the network from the receiver.")
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
		return row.P50.known() && !row.P999.known() || row.UnderLoadSent > 0 && !row.UnderLoadP999.known()
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
	if any(func(row Row) bool { return len(row.Processor) > 0 }) {
		words = append(words, fmt.Sprintf("Processor time is the CPU time that the node used during the measurement, "+
			"minus what it used without load (measured for %s before the run), for 1,000 packets, both directions "+
			"counted. It includes the benchmark's programs, and whatever else ran. With few packets a second it is "+
			"mostly noise: raise --rate, and compare the spread.", seconds(Rest)))
	}
	if len(r.Bounds.PolicyRules) > 0 {
		words = append(words, "The rules of policy match no packet of the load, and the one that "+
			"admits it was made last. A network may look at rules in another order, or only for new connections.")
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

// TableRow is a line of the table: a heading, which has a Path alone, or figures as texts.
type TableRow struct {
	Path                             string
	Name, Rate, Lost, P50, P99, P999 string
	// Under is set for the probes under the load of the line above.
	Under bool
}

// Table has a line for each measurement, below a heading for each path, and one for the probes under its load.
func (r *Result) Table() (table []TableRow) {
	for i, row := range r.Rows {
		if i == 0 || r.Rows[i-1].Path != row.Path {
			table = append(table, TableRow{Path: row.Path})
		}
		if row.Runs == 0 {
			table = append(table, TableRow{Name: row.Name, Rate: "not measured: see below"})
			continue
		}
		line := TableRow{Name: row.Name, Rate: row.rate(r.Bounds.Runs), Lost: row.lost(), P50: "-", P99: "-", P999: "-"}
		if row.P50.known() {
			line.P50, line.P99, line.P999 = row.P50.millis(), row.P99.millis(), row.P999.millis()
		}
		table = append(table, line)
		if row.UnderLoadSent > 0 {
			table = append(table, TableRow{Name: "round trip under it", Under: true,
				Lost: of(row.UnderLoadLost, row.UnderLoadSent), P50: row.UnderLoadP50.millis(),
				P99: row.UnderLoadP99.millis(), P999: row.UnderLoadP999.millis()})
		}
	}
	return table
}

// Remarks are what is to be said below the table: errors, drops, notes, and what the result says and does not.
func (r *Result) Remarks() (all []string) {
	for _, row := range r.Rows {
		switch {
		case row.Error == "":
		case row.Runs == 0:
			all = append(all, fmt.Sprintf("%s, %s: not measured: %s", row.Path, row.Name, row.Error))
		default:
			all = append(all, fmt.Sprintf("%s, %s: the last error: %s", row.Path, row.Name, row.Error))
		}
	}
	for _, node := range slices.Sorted(maps.Keys(r.Counters)) {
		all = append(all, fmt.Sprintf("Counters of node %s, of the kernel and of the network's own programs, all "+
			"traffic of the node: %s", node, r.drops(r.Counters[node])))
	}
	for _, left := range r.Addresses {
		all = append(all, left.String())
	}
	for _, row := range r.Rows {
		for _, node := range slices.Sorted(maps.Keys(row.Processor)) {
			all = append(all, fmt.Sprintf("Processor time of node %s for 1,000 packets, %s, %s: %s ms", node, row.Path,
				row.Name, row.Processor[node]))
		}
		if row.Lost == 0 && row.UnderLoadLost == 0 && row.Retransmits == 0 {
			continue
		}
		for _, node := range slices.Sorted(maps.Keys(row.Rises)) {
			if text := r.drops(row.Rises[node]); text != noDrops {
				all = append(all, fmt.Sprintf("During %s, %s, on node %s: %s", row.Path, row.Name, node, text))
			}
		}
	}
	for _, note := range r.Notes {
		all = append(all, "note: "+note)
	}
	return append(all, r.Says...)
}

// WriteTable writes the result for people.
func (r *Result) WriteTable(w io.Writer) error {
	var text strings.Builder
	if r.Stopped != "" {
		fmt.Fprintf(&text, "STOPPED: %s\n\n", r.Stopped)
	}
	table := tabwriter.NewWriter(&text, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "MEASURED\tRATE\tLOST\tP50 ms\tP99 ms\tP99.9 ms")
	for _, row := range r.Table() {
		indent := "  "
		switch {
		case row.Path != "":
			indent = row.Path
		case row.Under:
			indent = "    "
		}
		fmt.Fprintf(table, "%s%s\t%s\t%s\t%s\t%s\t%s\n", indent, row.Name, row.Rate, row.Lost, row.P50, row.P99,
			row.P999)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
	fmt.Fprintln(w)
	for _, remark := range r.Remarks() {
		fmt.Fprintln(w, remark)
	}
	return nil
}

// noDrops are drops if there are none.
const noDrops = "no counter of drops has risen"

// drops are the counters that stand for losses, without those that count what was carried.
func (r *Result) drops(counters map[string]int64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counters)) {
		if !slices.Contains([]string{"softnet.processed", "tcp.OutSegs", "udp.InDatagrams", Busy}, name) &&
			!slices.Contains(r.Carried, name) {
			all = append(all, fmt.Sprintf("%s +%d", name, counters[name]))
		}
	}
	if len(all) == 0 {
		return noDrops
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

// Millis is a spread of microseconds in milliseconds.
func (s Spread) Millis() Spread { return s.over(1000) }

func (s Spread) millis() string { return s.Millis().String() }

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
	return slices.Concat([]string{
		fmt.Sprintf("load     one measurement at a time: TCP (1 and %d streams) and UDP at up to %d Mbit/s, up to %d "+
			"datagrams or requests a second,", many, b.Megabits, b.Rate),
		fmt.Sprintf("         %d new connections a second, %d DNS queries a second to the cluster's name server, "+
			"and %d "+
			"probes a second;", b.Rate/connectionShare, b.Rate/questionShare, b.probes()),
		"         every datagram and probe is echoed, so that the network carries it twice",
		fmt.Sprintf("nodes    up to %d CPUs and %d MiB of the client's node, and half of that of the other one; each "+
			"new connection and DNS", 4*processors, 4*memory),
		"         query leaves a conntrack entry on both nodes for a while. The pods have no controller: kubectl " +
			"drain of",
		"         these nodes fails at first, but it cordons the node, which stops the load",
	}, b.policies(), []string{
		fmt.Sprintf("in all   at most %.1f GB by TCP and UDP, %d datagrams, requests and probes, %d connections, "+
			"%d DNS queries", float64(c.Bytes)/1e9, c.Operations-c.Connects-c.Questions, c.Connects, c.Questions),
		"         (cloud providers charge for traffic between zones)",
		fmt.Sprintf("time     %s for %d runs of %s each, and about a minute to make and remove the pods",
			c.Time.Round(time.Second), b.Runs, b.Duration),
		fmt.Sprintf("bound    TCP and UDP are at most %d%% of the nodes' links, and their conntrack tables at most "+
			"%d%% full, if the nodes report these", b.LinkShare, full),
		"stops    when a node under load is not Ready, cordoned, tainted, under pressure or deleted; when the " +
			"client's node is overloaded;",
	}, b.busiest(), []string{
		fmt.Sprintf("         when, within a second, more than half of the probes, requests or DNS queries take over "+
			"%s, or more than %d%% have no answer%s", b.MaxRoundTrip, LostShare, b.then()),
	})
}

// policies says what the rules of policy cost.
func (b Bounds) policies() []string {
	if len(b.PolicyRules) == 0 {
		return nil
	}
	most := b.PolicyRules[len(b.PolicyRules)-1]
	return []string{
		fmt.Sprintf("policy   up to %d rules in NetworkPolicies that select one pod of the benchmark alone; every "+
			"node's policy agent", most),
		fmt.Sprintf("         reads them, %.1f MB for each node in all. Each run makes and removes them, which may "+
			"take some minutes", float64(b.rulesRead())*ruleBytes/1e6),
	}
}

// seconds writes a duration of whole seconds.
func seconds(d time.Duration) string { return fmt.Sprintf("%.0f s", d.Seconds()) }

// ruleBytes is the size of a rule in JSON.
const ruleBytes = 100

// busiest says from which share of a node's processors on the load stops.
func (b Bounds) busiest() []string {
	if b.CPUShare == 0 || b.CPUShare == 100 {
		return nil
	}
	return []string{fmt.Sprintf("         when the processors of a node are over %d%% busy for a second, unless nodes "+
		"share a kernel;", b.CPUShare)}
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
