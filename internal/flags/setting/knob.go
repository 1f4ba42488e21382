// Package setting knows what the settings of Calico, Cilium, Antrea, flannel, Weave and kube-proxy do to a node. For
// each setting it says which values it takes, where it is set and which place overrides which, what happens when it
// changes (nothing, the agent restarts, pods must be recreated, the agent refuses), how to verify that it took effect,
// which other settings it depends on, and in which order to revert it.
//
// Felix's parameters come from the generated table of internal/flags/felix. Everything else is in catalogue/, with the
// source of every fact. This package only computes edits (Write); its callers apply them.
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
	// Component reads the setting: "calico", "cilium", "antrea", "flannel", "weave" or "kube-proxy". Name is spelled as
	// it is there.
	Component string `json:"component"`
	Name      string `json:"name"`
	// Aliases are other names in use, such as the name of an environment variable.
	Aliases []string `json:"aliases,omitempty"`
	Title   string   `json:"title"`
	Type    Type     `json:"type"`
	// Values are the values of an Enum. For any other type, Takes describes the accepted values in words.
	Values []string `json:"values,omitempty"`
	Takes  string   `json:"takes,omitempty"`
	// AnyCase is true if an Enum's values are case-insensitive.
	AnyCase bool   `json:"anyCase,omitempty"`
	Default string `json:"default,omitempty"`
	// Since and Before are releases: the first that has the setting, and the first that no longer has it.
	Since  string `json:"since,omitempty"`
	Before string `json:"before,omitempty"`
	// BadValue says what the component does with a value that it does not accept.
	BadValue string `json:"badValue,omitempty"`
	// Places are where it can be set, the weakest first: a later one overrides the earlier ones.
	Places []Place `json:"places"`
	// Process reads the setting, if that is not the component's main process.
	Process string `json:"process,omitempty"`
	// Effect applies to all places, if the catalogue gives one for a parameter of Felix.
	Effect Effect `json:"effect,omitempty"`
	// MayDiffer says why it is safe that nodes have different values and that the value changes under running pods;
	// empty if that is not known. Only Cilium's settings have it.
	MayDiffer string `json:"apart,omitempty"`
	// Refuses says when the component does not start with a new value; empty if it always starts.
	Refuses string `json:"refuses,omitempty"`
	// Proofs show that a value took effect.
	Proofs  []Proof    `json:"proofs,omitempty"`
	Couples []Coupling `json:"couples,omitempty"`
	// Rollback lists the steps to revert it, in order.
	Rollback []string `json:"rollback,omitempty"`
	// Sources are the origins of these facts: files of the upstream repository, pages, or observations in the lab.
	Sources []string `json:"sources"`

	// felix is set for a parameter of Felix.
	felix *felix.Parameter
}

// ID is the unique name of a knob, such as "calico/nftablesMode".
func (k *Knob) ID() string { return k.Component + "/" + k.Name }

// Type is the type of a knob's value.
type Type string

// The types. Unless Takes says otherwise, a List is written as comma-separated elements, a Map as comma-separated pairs
// k=v, and a Duration as 90s.
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

// Scope is the set of nodes or addresses that a place applies to.
type Scope string

// The scopes, from the widest to the narrowest.
const (
	Cluster  Scope = "cluster"
	Pool     Scope = "pool" // the addresses of one IPPool, on any node
	Selector Scope = "selector"
	Node     Scope = "node"
)

// Effect is what must happen on a node before a new value takes effect.
type Effect string

// The effects.
const (
	// Live: the running process applies it.
	Live Effect = "live"
	// Restart: the process restarts within its pod.
	Restart Effect = "restart"
	// Recreate: the agent's pod must be recreated.
	Recreate Effect = "recreate"
	// Workloads: the pods of workloads must be recreated (drain the node).
	Workloads Effect = "workloads"
)

// Trigger is what causes the effect, which determines how many nodes are affected at once.
type Trigger string

// The triggers.
const (
	// Itself: every process that sees the change acts on it, all at the same time.
	Itself Trigger = "itself"
	// Rollout: the DaemonSet controller replaces pods, at most maxUnavailable at once; with OnDelete it does not.
	Rollout Trigger = "rollout"
	// ByHand: the agents take the value when they are restarted by hand or for another reason, which may be months
	// later.
	ByHand Trigger = "nobody"
)

// Place is where a knob can be set.
type Place struct {
	// Name is short: "FelixConfiguration default".
	Name string `json:"name"`
	// APIVersion, Kind, Namespace and Object name the object. Object contains NODE if every node has its own object,
	// and is empty if the object can have any name.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Object     string `json:"object,omitempty"`
	// Path is the field, separated by dots ("spec.nftablesMode"). If a ConfigMap's key holds a document, Inside is the
	// field within that document. For a DaemonSet, Env is an environment variable of Container, or Argument one of its
	// arguments.
	Path      string `json:"path,omitempty"`
	Inside    string `json:"inside,omitempty"`
	Container string `json:"container,omitempty"`
	Env       string `json:"env,omitempty"`
	Argument  string `json:"argument,omitempty"`
	// SelectorPath is the object's field that selects nodes.
	SelectorPath string  `json:"selectorPath,omitempty"`
	Scope        Scope   `json:"scope"`
	Effect       Effect  `json:"effect"`
	Trigger      Trigger `json:"trigger"`
	Since        string  `json:"since,omitempty"`
	// Note describes pitfalls of this place.
	Note string `json:"note,omitempty"`
}

// Proof is one way to verify that a value took effect. Fields other than How can be checked automatically.
type Proof struct {
	// Value is the value that it proves; empty for any.
	Value string `json:"value,omitempty"`
	// How is for people: a command, or what to inspect.
	How string `json:"how"`
	// Tables are nft tables ("ip calico") that must exist, NoTables those that must not.
	Tables   []string `json:"tables,omitempty"`
	NoTables []string `json:"noTables,omitempty"`
	// Where lists values of other knobs under which the proof is valid; on a node with different values it proves
	// nothing.
	Where []Setting `json:"where,omitempty"`
	// Chains are prefixes of iptables chains ("cali-") that must exist, NoChains those that must not.
	Chains   []string `json:"chains,omitempty"`
	NoChains []string `json:"noChains,omitempty"`
	// Backend is the only iptables backend, nft or legacy, that may have Calico's chains.
	Backend string `json:"backend,omitempty"`
	// Links are interfaces that must exist, NoLinks those that must not.
	Links   []string `json:"links,omitempty"`
	NoLinks []string `json:"noLinks,omitempty"`
	// MTU, Port and VNI name an interface that must have the knob's value as its MTU, port or VNI.
	MTU  string `json:"mtu,omitempty"`
	Port string `json:"port,omitempty"`
	VNI  string `json:"vni,omitempty"`
	// Routes are routing protocols, such as "bird", that must have routes, NoRoutes those that must not.
	Routes   []string `json:"routes,omitempty"`
	NoRoutes []string `json:"noRoutes,omitempty"`
	// Sysctls are the required values of sysctls.
	Sysctls map[string]string `json:"sysctls,omitempty"`
	// BIRD is "runs", "meets" (runs, and its sessions are established) or "gone".
	BIRD string `json:"bird,omitempty"`
	// Metric is a metric that the agent exposes, Log a part of a line of its log.
	Metric string `json:"metric,omitempty"`
	Log    string `json:"log,omitempty"`
}

// Coupling is another knob, or something else, that this knob must be consistent with.
type Coupling struct {
	// With is the ID of the other knob, or the name of something that is not a knob.
	With string `json:"with"`
	// When, Needs and Not are values: if this knob is When, the other must be one of Needs and must not be one of Not.
	// If Needs and Not are empty, the coupling is not checked and Why is only shown to people.
	When  string   `json:"when,omitempty"`
	Needs []string `json:"needs,omitempty"`
	Not   []string `json:"not,omitempty"`
	Why   string   `json:"why"`
}

// ProofsOf returns the proofs that apply to a value, including those for any value.
func (k *Knob) ProofsOf(value string) []Proof {
	var found []Proof
	for _, p := range k.Proofs {
		if p.Value == "" || strings.EqualFold(p.Value, value) {
			found = append(found, p)
		}
	}
	return found
}

// Check returns an error if the component would not accept a text. It returns nil if the component would, or if that
// can only be determined on the node. Structured fields of Felix are given as JSON.
func (k *Knob) Check(text string) error {
	switch {
	case k.felix == nil:
		return k.checkText(text)
	case k.felix.Kind == "array" || k.felix.Kind == "object":
		if strings.HasPrefix(text, "[") || strings.HasPrefix(text, "{") {
			if !json.Valid([]byte(text)) {
				return errors.New("it must be JSON, or a comma-separated list")
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

// duration parses a duration with a unit, or a bare number, which Felix accepts in the environment and in files.
func (k *Knob) duration(text string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil && k.felix != nil {
		if n *= float64(k.unit()); !(math.Abs(n) < math.MaxInt64) {
			return 0, errors.New("it is longer than 292 years")
		}
		return time.Duration(n), nil
	}
	return time.ParseDuration(text)
}

// Error says why a knob cannot be found or set.
type Error struct {
	Message string
	// Advice is the hint: what to do instead.
	Advice string
}

func (e *Error) Error() string { return e.Message }

// Hint returns the advice.
func (e *Error) Hint() string { return e.Advice }

func fail(advice, format string, args ...any) error {
	return &Error{fmt.Sprintf(format, args...), advice}
}
