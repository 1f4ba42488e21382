package setting

import (
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/flags/felix"
)

// ofFelix are the parameters of a release of Felix.
func ofFelix(table *felix.Table) []*Knob {
	var knobs []*Knob
	for i := range table.Parameters {
		knobs = append(knobs, ofParameter(table, &table.Parameters[i]))
	}
	return knobs
}

// felixLive is the only parameter a user sets that Felix takes without starting again.
const felixLive = "HealthTimeoutOverrides"

func ofParameter(table *felix.Table, p *felix.Parameter) *Knob {
	k := &Knob{
		Component: "calico", Name: p.Field, Aliases: []string{p.Variable()}, Title: p.About, Type: typeOf(p), Values: p.Words(),
		Takes: strings.ReplaceAll(p.Schema, "`", ""), Default: p.Default, felix: p, AnyCase: true,
		BadValue: "Felix takes the default, and says so in its log alone",
		Proofs: []Proof{{How: "calico-node's log, after \"Configuration value changed; change DOES require Felix to restart\" and the start " +
			"that follows it: no \"Replacing invalid value\" for " + p.Name}},
		Rollback: []string{"the narrowest place first: node.NODE, then the selector, then default; each removal restarts Felix where it counted"},
		Sources:  []string{"github.com/projectcalico/calico " + table.Release + " felix/docs/config-params.json, felix/config/config_params.go, felix/daemon/daemon.go (handledConfigChanges)"},
	}
	if p.Field == "" {
		k.Name = p.Name
	}
	if p.Fatal {
		k.BadValue = "Felix ends, on every node that the value is for, and does so again after every start"
	}
	effect := Restart
	if p.Name == felixLive {
		effect = Live
	}
	const api = cluster.CalicoStored
	if p.Field != "" && !p.Local {
		path := "spec." + p.Field
		k.Places = append(k.Places,
			Place{Name: "FelixConfiguration default", APIVersion: api, Kind: "FelixConfiguration", Object: "default", Path: path,
				Scope: Cluster, Effect: effect, Trigger: Itself, Note: "every Felix of the cluster starts again in the same second"},
			Place{Name: "FelixConfiguration with spec.nodeSelector", APIVersion: api, Kind: "FelixConfiguration", Path: path, SelectorPath: "spec.nodeSelector",
				Scope: Selector, Effect: effect, Trigger: Itself, Since: "v3.32",
				Note: "of two that match a node the older counts as a whole, and the other does nothing there"},
			Place{Name: "FelixConfiguration node.NODE", APIVersion: api, Kind: "FelixConfiguration", Object: "node.NODE", Path: path,
				Scope: Node, Effect: effect, Trigger: Itself})
	}
	k.Places = append(k.Places,
		Place{Name: "/etc/calico/felix.cfg in the container", Scope: Node, Effect: Restart, Trigger: Nobody, Note: p.Name + " = value"},
		Place{Name: "environment of calico-node", APIVersion: "apps/v1", Kind: "DaemonSet", Object: "calico-node", Namespace: "kube-system",
			Container: "calico-node", Env: p.Variable(), Scope: Cluster, Effect: Recreate, Trigger: Rollout,
			Note: "beats every FelixConfiguration in silence; with the operator the namespace is calico-system, and the operator takes foreign variables out again"})
	return k
}

// Said is how the agent of Calico or Cilium writes a value into its log when it starts, and under which name. It is not ok where
// the log does not tell: what is no parameter of the agent, what it holds as a structure, and anything once it logs less than Info.
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

// Heard is what the agent said of a value, as people write it.
func (k *Knob) Heard(text string) string {
	if k.Component == "cilium" {
		return strings.Trim(text, "'")
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && k.Type == Duration {
		return time.Duration(n).String()
	}
	return text
}

// typeOf is the nearest type of a parameter.
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
