// Package report shows what a change cost: from the plan, the journal and the measurements it builds one
// model, and from the model one offline HTML page, JSON, and a summary for a terminal. It reads no clock
// and no file. What was not measured is said to be not measured; it is never shown as a pass.
package report

import (
	"time"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/network/bgp/draw"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// Input is everything a report can be made from. Every field may be empty: the report then says so.
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
	// Traffic sums up what clients other than Theseus' probes saw, where there were any.
	Traffic []Traffic
	// BGP is the graph of Calico's sessions before the change and now; no rows where there is none.
	BGP []draw.Row
	// Held says who runs the change at this moment, as `theseus status` does; empty where nobody does.
	Held string
	// Foreign are results that a node's report held of another node's paths. They count for nothing.
	Foreign []Foreign
	// At is when the report is made; it is only printed.
	At time.Time
}

// Foreign is a result of a path that starts elsewhere, in the report of a node: no agent writes that.
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

// Restarts is how often its containers restarted during the change; a pod made anew counts from 0.
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
