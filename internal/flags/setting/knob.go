// Package setting knows what the settings of networks do to a node: Calico, Cilium, Antrea, flannel, Weave and kube-proxy. Of each
// it says what values it takes, where it is set and which place beats which, what happens when it changes (nothing, the
// agent starts again, pods have to be made anew, the agent refuses), how to see that it took effect, what it couples
// with, and in which order it is taken back.
//
// Felix' parameters come from the generated table of internal/flags/felix. Everything else lies in catalogue/, with the source
// of every fact. The catalogue is data: writing a knob means making edits (Write), which others carry out.
package setting

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/flags/felix"
)

// Knob is one setting.
type Knob struct {
	// Component is who reads it: "calico", "cilium", "antrea", "flannel", "weave" or "kube-proxy"; Name is as it is written there.
	Component string `json:"component"`
	Name      string `json:"name"`
	// Aliases are other names that people use, such as that of an environment variable.
	Aliases []string `json:"aliases,omitempty"`
	Title   string   `json:"title"`
	Type    Type     `json:"type"`
	// Values are those that an Enum takes. A knob of any other type takes what Takes says, in words.
	Values []string `json:"values,omitempty"`
	Takes  string   `json:"takes,omitempty"`
	// AnyCase is true where an Enum's values are taken in any case.
	AnyCase bool   `json:"anyCase,omitempty"`
	Default string `json:"default,omitempty"`
	// Since and Before are releases: the first that has it, and the first that has it no longer.
	Since  string `json:"since,omitempty"`
	Before string `json:"before,omitempty"`
	// BadValue says what the component does with a value that it does not take.
	BadValue string `json:"badValue,omitempty"`
	// Places are where it is set, the weakest first: a later one beats the earlier ones.
	Places []Place `json:"places"`
	// Process is what reads it, where that is not the component's main one.
	Process string `json:"process,omitempty"`
	// Effect is that of all places, where the catalogue says so of a parameter of Felix.
	Effect Effect `json:"effect,omitempty"`
	// Apart says why nodes with different values get along, and pods with one that changes; empty where that is not known.
	// It is written down of Cilium's alone.
	Apart string `json:"apart,omitempty"`
	// Refuses says when the component does not start with a new value; empty when it always does.
	Refuses string `json:"refuses,omitempty"`
	// Proofs show that a value took effect.
	Proofs  []Proof    `json:"proofs,omitempty"`
	Couples []Coupling `json:"couples,omitempty"`
	// Rollback is the order in which it is taken back.
	Rollback []string `json:"rollback,omitempty"`
	// Sources say where all of this is from: files of the upstream repository, pages, or what was seen in the lab.
	Sources []string `json:"sources"`

	// felix is set for a parameter of Felix.
	felix *felix.Parameter
}

// ID is how a knob is named without doubt: "calico/nftablesMode".
func (k *Knob) ID() string { return k.Component + "/" + k.Name }

// Type is what kind of value a knob takes.
type Type string

// The types. A List is written as its elements with commas between, a Map as pairs k=v with commas between, a Duration
// as 90s, unless Takes says otherwise.
const (
	Bool     Type = "bool"
	Enum     Type = "enum"
	Integer  Type = "integer"
	Number   Type = "number"
	Duration Type = "duration"
	Text     Type = "text"
	List     Type = "list"
	Map      Type = "map"
)

// Scope is what one place sets a knob for.
type Scope string

// The scopes, from the widest to the narrowest.
const (
	Cluster  Scope = "cluster"
	Pool     Scope = "pool" // the addresses of one IPPool, wherever they are used
	Selector Scope = "selector"
	Node     Scope = "node"
)

// Effect is what has to happen on a node before a new value is in force.
type Effect string

// The effects.
const (
	// Live: the running process takes it.
	Live Effect = "live"
	// Restart: the process ends and starts again within its pod.
	Restart Effect = "restart"
	// Recreate: the agent's pod has to be made anew.
	Recreate Effect = "recreate"
	// Workloads: the pods of users have to be made anew (drain the node).
	Workloads Effect = "workloads"
)

// Trigger is who makes that happen, which decides how many nodes it hits at once.
type Trigger string

// The triggers.
const (
	// Itself: every process that sees the change acts, all at the same moment.
	Itself Trigger = "itself"
	// Rollout: the DaemonSet's controller replaces pods, at most maxUnavailable at once; with OnDelete nobody does.
	Rollout Trigger = "rollout"
	// Nobody: nothing happens until somebody restarts the agents, which may be months later.
	Nobody Trigger = "nobody"
)

// Place is where a knob can be set.
type Place struct {
	// Name is short: "FelixConfiguration default".
	Name string `json:"name"`
	// APIVersion, Kind, Namespace and Object name the object. Object holds NODE where every node has its own, and is
	// empty for one of any name.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Object     string `json:"object,omitempty"`
	// Path is the field, with dots between ("spec.nftablesMode"). Of a ConfigMap whose key holds a document, Inside is
	// the field within that. Of a DaemonSet, Env is the variable and Container its container; Argument is a command line
	// argument of it.
	Path      string `json:"path,omitempty"`
	Inside    string `json:"inside,omitempty"`
	Container string `json:"container,omitempty"`
	Env       string `json:"env,omitempty"`
	Argument  string `json:"argument,omitempty"`
	// SelectorPath is where the object says for which nodes it is.
	SelectorPath string  `json:"selectorPath,omitempty"`
	Scope        Scope   `json:"scope"`
	Effect       Effect  `json:"effect"`
	Trigger      Trigger `json:"trigger"`
	Since        string  `json:"since,omitempty"`
	// Note says what people stumble over here.
	Note string `json:"note,omitempty"`
}

// Proof is one way to see that a value took effect. Where more than How is filled in, a machine can look.
type Proof struct {
	// Value is the value that it proves; empty for any.
	Value string `json:"value,omitempty"`
	// How is for people: a command, or what to look at.
	How string `json:"how"`
	// Tables are nft tables ("ip calico") that have to be there, NoTables those that must not.
	Tables   []string `json:"tables,omitempty"`
	NoTables []string `json:"noTables,omitempty"`
	// Where are other knobs' values that it holds beside; on a node with others it says nothing.
	Where []Setting `json:"where,omitempty"`
	// Chains are prefixes of iptables chains ("cali-") that have to be there, NoChains those that must not.
	Chains   []string `json:"chains,omitempty"`
	NoChains []string `json:"noChains,omitempty"`
	// Backend is the iptables, nft or legacy, that alone has Calico's chains.
	Backend string `json:"backend,omitempty"`
	// Links are interfaces that have to be there, NoLinks those that must not.
	Links   []string `json:"links,omitempty"`
	NoLinks []string `json:"noLinks,omitempty"`
	// MTU, Port and VNI name an interface of which that is the value.
	MTU  string `json:"mtu,omitempty"`
	Port string `json:"port,omitempty"`
	VNI  string `json:"vni,omitempty"`
	// Routes are protocols, such as "bird", of which there have to be routes, NoRoutes those of which there must not.
	Routes   []string `json:"routes,omitempty"`
	NoRoutes []string `json:"noRoutes,omitempty"`
	// Sysctls are those that have a value.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// BIRD is "runs", "meets" (and its sessions are established) or "gone".
	BIRD string `json:"bird,omitempty"`
	// Metric is what the agent exposes, Log a part of a line of its log.
	Metric string `json:"metric,omitempty"`
	Log    string `json:"log,omitempty"`
}

// Coupling is another knob, or something else, that this one goes with.
type Coupling struct {
	// With is the ID of the other knob, or the name of what is no knob.
	With string `json:"with"`
	// When and Needs are values: with this knob at When, the other has to be one of Needs, and must not be one of Not.
	// Where both are empty, Why is for people alone.
	When  string   `json:"when,omitempty"`
	Needs []string `json:"needs,omitempty"`
	Not   []string `json:"not,omitempty"`
	Why   string   `json:"why"`
}

// ProofsOf are the proofs of one value, those of any value among them.
func (k *Knob) ProofsOf(value string) []Proof {
	var found []Proof
	for _, p := range k.Proofs {
		if p.Value == "" || strings.EqualFold(p.Value, value) {
			found = append(found, p)
		}
	}
	return found
}

// Check says why the component would not take a text; nil when it would, or when only the node can tell. The structures
// of Felix' fields are taken as JSON.
func (k *Knob) Check(text string) error {
	switch {
	case k.felix == nil:
		return k.checkText(text)
	case k.felix.Kind == "array" || k.felix.Kind == "object":
		if strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{") {
			if !json.Valid([]byte(text)) {
				return errors.New("it must be JSON, or a list with commas")
			}
			return nil
		}
	case k.Type == Duration:
		if _, err := k.duration(text); err == nil {
			return nil
		}
	}
	return k.felix.Check(text)
}

// duration reads a duration with a unit, or the bare number that Felix takes elsewhere than in its fields.
func (k *Knob) duration(text string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil && k.felix != nil {
		if n *= float64(k.unit()); !(math.Abs(n) < math.MaxInt64) {
			return 0, errors.New("it is longer than 292 years")
		}
		return time.Duration(n), nil
	}
	return time.ParseDuration(text)
}

// Error is why a knob cannot be found or set.
type Error struct {
	Message string
	// Advice is what to do instead.
	Advice string
}

func (e *Error) Error() string { return e.Message }

// Hint says what to try.
func (e *Error) Hint() string { return e.Advice }

func fail(advice, format string, args ...any) error {
	return &Error{fmt.Sprintf(format, args...), advice}
}
