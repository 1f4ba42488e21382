package web

import "github.com/theseus-cni/theseus/internal/run/report"

// Plan is the part of the page that does not change.
type Plan struct {
	Name     string `json:"name"`
	From     string `json:"from"`
	To       string `json:"to"`
	Strategy string `json:"strategy,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Hash     string `json:"hash"`
	// LimitMillis is the longest gap that the gates allow, in ms; 0 if none is known.
	LimitMillis float64 `json:"limitMillis"`
	// Compared is true if losses are compared with those of a baseline that lost probes: no loss is bad by itself then.
	Compared bool       `json:"compared,omitempty"`
	Steps    []PlanStep `json:"steps"`
	// Nodes is how many nodes the cluster had when the plan was made.
	Nodes int `json:"nodes,omitempty"`
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
		Hash: b.plan.Hash, LimitMillis: b.model.Limit, Compared: b.plan.LossyBefore(), Nodes: len(b.plan.Cluster.Nodes)}
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
