// Package finding defines the results of checks as data, which are printed as text, JSON, SARIF or JUnit.
package finding

import "github.com/theseus-cni/theseus/internal/cluster"

// Severity ranks a finding.
type Severity string

// Block stops a change, Warn should be read before the change, Info is worth knowing.
const (
	Block Severity = "block"
	Warn  Severity = "warn"
	Info  Severity = "info"
)

// Subject names the object that a finding is about.
type Subject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String formats a subject as kind/namespace/name.
func (s Subject) String() string {
	if s.Namespace == "" {
		return s.Kind + "/" + s.Name
	}
	return s.Kind + "/" + s.Namespace + "/" + s.Name
}

// Finding is one problem that a check found.
type Finding struct {
	// ID is stable, such as "cidr/overlap".
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Subject  Subject  `json:"subject"`
	// Message is one sentence: the problem and its consequence.
	Message string `json:"message"`
	// Evidence is the data that the finding is based on, by name.
	Evidence map[string]any `json:"evidence,omitempty"`
	// Fix is the smallest action that resolves it, as a command or a patch.
	Fix string `json:"fix,omitempty"`
	URL string `json:"url,omitempty"`
	// Accepted is the user's reason for accepting a finding that would block.
	Accepted string `json:"accepted,omitempty"`
	// Expired is the day until which the user had accepted the finding, if that day has passed; the finding blocks
	// again.
	Expired string `json:"expired,omitempty"`
}

// NotChecked records that a check lacked its evidence: without data, a check never passes.
type NotChecked struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// Result is the complete result of a preflight run.
type Result struct {
	Summary    Summary      `json:"summary"`
	Findings   []Finding    `json:"findings"`
	NotChecked []NotChecked `json:"notChecked"`
	// Networks are the installed networks.
	Networks []Network `json:"networks,omitempty"`
	// Addresses are those of pods, if the load was asked for.
	Addresses []cluster.Addresses `json:"addresses,omitempty"`
}

// Network is an installed network, as far as it is known. Agent is empty if no workload in the cluster runs it.
// Problems describe errors and incomplete changes.
type Network struct {
	Name     string   `json:"name"`
	Version  string   `json:"version,omitempty"`
	Agent    string   `json:"agent,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

// Summary counts.
type Summary struct {
	Block      int `json:"block"`
	Warn       int `json:"warn"`
	Info       int `json:"info"`
	NotChecked int `json:"notChecked"`
}

// Blocks reports whether a finding that was not accepted stops the change.
func (r Result) Blocks() bool { return r.Summary.Block > 0 }

// NewResult counts findings and keeps them in the order given. An accepted blocker counts as a warning.
func NewResult(findings []Finding, notChecked []NotChecked) Result {
	result := Result{Findings: findings, NotChecked: notChecked}
	result.Summary.NotChecked = len(notChecked)
	for _, f := range findings {
		switch {
		case f.Severity == Block && f.Accepted == "":
			result.Summary.Block++
		case f.Severity == Info:
			result.Summary.Info++
		default:
			result.Summary.Warn++
		}
	}
	return result
}
