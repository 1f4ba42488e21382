package rollout

import (
	"fmt"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/setting"
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
	// Kernel is what was seen of the node's rules; nil for flags that are about something else.
	Kernel *step.Attestation `json:"kernel,omitempty"`
	// Seen is what shows on the node of the wanted value, besides rules.
	Seen []string `json:"seen,omitempty"`
	// Drift says in what they differ; nothing when they do not.
	Drift []string `json:"drift,omitempty"`
	// Expected is how the wanted value shows.
	Expected Expected `json:"-"`
}

// Expected is how a value shows on a node.
type Expected struct {
	// Parameter is what the agent calls the flag in its log, and Says what it says of it; empty where it does not.
	Parameter, Says string
	// Agent is whose log that is; nil where the agent does not say.
	Agent *Agent
	// Plane is the data plane that the value stands for; empty for flags that are about something else.
	Plane string
	// Proofs are what can be looked for on the node.
	Proofs []setting.Proof
}

// Agent picks an agent's pods, and names the container that logs.
type Agent struct{ Namespace, Selector, Container string }

// Watched is how long the counters of a node are watched for an attestation.
const Watched = 3 * time.Second

// Judge fills in the drift. said is what the agent said, as it says it; facts are the node's, which may be nil where
// there is nothing to look for.
func (a *Attestation) Judge(said string, facts *cluster.NodeFacts) {
	say := func(holds bool, format string, args ...any) {
		if holds {
			a.Drift = append(a.Drift, fmt.Sprintf(format, args...))
		}
	}
	say(said == "" && a.Expected.Parameter != "",
		"the agent does not say what it runs with: its log does not go back to its start")
	say(said != "" && !strings.EqualFold(said, a.Expected.Says), "the agent runs with %s", a.Agent)
	if k, plane := a.Kernel, a.Expected.Plane; k != nil {
		say(k.Kernel != plane, "the kernel has rules in %s, not in %s alone", k.Kernel, plane)
		say(k.Kernel == plane && plane == step.NFTables && k.Sets > 0, "%d ipsets of iptables are left", k.Sets)
		say(len(k.Bare) > 0, "there are no rules for %s", strings.Join(k.Bare, ", "))
	}
	for _, proof := range a.Expected.Proofs {
		there, wrong := proof.Look(a.Wanted, facts)
		a.Seen, a.Drift = append(a.Seen, there...), append(a.Drift, wrong...)
	}
}

// Evidence is one line for people.
func (a *Attestation) Evidence() string {
	k := a.Kernel
	switch {
	case k == nil && len(a.Seen) > 0:
		return strings.Join(a.Seen, ", ")
	case k == nil && a.AgentAt != "":
		return "said at " + a.AgentAt
	case k == nil && a.Agent != "":
		return "said in its log"
	case k == nil:
		return "nothing"
	}
	where := fmt.Sprintf("%d chains, %d ipsets", k.Chains, k.Sets)
	if len(k.Tables) > 0 {
		where = "table " + strings.Join(k.Tables, ", ")
		if k.Chains > 0 {
			where += fmt.Sprintf(" and %d chains of iptables", k.Chains)
		}
	}
	return fmt.Sprintf("%s, rules for %d of %d pods; in %s %d packets passed, %d refused",
		where, k.Pods-len(k.Bare), k.Pods, Watched, k.Passed, k.Refused)
}
