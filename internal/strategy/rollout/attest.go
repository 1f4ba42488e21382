package rollout

import (
	"fmt"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/step"
)

// Attestation is what a node has of a flag: what is wanted, what its agent reports, and what its kernel shows.
type Attestation struct {
	Node string `json:"node"`
	Flag string `json:"flag"`
	// Wanted is the value that is in force by the API, and By where it is written; empty for the default.
	Wanted string `json:"wanted"`
	By     string `json:"by,omitempty"`
	// Agent is the value that the agent said it runs with, AgentAt when; empty when it does not say.
	Agent   string `json:"agent,omitempty"`
	AgentAt string `json:"agentAt,omitempty"`
	// Kernel is what was seen on the node.
	Kernel step.Attestation `json:"kernel"`
	// Drift says in what they differ; nothing when they do not.
	Drift []string `json:"drift,omitempty"`
}

// Watched is how long the counters of a node are watched for an attestation.
const Watched = 3 * time.Second

// Judge fills in the drift. plane is the data plane that the wanted value stands for.
func (a *Attestation) Judge(plane string) {
	say := func(holds bool, format string, args ...any) {
		if holds {
			a.Drift = append(a.Drift, fmt.Sprintf(format, args...))
		}
	}
	say(a.Agent == "", "the agent does not say what it runs with: its log does not go back to its start")
	say(a.Agent != "" && !strings.EqualFold(a.Agent, a.Wanted), "the agent runs with %s", a.Agent)
	say(a.Kernel.Kernel != plane, "the kernel has rules in %s, not in %s alone", a.Kernel.Kernel, plane)
	say(a.Kernel.Kernel == plane && plane == step.NFTables && a.Kernel.Sets > 0, "%d ipsets of iptables are left", a.Kernel.Sets)
	say(len(a.Kernel.Bare) > 0, "there are no rules for %s", strings.Join(a.Kernel.Bare, ", "))
}

// Evidence is one line for people.
func (a *Attestation) Evidence() string {
	k := a.Kernel
	where := fmt.Sprintf("%d chains, %d ipsets", k.Chains, k.Sets)
	if len(k.Tables) > 0 {
		where = "table " + strings.Join(k.Tables, ", ")
		if k.Chains > 0 {
			where += fmt.Sprintf(" and %d chains of iptables", k.Chains)
		}
	}
	return fmt.Sprintf("%s, rules for %d of %d pods; in %s %d packets passed, %d refused", where, k.Pods-len(k.Bare), k.Pods, Watched, k.Passed, k.Refused)
}
