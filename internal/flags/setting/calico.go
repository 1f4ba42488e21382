package setting

import (
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/felix"
)

// ofFelix makes a knob for every parameter of a release of Felix.
func ofFelix(table *felix.Table) []*Knob {
	var knobs []*Knob
	for i := range table.Parameters {
		knobs = append(knobs, ofParameter(table, &table.Parameters[i]))
	}
	return knobs
}

// felixLive is the only user-facing parameter that Felix applies without a restart.
const felixLive = "HealthTimeoutOverrides"

func ofParameter(table *felix.Table, p *felix.Parameter) *Knob {
	k := &Knob{
		Component: "calico", Name: p.Field, Aliases: []string{p.Variable()}, Title: p.About,
		Type: typeOf(p), Values: p.Words(), Takes: strings.ReplaceAll(p.Schema, "`", ""),
		Default: p.Default, felix: p, AnyCase: true,
		BadValue: "Felix uses the default, and reports that only in its log",
		Proofs: []Proof{{How: "calico-node's log, after \"Configuration value changed; change DOES require " +
			"Felix to restart\" and the restart that follows it, has no \"Replacing invalid value\" for " + p.Name}},
		Rollback: []string{"remove it from the narrowest place first: node.NODE, then the selector, then default; " +
			"each removal restarts Felix on the nodes where the value was in effect"},
		Sources: []string{"github.com/projectcalico/calico " + table.Release + " felix/docs/config-params.json, " +
			"felix/config/config_params.go, felix/daemon/daemon.go (handledConfigChanges)"},
	}
	if p.Field == "" {
		k.Name = p.Name
	}
	if p.Fatal {
		k.BadValue = "Felix exits on every node that the value applies to, and again after every restart"
	}
	effect := Restart
	if p.Name == felixLive {
		effect = Live
	}
	const api = cluster.CalicoStored
	if p.Field != "" && !p.Local {
		path := "spec." + p.Field
		k.Places = append(k.Places,
			Place{Name: "FelixConfiguration default", APIVersion: api, Kind: "FelixConfiguration",
				Object: "default", Path: path, Scope: Cluster, Effect: effect, Trigger: Itself,
				Note: "every Felix in the cluster restarts within the same second"},
			Place{Name: "FelixConfiguration with spec.nodeSelector",
				APIVersion: api, Kind: "FelixConfiguration", Path: path, SelectorPath: "spec.nodeSelector",
				Scope: Selector, Effect: effect, Trigger: Itself, Since: "v3.32",
				Note: "if two match a node, only the older one applies there, as a whole"},
			Place{Name: "FelixConfiguration node.NODE", APIVersion: api, Kind: "FelixConfiguration",
				Object: "node.NODE", Path: path, Scope: Node, Effect: effect, Trigger: Itself})
	}
	k.Places = append(k.Places,
		Place{Name: "/etc/calico/felix.cfg in the container",
			Scope: Node, Effect: Restart, Trigger: ByHand, Note: p.Name + " = value"},
		Place{Name: "environment of calico-node", APIVersion: "apps/v1", Kind: "DaemonSet",
			Object: "calico-node", Namespace: "kube-system", Container: "calico-node", Env: p.Variable(),
			Scope: Cluster, Effect: Recreate, Trigger: Rollout,
			Note: "silently overrides every FelixConfiguration; with the operator the namespace is calico-system, " +
				"and the operator removes variables that it did not set"})
	return k
}

// Said returns how the agent of Calico or Cilium logs a value when it starts, and under which name. It is not ok if the
// log does not show the value: for settings that are not parameters of the agent, for structures, and for the log
// levels, since an agent that logs less than Info does not log its parameters.
func (k *Knob) Said(value string) (parameter, text string, ok bool) {
	if k.Component == "cilium" {
		return k.saidByCilium(value)
	}
	if k.felix == nil {
		return "", "", false
	}
	switch k.Type {
	case Bool:
		text = truth(value)
	case Integer, Enum:
		text = value
	case Duration:
		d, err := k.duration(value)
		if err != nil {
			return "", "", false
		}
		text = strconv.FormatInt(int64(d), 10) // as Go writes it with %#v
	}
	return k.felix.Name, text, text != "" && !strings.HasPrefix(k.felix.Name, "LogSeverity")
}

// Heard converts a value as the agent logs it into the form in which people write it.
func (k *Knob) Heard(text string) string {
	if k.Component == "cilium" {
		return strings.Trim(text, "'")
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && k.Type == Duration {
		return time.Duration(n).String()
	}
	return text
}

// typeOf returns the type that is closest to a parameter's schema.
func typeOf(p *felix.Parameter) Type {
	switch {
	case strings.HasPrefix(p.Schema, "Boolean"):
		return Bool
	case p.Words() != nil:
		return Enum
	case strings.Contains(p.Schema, "key=value") || strings.Contains(p.Schema, "<key>="):
		return Map
	case strings.HasPrefix(p.Schema, "Integer"):
		return Integer
	case strings.Contains(p.Schema, "econds (floating point)"):
		return Duration
	case p.Kind == "array" || strings.HasPrefix(p.Schema, "Comma"):
		return List
	}
	return Text
}
