package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Network is one that is compared.
type Network struct {
	Name string `json:"name"`
	// With is what runs with it: a policy agent, or a mode of kube-proxy.
	With string `json:"with,omitempty"`
}

// Comparison is the result of all rounds.
type Comparison struct {
	Kind     string    `json:"kind"`
	Began    time.Time `json:"began"`
	CPUs     int       `json:"cpus"`
	Nodes    int       `json:"nodesPerNetwork"`
	Rounds   int       `json:"rounds"`
	Load     []string  `json:"load"` // the flags of each benchmark
	Networks []Network `json:"networks"`
	Lines    []Line    `json:"lines"`
	Drops    []Drop    `json:"drops"`
	Says     []string  `json:"says"`
	Runs     []Run     `json:"runs"`
}

// Line is one figure of one measurement, of all networks.
type Line struct {
	Path     string `json:"path"`
	Measured string `json:"measured"`
	Figure   string `json:"figure"` // with its unit
	Cells    []Cell `json:"cells"`  // one for each network, in their order

	lost bool // it counts losses: shown if there are any
}

// Cell is a figure of a network.
type Cell struct {
	Network string `json:"network"`
	// Median, Least and Most are of the rounds with a result; sums of losses have Median alone. Null is not known: of
	// too few operations, or over a second.
	Median Figure `json:"median"`
	Least  Figure `json:"least"`
	Most   Figure `json:"most"`
	// Of is the number of operations of all rounds, where the figure counts those without an answer.
	Of int64 `json:"of,omitempty"`
	// Short is set if less was carried than was offered, in any round.
	Short bool `json:"short,omitempty"`
	// Failed is how many rounds have no result.
	Failed int `json:"failed,omitempty"`

	rounds int
}

// Drop is a counter of the kernel that rose on a node during the load.
type Drop struct {
	Network string `json:"network"`
	Node    string `json:"node"`
	Counter string `json:"counter"`
	Rise    int64  `json:"rise"`
}

// figure is what is taken of each row, in the order of the table.
type figure struct {
	name string // "" is the row's value, in its unit
	is   func(Row) bool
	of   func(Row) float64
	// lost and sent count losses: these are added up.
	lost, sent func(Row) int64
}

// atRest is the name of the measurement without load, streams and datagrams of throughput have the unit megabits, and
// blast is the name of the latter.
const (
	atRest   = "round trip at rest"
	blast    = "UDP"
	megabits = "Mbit/s"
)

func figures() []figure {
	loaded := func(r Row) bool { return r.Name != atRest }
	answered := func(r Row) bool { return r.Unit != megabits }
	return []figure{
		{is: loaded, of: func(r Row) float64 { return r.Value.at(0, 0) }},
		{name: "P50 ms", is: answered, of: func(r Row) float64 { return r.P50.at(r.Sent, 1) / 1000 }},
		{name: "P99 ms", is: answered, of: func(r Row) float64 { return r.P99.at(r.Sent, least) / 1000 }},
		{name: "lost", is: func(r Row) bool { return answered(r) || r.Name == blast },
			lost: func(r Row) int64 { return r.Lost },
			sent: func(r Row) int64 { return r.Sent }},
		{name: "segments sent again", is: func(r Row) bool { return r.Unit == megabits && r.Name != blast },
			lost: func(r Row) int64 { return r.Retransmits }, sent: func(Row) int64 { return 0 }},
		{name: "round trip under it, P50 ms", is: loaded,
			of: func(r Row) float64 { return r.UnderLoadP50.at(r.UnderLoadSent, 1) / 1000 }},
		{name: "round trip under it, P99 ms", is: loaded,
			of: func(r Row) float64 { return r.UnderLoadP99.at(r.UnderLoadSent, least) / 1000 }},
		{name: "round trip under it, lost", is: loaded, lost: func(r Row) int64 { return r.UnderLoadLost },
			sent: func(r Row) int64 { return r.UnderLoadSent }},
	}
}

// measured is a row of a network in one round.
type measured struct {
	network string
	row     Row
}

// Sum computes the lines, drops and words of the runs so far.
func (c *Comparison) Sum() error {
	c.Kind, c.Lines, c.Drops = "NetworkComparison", nil, nil
	rows, err := c.rows()
	if err != nil {
		return err
	}
	type key struct{ path, name string }
	var keys []key
	for _, m := range rows {
		if k := (key{m.row.Path, m.row.Name}); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	slices.SortStableFunc(keys, func(a, b key) int { // a round that was stopped has the first paths alone
		index := func(path string) int {
			return slices.IndexFunc(keys, func(k key) bool { return k.path == path })
		}
		return index(a.path) - index(b.path)
	})
	for _, k := range keys {
		of := slices.DeleteFunc(slices.Clone(rows), func(m measured) bool {
			return m.row.Path != k.path || m.row.Name != k.name
		})
		c.Lines = append(c.Lines, c.lines(of)...)
	}
	c.Says = c.words()
	return nil
}

// rows are those of all runs. Each run learns which of its rows were not measured.
func (c *Comparison) rows() (rows []measured, err error) {
	var errs []error
	for i := range c.Runs {
		run := &c.Runs[i]
		run.missing = nil
		result, err := run.read()
		if err != nil {
			errs = append(errs, err)
		}
		if result == nil {
			continue
		}
		for _, row := range result.Rows {
			rows = append(rows, measured{run.Network, row})
			if row.Runs == 0 && row.Error != "" {
				run.missing = append(run.missing, fmt.Sprintf("%s, %s: not measured: %s", row.Path, row.Name,
					row.Error))
			}
		}
		c.drop(run.Network, result.Counters)
	}
	return rows, errors.Join(errs...)
}

// lines are the figures of one measurement.
func (c *Comparison) lines(of []measured) []Line {
	var lines []Line
	for _, f := range figures() {
		if len(of) == 0 || !f.is(of[0].row) {
			continue
		}
		line := Line{Path: of[0].row.Path, Measured: of[0].row.Name, Figure: f.name, lost: f.lost != nil}
		if line.Figure == "" {
			line.Figure = of[0].row.Unit
		}
		for _, network := range c.Networks {
			line.Cells = append(line.Cells, c.cell(f, network.Name, of))
		}
		lines = append(lines, line)
	}
	return lines
}

func (c *Comparison) cell(f figure, network string, of []measured) Cell {
	cell := Cell{Network: network, rounds: c.done(network)}
	var values []float64
	var lost int64
	for _, m := range of {
		if m.network != network || m.row.Runs == 0 {
			continue
		}
		if f.lost != nil {
			lost, cell.Of = lost+f.lost(m.row), cell.Of+f.sent(m.row)
			values = append(values, float64(f.lost(m.row)))
			continue
		}
		values = append(values, f.of(m.row))
		cell.Short = cell.Short || f.name == "" && m.row.Short
	}
	cell.Failed = cell.rounds - len(values)
	values = slices.DeleteFunc(values, math.IsNaN)
	slices.Sort(values)
	none := Figure(math.NaN())
	cell.Median, cell.Least, cell.Most = Figure(median(values)), none, none
	switch {
	case len(values) == 0:
	case f.lost != nil:
		cell.Median = Figure(lost)
	default:
		cell.Least, cell.Most = Figure(values[0]), Figure(values[len(values)-1])
	}
	return cell
}

// done is how many rounds there were of a network.
func (c *Comparison) done(network string) (rounds int) {
	for _, run := range c.Runs {
		if run.Network == network {
			rounds++
		}
	}
	return rounds
}

// FailedRuns are the runs without a whole result, after Sum.
func (c *Comparison) FailedRuns() []Run {
	return slices.DeleteFunc(slices.Clone(c.Runs), func(r Run) bool { return r.Failed == "" && len(r.missing) == 0 })
}
