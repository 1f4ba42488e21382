package setting

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/theseus-cni/theseus/internal/cluster"
)

//go:generate go -C ../../lab run ./knobtables -o ../internal/flags/setting/cilium.json cilium

//go:embed cilium.json
var ciliumTable []byte

// ciliumFlag is a flag of Cilium's agent or, where Local is true, of its operator.
type ciliumFlag struct {
	First, Last    int
	Name, Kind     string
	Values         []string
	Default, About string
	Local          bool
}

type ciliumTables struct {
	Releases   []struct{ Release string }
	Parameters []ciliumFlag
}

var loadCilium = sync.OnceValue(func() ciliumTables {
	var tables ciliumTables
	if err := json.Unmarshal(ciliumTable, &tables); err != nil {
		panic(fmt.Sprintf("the table of Cilium's flags: %v", err)) // it is built in, and a test reads it
	}
	return tables
})

// CiliumAgent is the process, and the container, that reads nearly all of Cilium's flags.
const CiliumAgent = "cilium-agent"

// ofCilium makes a knob for every flag of a version; the flags are also the keys of cilium-config. For a version
// without a table it uses the table of the newest earlier release.
func ofCilium(version string) (knobs []*Knob, release string) {
	tables := loadCilium()
	at, wanted := 0, cluster.Minor(version)
	for i, r := range tables.Releases {
		if wanted == nil || wanted.AtLeast(cluster.Minor(r.Release)) {
			at = i
		}
	}
	release = tables.Releases[at].Release
	for i := range tables.Parameters {
		if f := &tables.Parameters[i]; f.First <= at && at <= f.Last {
			knobs = append(knobs, ofFlag(f, release))
		}
	}
	return knobs, release
}

func ofFlag(f *ciliumFlag, release string) *Knob {
	k := &Knob{
		Component: "cilium", Name: f.Name, Title: f.About, Type: typeOfFlag(f.Kind),
		Default: f.Default, Process: CiliumAgent, BadValue: "the agent exits if it cannot parse the value",
		Proofs: []Proof{{How: "the agent's log, which lists every flag at startup: --" + f.Name + "='VALUE'"},
			{How: "cilium_drift_checker_config_delta is 0 (since v1.17), or cilium-dbg config -a on the node",
				Metric: "cilium_drift_checker_config_delta"}},
		Rollback: []string{"remove it from the CiliumNodeConfig, or set it back in cilium-config, then " +
			"restart the agents node by node"},
		Sources: []string{"github.com/cilium/cilium " + release + " Documentation/cmdref",
			"github.com/cilium/cilium Documentation/configuration/per-node-config.rst"},
	}
	if len(f.Values) > 0 {
		k.Takes = "according to its help: " + strings.Join(f.Values, ", ") // the help does not always list all values
	}
	k.Places = []Place{{Name: "ConfigMap cilium-config", APIVersion: "v1", Kind: "ConfigMap",
		Namespace: "kube-system", Object: "cilium-config", Path: "data." + f.Name, Scope: Cluster,
		Effect: Recreate, Trigger: ByHand,
		Note: "takes effect only when the agents are restarted; helm upgrade restarts them " +
			"only with rollOutCiliumPods"}}
	if f.Local {
		k.Process = "cilium-operator"
		return k
	}
	k.Places = append(k.Places,
		Place{Name: "CiliumNodeConfig", APIVersion: "cilium.io/v2", Kind: "CiliumNodeConfig", Namespace: "kube-system",
			Path: "spec.defaults." + f.Name, SelectorPath: "spec.nodeSelector", Scope: Selector,
			Effect: Recreate, Trigger: ByHand,
			Note: "if several match a node, the last by name applies; keys that the agent does " +
				"not allow there are ignored"},
		Place{Name: "environment of cilium-agent", APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-system",
			Object: "cilium", Container: CiliumAgent,
			Env: "CILIUM_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")), Scope: Cluster, Effect: Recreate,
			Trigger: Rollout, Note: "silently overrides cilium-config and every CiliumNodeConfig"},
		Place{Name: "argument of cilium-agent", APIVersion: "apps/v1", Kind: "DaemonSet", Namespace: "kube-system",
			Object: "cilium", Container: CiliumAgent, Argument: "--" + f.Name, Scope: Cluster,
			Effect: Recreate, Trigger: Rollout, Note: "silently overrides everything else"})
	return k
}

func typeOfFlag(kind string) Type {
	switch {
	case kind == "bool":
		return Bool
	case kind == "duration":
		return Duration
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return Integer
	case strings.HasPrefix(kind, "float"):
		return Number
	case kind == "strings":
		return List
	case kind == "map", kind == "stringToString":
		return Map
	}
	return Text
}
