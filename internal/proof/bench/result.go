package bench

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
)

// Micros is a latency in microseconds. A negative one is not known, and null in JSON.
type Micros int64

const (
	// Over is a latency longer than Timeout: so many operations were not answered in time that one of them is at this
	// rank.
	Over Micros = -1
	// few is a latency of too few operations.
	few Micros = -2
)

// MarshalJSON writes null for what is not known.
func (m Micros) MarshalJSON() ([]byte, error) {
	if m < 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(m), 10), nil
}

// UnmarshalJSON reads null as Over; the number of operations shows if there were too few.
func (m *Micros) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*m = Over
		return nil
	}
	return json.Unmarshal(text, (*int64)(m))
}

// Latency is the distribution of the latencies of one measurement, over all operations that were to be sent: those
// without an answer are the slowest. Each is counted from the time at which the operation was to be sent, so that a
// stalled sender or responder cannot hide the operations that it delays.
type Latency struct {
	P50  Micros `json:"p50Micros"`
	P99  Micros `json:"p99Micros"`
	P999 Micros `json:"p999Micros"`
	Max  Micros `json:"maxMicros"`
	// Offered is the number of operations that were to be sent, Answered of those that were answered in time.
	Offered  int64 `json:"offered"`
	Answered int64 `json:"answered"`
	// SenderP99 is how late the sender itself was, in microseconds: that part of the latency is not the network's.
	SenderP99 int64 `json:"senderP99Micros"`
	// Queued is the number of operations that waited in the client because too many were in progress: their latency is
	// its own in part.
	Queued int64 `json:"queued,omitempty"`
}

// Lost is the number of operations without an answer in time.
func (l Latency) Lost() int64 { return l.Offered - l.Answered }

// shares are those of P50, P99 and P999, each with the number of operations below which it is not known: it would be
// the slowest one.
var shares = [3]struct {
	share float64
	least int64
}{{0.5, 1}, {0.99, 100}, {0.999, 1000}}

// NewLatency sums up latencies and the delays of the sender, both in microseconds and in any order; it sorts them.
func NewLatency(offered int64, micros, late []int64) Latency {
	slices.Sort(micros)
	slices.Sort(late)
	var at [3]Micros
	for i, s := range shares {
		if at[i] = few; offered >= s.least {
			at[i] = quantile(micros, int(offered), s.share)
		}
	}
	return Latency{P50: at[0], P99: at[1], P999: at[2], Max: quantile(micros, int(offered), 1), Offered: offered,
		Answered: int64(len(micros)), SenderP99: int64(max(0, quantile(late, len(late), 0.99)))}
}

// quantile is the smallest value that the share q of n operations does not exceed, of which those without a sorted
// value are the slowest.
func quantile(sorted []int64, n int, q float64) Micros {
	rank := max(1, int(q*float64(n)+0.999999))
	if rank > len(sorted) {
		return Over
	}
	return Micros(sorted[rank-1])
}

// Sample is one measurement of a task in one run.
type Sample struct {
	Task int `json:"task"`
	Run  int `json:"run"`
	// Value is the result: operations answered a second, or Mbit/s received. It is 0 for the round trip.
	Value float64 `json:"value"`
	// Latency is of the operations; nil for streams.
	Latency *Latency `json:"latency,omitempty"`
	// Retransmits are the segments that the senders of streams sent again.
	Retransmits int64 `json:"retransmits,omitempty"`
	// Sent and Arrived are datagrams of UDP throughput; 0 of all others.
	Sent    int64 `json:"sent,omitempty"`
	Arrived int64 `json:"arrived,omitempty"`
	// UnderLoad is the round trip of the probes that ran during the load; nil if there was no load.
	UnderLoad *Latency `json:"underLoad,omitempty"`
	// Rises are what the kernel's counters of nodes rose by during the measurement, by any traffic, by the node's name.
	Rises map[string]map[string]int64 `json:"rises,omitempty"`
	// Processor is the processor time in microseconds for each packet of a flow of datagrams, of all that a node
	// did beyond its rest, by the node's name.
	Processor map[string]float64 `json:"processorMicros,omitempty"`
	// Error is why there is no result, or why operations failed (the last one).
	Error string `json:"error,omitempty"`
	// Server is the name server that was asked, as host:port.
	Server string `json:"server,omitempty"`
	// Stopped is why the worker stopped the load; then this is no result.
	Stopped string `json:"stopped,omitempty"`
}

// Line is a line of the client's output: one of its fields is set.
type Line struct {
	Sample *Sample `json:"sample,omitempty"`
	// Counters are what the kernel's counters of a node rose by during the benchmark, by the node's name.
	Counters map[string]map[string]int64 `json:"counters,omitempty"`
	// Note is what could not be done.
	Note string `json:"note,omitempty"`
	// Stopped is why the client stopped the load.
	Stopped string `json:"stopped,omitempty"`
	Done    bool   `json:"done,omitempty"`
}

// Figure is a number that may not be known (NaN), or be beyond what is measured (infinite): both are null in JSON.
type Figure float64

// MarshalJSON writes null for what is no number.
func (f Figure) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// Spread is the median of several runs, with the least and the greatest.
type Spread struct {
	Median Figure `json:"median"`
	Least  Figure `json:"least"`
	Most   Figure `json:"most"`
}

// SpreadOf sums values up; not known if there are none.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		none := Figure(math.NaN())
		return Spread{none, none, none}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Spread{Figure(median), Figure(sorted[0]), Figure(sorted[len(sorted)-1])}
}

// known reports whether there was a value.
func (s Spread) known() bool { return !math.IsNaN(float64(s.Median)) }

// Row is the result of a task over all runs.
type Row struct {
	Path string `json:"path"`
	Name string `json:"name"`
	// Unit of Value: "Mbit/s", or "/s".
	Unit    string `json:"unit"`
	Offered int    `json:"offered"`
	// Runs is how many have a result.
	Runs  int    `json:"runs"`
	Value Spread `json:"value"`
	// P50, P99 and P999 are latencies of the operations, in microseconds; null if they are above Timeout, or of too few
	// operations.
	P50  Spread `json:"p50Micros"`
	P99  Spread `json:"p99Micros"`
	P999 Spread `json:"p999Micros"`
	// UnderLoadP50, UnderLoadP99 and UnderLoadP999 are round trips of probes during the load, in microseconds.
	UnderLoadP50  Spread `json:"underLoadP50Micros"`
	UnderLoadP99  Spread `json:"underLoadP99Micros"`
	UnderLoadP999 Spread `json:"underLoadP999Micros"`
	// Sent and Lost are operations of all runs, or datagrams of UDP throughput; UnderLoadSent and UnderLoadLost are
	// probes during them.
	Sent          int64 `json:"sent"`
	Lost          int64 `json:"lost"`
	UnderLoadSent int64 `json:"underLoadSent"`
	UnderLoadLost int64 `json:"underLoadLost"`
	// Queued is how many operations waited in the client.
	Queued      int64 `json:"queued"`
	Retransmits int64 `json:"retransmits"`
	// Rises are those of all runs, and Processor is the processor time in microseconds for each packet, by node.
	Rises     map[string]map[string]int64 `json:"rises,omitempty"`
	Processor map[string]Spread           `json:"processorMicros,omitempty"`
	// Short is set if less was carried than was offered: then Value is what was carried, and not the bound.
	Short bool `json:"short"`
	// Error is the last one of all runs.
	Error string `json:"error,omitempty"`
}

// Result is a benchmark's result.
type Result struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Theseus    string   `json:"theseus"`
	Began      string   `json:"began"`
	Client     string   `json:"clientNode"`
	Other      string   `json:"otherNode,omitempty"`
	Bounds     Bounds   `json:"bounds"`
	Cost       Cost     `json:"cost"`
	Rows       []Row    `json:"rows"`
	Says       []string `json:"says"`
	// Stopped is why the benchmark ended early; empty if it did not.
	Stopped string `json:"stopped,omitempty"`
	// Carried are the counters of the network's programs that count what was done: no losses.
	Carried []string `json:"carriedCounters,omitempty"`
	// Harmed is set if that was the load: it exceeded, or harmed, what it was put on.
	Harmed   bool                        `json:"harmed,omitempty"`
	Counters map[string]map[string]int64 `json:"counters"`
	// Addresses are those of pods in the ranges of the two nodes, before the benchmark and after its removal.
	Addresses []Left   `json:"addresses,omitempty"`
	Tasks     []Task   `json:"tasks"`
	Samples   []Sample `json:"samples"`
	Notes     []string `json:"notes,omitempty"`
}

// shortBy is the share of what was offered that may be missing before a path counts as short.
const shortBy = 0.03

// Rows sums samples up, a row for each task that was measured.
func Rows(tasks []Task, samples []Sample) []Row {
	var rows []Row
	for i, task := range tasks {
		of := slices.DeleteFunc(slices.Clone(samples), func(s Sample) bool { return s.Task != i })
		if len(of) == 0 {
			continue
		}
		rows = append(rows, rowOf(task, of))
	}
	return rows
}

func rowOf(task Task, samples []Sample) Row {
	row := Row{Path: task.Path, Name: task.Name(), Unit: "/s", Offered: task.Rate}
	if task.Kind.inMegabits() {
		row.Unit = "Mbit/s"
	}
	var values []float64
	var own, under [3][]float64
	add := func(to *[3][]float64, l *Latency) {
		for i, micros := range []Micros{l.P50, l.P99, l.P999} {
			switch {
			case l.Offered < shares[i].least:
			case micros < 0:
				to[i] = append(to[i], math.Inf(1))
			default:
				to[i] = append(to[i], float64(micros))
			}
		}
	}
	for _, s := range samples {
		if s.Error != "" {
			row.Error = s.Error
		}
		row.Retransmits += s.Retransmits
		row.Sent, row.Lost = row.Sent+s.Sent, row.Lost+s.Sent-s.Arrived
		if s.Latency != nil {
			row.Sent, row.Lost, row.Queued = row.Sent+s.Latency.Offered, row.Lost+s.Latency.Lost(),
				row.Queued+s.Latency.Queued
			add(&own, s.Latency)
		}
		if s.UnderLoad != nil {
			row.UnderLoadSent += s.UnderLoad.Offered
			row.UnderLoadLost += s.UnderLoad.Lost()
			add(&under, s.UnderLoad)
		}
		// of streams of which one failed, what arrived is not known
		if s.Latency != nil || s.Value > 0 && s.Error == "" {
			row.Runs++
			values = append(values, s.Value)
		}
	}
	row.count(samples)
	row.Value = SpreadOf(values)
	row.P50, row.P99, row.P999 = SpreadOf(own[0]), SpreadOf(own[1]), SpreadOf(own[2])
	row.UnderLoadP50, row.UnderLoadP99, row.UnderLoadP999 = SpreadOf(under[0]), SpreadOf(under[1]), SpreadOf(under[2])
	switch {
	case task.Kind == RoundTrip:
	case task.Kind.inMegabits():
		row.Short = len(values) > 0 && float64(row.Value.Median) < float64(task.Rate)*(1-shortBy)
	default:
		row.Short = float64(row.Lost) > float64(row.Sent)*shortBy
	}
	return row
}

// count adds up what the nodes counted.
func (row *Row) count(samples []Sample) {
	micros := map[string][]float64{}
	for _, s := range samples {
		for node, rises := range s.Rises {
			if row.Rises == nil {
				row.Rises = map[string]map[string]int64{}
			}
			if row.Rises[node] == nil {
				row.Rises[node] = map[string]int64{}
			}
			for name, rise := range rises {
				row.Rises[node][name] += rise
			}
		}
		for node, one := range s.Processor {
			micros[node] = append(micros[node], one)
		}
	}
	for node, all := range micros {
		if row.Processor == nil {
			row.Processor = map[string]Spread{}
		}
		row.Processor[node] = SpreadOf(all)
	}
}

// Busy is the counter of the time in microseconds that all processors of a node together have worked.
const Busy = "processors.busyMicros"

// Rises are the counters that are higher than before, per node. A counter that is not in before counts from 0.
func Rises(before, after map[string]int64) map[string]int64 {
	rises := maps.Clone(after)
	for name, value := range before {
		rises[name] -= value
	}
	maps.DeleteFunc(rises, func(_ string, rise int64) bool { return rise <= 0 })
	return rises
}
