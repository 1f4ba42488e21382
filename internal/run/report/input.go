// Package report shows what a change cost: from the plan, the journal and the measurements it builds one
// model, and from the model one offline HTML page, JSON, and a summary for a terminal. It reads no clock
// and no file. A quantity that was not measured is reported as not measured, never as a pass.
package report

import (
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/observe"
	"github.com/theseus-cni/theseus/internal/network/bgp/draw"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// Input is the input of a report. Every field may be empty: the report then says so.
type Input struct {
	Plan *plan.Plan
	// Records is the journal, in order.
	Records []engine.Record
	// Reports are the final probe reports and any that were collected during the run, in any order.
	// Results of one path with the same Since are one count that grew; others are added up.
	Reports []v1alpha1.ProbeReport
	// Paths describes every path that was measured at any time.
	Paths []v1alpha1.Path
	// InventoriesBefore and InventoriesAfter map a node to the source's residue on it.
	InventoriesBefore map[string]step.Inventory
	InventoriesAfter  map[string]step.Inventory
	Workloads         []WorkloadOutcome
	// Traffic has the results of clients other than Theseus' probes, if there were any.
	Traffic []Traffic
	// Elsewhere are the measurements of other machines during a guard.
	Elsewhere []Elsewhere
	// BGP is the graph of Calico's sessions before the change and now; no rows where there is none.
	BGP []draw.Row
	// Load are the results of one load before and after the change, if that was measured.
	Load bench.Pair
	// Held says which process runs the change at this moment, as `theseus status` does; empty if none does.
	Held string
	// Foreign are results in a node's report of another node's paths. They are not counted.
	Foreign []Foreign
	// Left are the nodes that have left the cluster, since they began to leave: what their paths lost later is no loss.
	Left map[string]time.Time
	// Unread are files with results of earlier processes that could not be read.
	Unread []string
	// Events are what happened in the cluster, as far as it was looked at, and Looks the times in which it was.
	// EventsDropped counts those that were too many.
	Events        []observe.Event
	EventsDropped int
	Looks         []Span
	// At is when the report is made; it is only printed, and ends the time of a run that measures.
	At time.Time
}

// Foreign is a result, in the report of a node, of a path that starts on another node. No agent writes such a result.
type Foreign struct {
	Node string `json:"node"`
	Path string `json:"path"`
}

// WorkloadOutcome is what happened to one workload.
type WorkloadOutcome struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pods is how many pods it has, RestartsBefore and RestartsAfter the sums of their containers' restarts.
	Pods           int `json:"pods"`
	RestartsBefore int `json:"restartsBefore"`
	RestartsAfter  int `json:"restartsAfter"`
	// Evicted is how many of its pods were moved through the eviction API.
	Evicted int `json:"evicted"`
	// NotReadyMillis is how long, in ms, it had fewer ready pods than its budget or its spec demands.
	NotReadyMillis int64 `json:"notReadyMillis"`
}

// Restarts is how often its containers restarted during the change; a recreated pod counts from 0.
func (w WorkloadOutcome) Restarts() int { return max(0, w.RestartsAfter-w.RestartsBefore) }

// Traffic is one client's own summary.
type Traffic struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
	Failed   int64  `json:"failed"`
	// LongestGapMillis and P99GapMillis are times between two answers, in ms.
	LongestGapMillis float64 `json:"longestGapMillis"`
	P99GapMillis     float64 `json:"p99GapMillis"`
	// Leaked counts requests that policy should have denied and that were answered.
	Leaked int64 `json:"leaked"`
}
