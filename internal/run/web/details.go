package web

import (
	"cmp"
	"slices"
	"time"

	"github.com/theseus-cni/theseus/internal/run/report"
)

// Plan is the part of the page that does not change.
type Plan struct {
	Name     string `json:"name"`
	From     string `json:"from"`
	To       string `json:"to"`
	Strategy string `json:"strategy,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Hash     string `json:"hash"`
	// LimitMillis is the longest gap that the gates allow, in ms; 0 if none is known.
	LimitMillis float64    `json:"limitMillis"`
	Steps       []PlanStep `json:"steps"`
	// Actions are what this page may ask for; empty if it only shows.
	Actions []string `json:"actions,omitempty"`
	// User is who has signed in, and Others are the migrations to choose from, newest first; empty for a page of one
	// migration.
	User   string   `json:"user,omitempty"`
	Others []string `json:"others,omitempty"`
	// Waits is true if the page cannot show the plan yet: there is nothing of it but its name, and what may be asked
	// for.
	Waits bool `json:"waits,omitempty"`
}

// PlanStep is a step in the runbook. Its details are served one by one.
type PlanStep struct {
	Title    string `json:"t"`
	Group    string `json:"g"`
	NoReturn bool   `json:"x,omitempty"`
}

// Plan describes the plan for the page.
func (b *Board) Plan() Plan {
	p := Plan{Name: b.plan.Name, From: b.plan.From(), To: b.plan.To(), Strategy: b.plan.Strategy, Reason: b.plan.Reason,
		Hash: b.plan.Hash, LimitMillis: b.model.Limit}
	for i := range b.plan.Steps {
		one := &b.plan.Steps[i]
		p.Steps = append(p.Steps, PlanStep{one.Title, one.Group, one.NoReturn})
	}
	return p
}

// Step is the report's account of a step of the plan.
func (b *Board) Step(i int) (report.Step, bool) {
	if i < 0 || i >= len(b.plan.Steps) {
		return report.Step{}, false
	}
	return b.model.Steps[i], true
}

// NodeDetail is what the page shows of one node.
type NodeDetail struct {
	Node
	Begin time.Time `json:"begin,omitzero"`
	End   time.Time `json:"end,omitzero"`
	// Reports is the time of the last results from it, by the clock of this machine.
	Reports time.Time    `json:"reports,omitzero"`
	Paths   int          `json:"paths"`
	Sent    int64        `json:"sent"`
	Lost    int64        `json:"lost"`
	Leaked  int64        `json:"leaked"`
	Longest float64      `json:"longestMillis"`
	Steps   []NodeStep   `json:"steps"`
	Worst   []PathDetail `json:"worst,omitempty"`
}

// NodeStep is a step that works on the node.
type NodeStep struct {
	I       int    `json:"i"`
	Title   string `json:"title"`
	Mark    Mark   `json:"mark"`
	Failure string `json:"failure,omitempty"`
}

// PathDetail is a path of the node that lost probes, or whose denied probes were answered.
type PathDetail struct {
	ID      string  `json:"id"`
	Lost    int64   `json:"lost"`
	Leaked  int64   `json:"leaked"`
	Longest float64 `json:"longestMillis"`
	Cause   string  `json:"cause,omitempty"`
}

// maxWorst bounds the paths of a node's detail.
const maxWorst = 12

// Node is the detail of a node: its steps, and the paths that begin or end on it.
func (b *Board) Node(name string) (NodeDetail, bool) {
	i, known := b.nodes[name]
	if !known {
		return NodeDetail{}, false
	}
	d := NodeDetail{Node: b.cells[i]}
	for _, node := range b.model.Nodes {
		if node.Name == name {
			d.Begin, d.End = node.Begin, node.End
		}
	}
	for i := range b.plan.Steps {
		if step := &b.model.Steps[i]; step.Group == d.Wave && slices.Contains(step.Nodes, name) {
			d.Steps = append(d.Steps, NodeStep{i, step.Title, markOf(step.State), step.Failure})
		}
	}
	for _, p := range b.account {
		if grew := b.progress[p.ID].grew; p.Source.Node == name && grew.After(d.Reports) {
			d.Reports = grew
		}
		if p.Source.Node != name && p.Target.Node != name || p.Sent == 0 {
			continue
		}
		d.Paths++
		d.Sent, d.Lost, d.Leaked = d.Sent+p.Sent, d.Lost+p.Lost, d.Leaked+p.Leaked
		if p.Lost+p.Leaked == 0 {
			continue
		}
		worst := PathDetail{ID: p.ID, Lost: p.Lost, Leaked: p.Leaked}
		for _, gap := range p.Gaps {
			worst.Longest, worst.Cause = max(worst.Longest, gap.Millis), cmp.Or(gap.Cause, worst.Cause)
		}
		d.Longest = max(d.Longest, worst.Longest)
		d.Worst = append(d.Worst, worst)
	}
	slices.SortFunc(d.Worst, func(a, b PathDetail) int {
		return cmp.Or(-cmp.Compare(a.Longest, b.Longest), cmp.Compare(a.ID, b.ID))
	})
	d.Worst = d.Worst[:min(len(d.Worst), maxWorst)]
	return d, true
}
