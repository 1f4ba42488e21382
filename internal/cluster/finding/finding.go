// Package finding says what a check says: findings as data, for text, JSON, SARIF and JUnit alike.
package finding

// Severity ranks a finding.
type Severity string

// Block stops a change, Warn is for a person to read first, Info is worth knowing.
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

// String is how people name a subject: kind/namespace/name.
func (s Subject) String() string {
	if s.Namespace == "" {
		return s.Kind + "/" + s.Name
	}
	return s.Kind + "/" + s.Namespace + "/" + s.Name
}

// Finding is one thing that a check found.
type Finding struct {
	// ID is stable, such as "cidr/overlap".
	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Subject  Subject  `json:"subject"`
	// Message is one sentence: what is, and what follows.
	Message string `json:"message"`
	// Evidence is what the finding rests on, by name.
	Evidence map[string]any `json:"evidence,omitempty"`
	// Fix is the smallest thing that makes it go away, as a command or a patch.
	Fix string `json:"fix,omitempty"`
	URL string `json:"url,omitempty"`
	// Accepted is the user's reason, where the user accepted a finding that would block.
	Accepted string `json:"accepted,omitempty"`
	// Expired says until when the user had accepted it, where that day has passed: it counts again.
	Expired string `json:"expired,omitempty"`
}

// NotChecked says that a check lacked its evidence: no data is never a pass.
type NotChecked struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// Result is everything that a preflight run says.
type Result struct {
	Summary    Summary      `json:"summary"`
	Findings   []Finding    `json:"findings"`
	NotChecked []NotChecked `json:"notChecked"`
	// Networks are those that are installed.
	Networks []Network `json:"networks,omitempty"`
}

// Network is an installed network, as far as it is known. Agent is empty where nothing in the cluster runs for it; Problems say what is wrong
// or half done with it.
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

// Blocks reports whether anything that was not accepted stops the change.
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
