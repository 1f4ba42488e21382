package compare

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Result is what is read of a result of theseus bench network, made with --runs 1.
type Result struct {
	Rows     []Row                       `json:"rows"`
	Counters map[string]map[string]int64 `json:"counters"` // rises of the kernel's counters, by node
	Stopped  string                      `json:"stopped"`
}

// Row is one measurement. A latency that is nil is of too few operations, or longer than a second.
type Row struct {
	Path          string `json:"path"`
	Name          string `json:"name"`
	Unit          string `json:"unit"`
	Runs          int    `json:"runs"`
	Value         Middle `json:"value"`
	P50           Middle `json:"p50Micros"`
	P99           Middle `json:"p99Micros"`
	UnderLoadP50  Middle `json:"underLoadP50Micros"`
	UnderLoadP99  Middle `json:"underLoadP99Micros"`
	Sent          int64  `json:"sent"`
	Lost          int64  `json:"lost"`
	UnderLoadSent int64  `json:"underLoadSent"`
	UnderLoadLost int64  `json:"underLoadLost"`
	Retransmits   int64  `json:"retransmits"`
	Short         bool   `json:"short"`
	Error         string `json:"error"`
}

// Middle is the median of the runs of a benchmark.
type Middle struct {
	Median *float64 `json:"median"`
}

// least is how many operations a P99 needs.
const least = 100

// at is a value of a measurement with so many operations: infinite if it took over a second, NaN if it is not known.
func (m Middle) at(operations, needs int64) float64 {
	switch {
	case m.Median != nil:
		return *m.Median
	case operations >= needs && operations > 0:
		return math.Inf(1)
	}
	return math.NaN()
}

// Run is the measurement of one network in one round.
type Run struct {
	Network string  `json:"network"`
	Round   int     `json:"round"`
	Seconds float64 `json:"seconds"`
	// Failed is why the measurement has no result, or only a part of one.
	Failed string `json:"failed,omitempty"`
	// Result is as theseus wrote it; empty if it wrote none.
	Result json.RawMessage `json:"result,omitempty"`

	missing []string // the rows of the result that were not measured, and why
}

// read decodes the result; nil if there is none.
func (r Run) read() (*Result, error) {
	if len(r.Result) == 0 {
		return nil, nil
	}
	var result Result
	if err := json.Unmarshal(r.Result, &result); err != nil {
		return nil, fmt.Errorf("the result of %s in round %d: %w", r.Network, r.Round, err)
	}
	return &result, nil
}

// Order is the order of the networks in a round, which counts from 1: each begins every so many rounds.
func Order(networks []string, round int) []string {
	first := (round - 1) % len(networks)
	return slices.Concat(networks[first:], networks[:first])
}

// Figure is a number that may be unknown (NaN), or beyond what is measured (infinite): both are null in JSON.
type Figure float64

// MarshalJSON writes null for what is no number.
func (f Figure) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// median is the middle of sorted values, or the mean of the two in the middle; NaN if there are none.
func median(sorted []float64) float64 {
	middle := len(sorted) / 2
	switch {
	case len(sorted) == 0:
		return math.NaN()
	case len(sorted)%2 == 0:
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}
