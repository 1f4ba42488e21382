package kind

import (
	"fmt"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

// RollsOut says whether a change is the rollout of a flag.
func RollsOut(change v1alpha1.ChangeSpec) bool { return change.Flag != "" || change.Dataplane != "" }

// Rollout says which flag gets which value.
type Rollout struct {
	Flag string `json:"flag"`
	// Value is the cluster's at the end; empty where that stays as it is.
	Value string `json:"value"`
	// From and To are the data planes before and after.
	From string `json:"from"`
	To   string `json:"to"`
	// Says is what Felix says in its log of a flag that is not about the data plane; From and To are the same then.
	Says string `json:"says,omitempty"`
	// Scoped are the nodes that have a configuration of their own already, which is to stay.
	Scoped []string `json:"scoped,omitempty"`
	// Env is the variable of the agents' DaemonSet that holds the flag, and Was its value before; empty for
	// FelixConfigurations.
	Env string `json:"env,omitempty"`
	Was string `json:"was,omitempty"`
	// Origin is the flag of a flag set that says what every node gets; nil where all get Value. From and To are empty
	// then.
	Origin *Origin `json:"origin,omitempty"`
}

// Origin is a flag that was evaluated for every node when the plan was made, once: whatever becomes of its source, a
// plan means the same whenever it is run. By which algorithm nodes were dealt into buckets, the plan's Flags say.
type Origin struct {
	// Source is where the flag came from, as a user writes it but without a password, and Flag its key there.
	Source string `json:"source"`
	Flag   string `json:"flag"`
	// Digest is that of the flag set; empty where a server evaluated it.
	Digest string `json:"digest,omitempty"`
	// Turns are what every node has before and after.
	Turns map[string]Turn `json:"turns"`
}

// Turn is what a node has before and after.
func (r *Rollout) Turn(node string) (turn Turn, known bool) {
	if r.Origin != nil {
		turn, known = r.Origin.Turns[node]
		return turn, known
	}
	turn = Turn{Own: r.Value, Value: r.Value, From: r.From, To: r.To, Says: r.Says}
	if r.Env != "" {
		turn.Was = r.Was
	}
	return turn, true
}

// Setting says what is set, as in "nftablesMode=Enabled".
func (r *Rollout) Setting() string {
	if r.Origin != nil {
		return r.Flag + " by the flag " + r.Origin.Flag + " of " + r.Origin.Source
	}
	return r.Flag + "=" + r.Value
}

// String names it, as in "nftablesMode=Enabled (iptables to nftables)".
func (r *Rollout) String() string {
	if r.From == r.To {
		return r.Setting()
	}
	return r.Setting() + " (" + r.From + " to " + r.To + ")"
}

// Words say the data planes, or the flag itself where its rules stay in theirs.
func (r *Rollout) Words(string) (from, to string) {
	from, to = r.From, r.To
	if r.From == r.To {
		from, to = "its former "+r.Flag, r.String()
	}
	if r.Origin != nil {
		to = r.Origin.Flag
	}
	return from, to
}

// Ends add that to the networks.
func (r *Rollout) Ends(source, target cni.Installation) (from, to string) {
	return ends(r, "in", source, target)
}

// InPlace is true: agents start again, and pods stay.
func (r *Rollout) InPlace() bool { return true }

// Exempts is true.
func (r *Rollout) Exempts() bool { return true }

// Turn is what one node has of a flag before and after.
type Turn struct {
	// Own is the value in the node's own object after, and Was before; nil for none. They are the same where the node
	// stays as it is. Of a flag in the environment of agents they are what the node's agent has there.
	Own any `json:"own,omitempty"`
	Was any `json:"was,omitempty"`
	// Value is what it has then, from wherever.
	Value string `json:"value"`
	// From and To are the data planes (step.IPTables, step.NFTables) before and after; the same where the flag is about
	// something else, and empty where nothing is known of the network's rules: then what the agent says is all that is
	// asked for.
	From string `json:"from"`
	To   string `json:"to"`
	// Says and Said are what the agent says of its parameter after and before.
	Says string `json:"says,omitempty"`
	Said string `json:"said,omitempty"`
}

// Moves says whether the node's rules move from one data plane to the other.
func (t Turn) Moves() bool { return t.From != t.To }

// Changes says whether the node's own value is another afterwards.
func (t Turn) Changes() bool { return !Same(t.Own, t.Was) }

// Same compares values as objects of networks hold them: texts, numbers and truth values, or nil for none.
func Same(a, b any) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	if one, text := a.(string); text { // what most are
		if other, text := b.(string); text {
			return one == other
		}
	}
	return fmt.Sprint(a) == fmt.Sprint(b)
}

// Origin is the flag of a flag set that says what every node gets; nil where no flag set does.
func (p *Plan) Origin() *Origin {
	if p.Rollout == nil {
		return nil
	}
	return p.Rollout.Origin
}

// MovesRules says whether rules move from one data plane to another on any node.
func (p *Plan) MovesRules() bool {
	if p.Rollout == nil {
		return false
	}
	if origin := p.Rollout.Origin; origin != nil {
		for _, turn := range origin.Turns {
			if turn.Moves() {
				return true
			}
		}
	}
	return p.Rollout.From != p.Rollout.To
}
