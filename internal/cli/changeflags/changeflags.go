package changeflags

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/rollout"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cli/agentimage"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/slo"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/step"
)

// Flags are the flags that describe the requested change; --change reads the same from a document.
type Flags struct {
	file   string
	Spec   v1alpha1.ChangeSpec
	maxGap time.Duration
	bake   time.Duration
	probe  time.Duration
	budget string
	hook   time.Duration
	waves  []string
	agent  agentimage.Flags
	slo    slo.Flags
	accept []string
	// accepted is a file of accepted findings.
	accepted string
}

// Register adds the flags to a command.
func (c *Flags) Register(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&c.file, "change", "", "the whole change as a Change document; flags override it")
	flags.StringVar(&c.Spec.To, "to", "",
		"the new network, such as calico; the cluster's own network means an upgrade to the version of --manifest")
	flags.StringVar(&c.Spec.CNIVersion, "cni-version", "",
		"version of the new network; empty means the version that the manifest installs")
	flags.StringVar(&c.Spec.Manifest, "manifest", "",
		"file with the manifests of the new network, as you would apply them to a new cluster")
	flags.StringVar(&c.Spec.PodCIDR, "pod-cidr", "",
		"address range for recreated pods, separate from the present network's; adopted pods need none")
	flags.StringVar(&c.Spec.Strategy, "strategy", "",
		"recreate (pods are recreated, node by node), adopt (pods keep running), "+
			"surge (nodes are replaced), upgrade (another version of the same network) or mirror (a second "+
			"cluster serves meanwhile); empty: recreate if --pod-cidr is given, else adopt, which is refused if "+
			"pods cannot be adopted; adopt with --pod-cidr recreates the pods that cannot be adopted")
	flags.StringVar(&c.Spec.Dataplane, "dataplane", "",
		"switch the network in place to this data plane, node by node: iptables or nftables")
	flags.StringVar(&c.Spec.Pool, "pool", "",
		"CIDR: move Calico's pods to a new IPPool with this range, instead of the present one")
	flags.StringVar(&c.Spec.Encapsulation, "encapsulation", "", "change the encapsulation of Calico's pod traffic "+
		"between nodes: none, vxlan or vxlan-cross-subnet (VXLAN only between subnets)")
	flags.StringSliceVar(&c.waves, "waves", nil, "nodes per wave, such as 1,5,0 (0 means all that remain), or, for a "+
		"flag, shares of the nodes, such as 1%,10%,100%; empty: 1, 2, 4 and so on, the control plane last")
	flags.IntVar(&c.Spec.MaxParallel, "max-parallel", 0, fmt.Sprintf("how many nodes are changed at the same time, "+
		"from 1 to %d (default a twentieth of the cluster, at least %d)", step.MostAtOnce, step.FewAtOnce))
	flags.StringVar(&c.Spec.DomainLabel, "domain-label", "", "label that names the failure domain of a node; nodes "+
		"of different domains are never changed at the same time (default "+joint.DomainLabel("")+")")
	flags.DurationVar(&c.maxGap, "max-gap", 0, "longest gap that a gate allows on any path (default "+
		joint.DefaultMaxGap.String()+", for a flag "+rollout.DefaultMaxGap.String()+")")
	flags.Int64Var(&c.Spec.MaxLost, "max-lost", 0, "lost probes that a gate allows, over all paths since the "+
		"previous gate; an answer on a denied path is never allowed")
	flags.DurationVar(&c.bake, "bake", 0, "how long the paths are watched after each wave (default "+
		joint.DefaultBake.String()+", for a flag "+rollout.DefaultBake.String()+")")
	c.RegisterMeasuring(command)
	flags.StringArrayVar(&c.accept, "accept", nil, "ID=REASON: a finding that you have read and accept (repeatable)")
	flags.StringVar(&c.accepted, "accepted", "", "file of accepted findings, each with a reason and a last day")
}

// RegisterMeasuring adds the flags that say what is measured, how often, and by which image.
func (c *Flags) RegisterMeasuring(command *cobra.Command) {
	flags := command.Flags()
	flags.DurationVar(&c.probe, "probe-interval", 0, "time between two probes on the fastest paths (default 10ms)")
	flags.StringVar(&c.budget, "budget", "", "what measuring may cost, instead of --probe-interval: "+
		"small (50ms between two probes on the fastest paths), normal (10ms) or fine (5ms)")
	flags.StringArrayVar(&c.Spec.Outside, "outside", nil,
		"a server outside of the cluster, to which pods and nodes send probes: "+
			"tcp:HOST:PORT (a handshake is an answer), udp:HOST:PORT (a name server on port 53, else an echo server) "+
			"or dns:NAME (looked up through the cluster's DNS); repeatable; empty: the addresses of other "+
			"nodes and of the API server")
	flags.IntVar(&c.Spec.OutsideRate, "outside-rate", 0, "probes per second from each node and each probe pod to "+
		"each server outside (default "+strconv.Itoa(path.DefaultOutsideRate)+")")
	c.agent.Register(flags)
}

// ByGates says when the gates of a plan ask signals (RegisterSignals).
const ByGates = "by every gate, where the plan runs"

// RegisterSignals adds the flags for the user's own signals.
func (c *Flags) RegisterSignals(command *cobra.Command, when string) {
	c.slo.Register(command.Flags(), when)
}

// SignalsGiven reports whether flags name the user's signals, and not a document.
func (c *Flags) SignalsGiven() bool { return c.slo.Given() }

// RegisterSurge adds the flags of the strategy surge.
func (c *Flags) RegisterSurge(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&c.Spec.AddHook, "add-hook", "", "surge: command that adds one node; apply runs it without a "+
		"shell, split at blanks outside of quotes, with the variables THESEUS_NODE, THESEUS_WAVE, THESEUS_TAINT")
	flags.StringVar(&c.Spec.RemoveHook, "remove-hook", "", "surge: command that removes the node $THESEUS_NODE")
	flags.DurationVar(&c.hook, "hook-timeout", 0, "surge: timeout of a command, including the time until its node "+
		"has joined or left (default "+surge.DefaultHook.String()+")")
	flags.IntVar(&c.Spec.Surge, "surge", 0,
		"surge: how many nodes are added in each wave; by default as many as are removed")
	flags.StringVar(&c.Spec.ReplaceNodes, "replace-nodes", "",
		"surge: SELECTOR of the nodes to replace, by default all workers; the pods of the other nodes are recreated")
}

// RegisterWhatIf adds the flags for other changes to the nodes; only checks use them.
func (c *Flags) RegisterWhatIf(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&c.Spec.KubernetesTo, "kubernetes-to", "",
		"what if Kubernetes is upgraded to this version, such as v1.24.0")
	c.RegisterLabels(command)
	flags.StringToStringVar(&c.Spec.ClusterIDs, "cluster-id", nil,
		"NODE=ID: what if a node gets this BGP cluster ID, or, with none, loses its own (repeatable)")
	flags.StringSliceVar(&c.Spec.Peered, "peered", nil, "NAME=RANGE: an address range of a network that is connected "+
		"to this one, such as mirror=10.50.0.0/16 (repeatable)")
	flags.StringVar(&c.Spec.ReplaceNodes, "replace-nodes", "",
		"SELECTOR: what if these nodes are replaced, and come back with only the labels of the kubelet and the cloud")
}

// RegisterLabels adds the flags for changes to the labels of nodes.
func (c *Flags) RegisterLabels(command *cobra.Command) {
	flags := command.Flags()
	flags.StringSliceVar(&c.Spec.RemoveLabels, "remove-label", nil, "KEY: what if nodes lose this label (repeatable)")
	flags.StringToStringVar(&c.Spec.AddLabels, "add-label", nil, "KEY=VALUE: what if nodes get this label (repeatable)")
	flags.StringVar(&c.Spec.LabelNodes, "label-nodes", "",
		"SELECTOR: the nodes of --remove-label and --add-label; by default all")
}

// Resolve merges the document and the given flags.
func (c *Flags) Resolve(command *cobra.Command) (v1alpha1.ChangeSpec, error) {
	if err := c.readWaves(); err != nil {
		return c.Spec, err
	}
	for _, name := range []string{"kubernetes-to", "remove-label", "label-nodes", "replace-nodes"} {
		if flag := command.Flags().Lookup(name); flag != nil && flag.Changed &&
			strings.Trim(flag.Value.String(), "[]") == "" {
			return c.Spec, exit.Fail(exit.Usage, "leave it out, or give it a value: theseus "+command.Name()+" --help",
				"--%s is empty", name)
		}
	}
	c.Spec.AgentImage = c.agent.Image()
	spec := c.Spec
	if c.file != "" {
		document, err := readChange(c.file)
		if err != nil {
			return spec, err
		}
		spec = c.over(command, document.Spec)
	}
	if c.maxGap < 0 || c.bake < 0 || c.probe < 0 || c.Spec.MaxLost < 0 {
		return spec, exit.Fail(exit.Usage, "leave it out for the default",
			"--max-gap, --max-lost, --bake and --probe-interval cannot be below 0")
	}
	if c.probe > 0 && c.probe < time.Millisecond {
		return spec, exit.Fail(exit.Usage, "give 1ms or more", "--probe-interval %s is below 1ms", c.probe)
	}
	if err := c.spend(command, &spec); err != nil {
		return spec, err
	}
	if c.maxGap > 0 {
		spec.MaxGapMillis = int(roundUp(c.maxGap, time.Millisecond))
	}
	if c.hook < 0 {
		return spec, exit.Fail(exit.Usage, "leave it out for the default", "--hook-timeout cannot be below 0")
	}
	if c.hook > 0 {
		spec.HookSeconds = int(roundUp(c.hook, time.Second))
	}
	if c.probe > 0 {
		spec.ProbeIntervalMillis = int(roundUp(c.probe, time.Millisecond))
	}
	if c.bake > 0 {
		spec.BakeSeconds = int(roundUp(c.bake, time.Second))
	}
	for name, number := range map[string]int64{"maxLost": spec.MaxLost, "maxGapMillis": int64(spec.MaxGapMillis),
		"bakeSeconds":         int64(spec.BakeSeconds),
		"probeIntervalMillis": int64(spec.ProbeIntervalMillis), "hookSeconds": int64(spec.HookSeconds),
		"surge": int64(spec.Surge)} {
		if number < 0 {
			return spec, exit.Fail(exit.Usage, "leave it out for the default", "%s cannot be below 0", name)
		}
	}
	if n := spec.MaxParallel; n < 0 || n > step.MostAtOnce || n == 0 && command.Flags().Changed("max-parallel") {
		return spec, exit.Fail(exit.Usage, fmt.Sprintf("give a number from 1 to %d, or leave it out", step.MostAtOnce),
			"--max-parallel %d is out of bounds", n)
	}
	if label := spec.DomainLabel; label != "" && len(validation.IsQualifiedName(label)) > 0 {
		return spec, exit.Fail(exit.Usage, "write it as "+joint.DomainLabel(""), "--domain-label %q is no label", label)
	}
	if err := outsideGiven(spec); err != nil {
		return spec, err
	}
	for _, text := range spec.Peered {
		name, cidr, _ := strings.Cut(text, "=")
		if _, err := netip.ParsePrefix(cidr); err != nil || name == "" {
			return spec, exit.Fail(exit.Usage, "write it as mirror=10.50.0.0/16", "--peered %s is not NAME=RANGE", text)
		}
	}
	var err error
	if spec.SLO, err = c.slo.Resolve(spec.SLO); err != nil {
		return spec, err
	}
	accepted, err := Reasons("accept", c.accept)
	if err != nil {
		return spec, err
	}
	if spec.Accept == nil {
		spec.Accept = map[string]string{}
	}
	maps.Copy(spec.Accept, accepted)
	if c.accepted != "" {
		entries, err := readAccepted(c.accepted)
		if err != nil {
			return spec, err
		}
		spec.Accepted = append(spec.Accepted, entries...)
	}
	return spec, nil
}

// spend sets the interval of --budget. It overrides that of a document. With --probe-interval it is refused: the
// interval would exceed the budget, or have no need of it.
func (c *Flags) spend(command *cobra.Command, spec *v1alpha1.ChangeSpec) error {
	if !command.Flags().Changed("budget") {
		return nil
	}
	fast, known := path.Budget(c.budget)
	if !known {
		return exit.Fail(exit.Usage, "give "+path.Budgets, "--budget %q is not known", c.budget)
	}
	if command.Flags().Changed("probe-interval") {
		return exit.Fail(exit.Usage, "leave one of them out",
			"--budget and --probe-interval both say how often probes are sent")
	}
	spec.ProbeIntervalMillis = int(fast.Milliseconds())
	return nil
}

// outsideGiven demands valid responders, each once, and a rate within its bounds.
func outsideGiven(spec v1alpha1.ChangeSpec) error {
	for i, text := range spec.Outside {
		if _, err := path.ParseResponder(text); err != nil {
			return exit.Fail(exit.Usage, "write it as tcp:192.0.2.1:443, udp:ns.example.org:53 or dns:example.org",
				"--outside: %w", err)
		}
		if slices.Contains(spec.Outside[:i], text) {
			return exit.Fail(exit.Usage, "name each server once", "--outside %s is given twice", text)
		}
	}
	if spec.OutsideRate < 0 || spec.OutsideRate > path.MaxOutsideRate {
		return exit.Fail(exit.Usage, fmt.Sprintf("give a number from 1 to %d, or leave it out for %d",
			path.MaxOutsideRate, path.DefaultOutsideRate),
			"--outside-rate %d is out of bounds", spec.OutsideRate)
	}
	return nil
}

// readWaves reads counts, or shares.
func (c *Flags) readWaves() error {
	for _, text := range c.waves {
		into, number := &c.Spec.Waves, text
		if share, ok := strings.CutSuffix(text, "%"); ok {
			into, number = &c.Spec.WavePercents, share
		}
		n, err := strconv.Atoi(number)
		if err != nil || len(c.Spec.Waves) > 0 && len(c.Spec.WavePercents) > 0 {
			return exit.Fail(exit.Usage, "--waves 1,5,0 or --waves 1%,10%,100%",
				"--waves %s: waves are numbers of nodes, or shares", strings.Join(c.waves, ","))
		}
		*into = append(*into, n)
	}
	return nil
}

// readAccepted reads a file of accepted findings.
func readAccepted(file string) ([]v1alpha1.AcceptedFinding, error) {
	const form = "it must begin with apiVersion: " + v1alpha1.APIVersion + " and kind: " + preflight.AcceptedKind +
		", and list under accepted: id, subject (or none), reason, until"
	data, err := infile.Read(file)
	if err != nil {
		return nil, exit.Fail(exit.Usage, "name a file of accepted findings; "+form, "%w", err)
	}
	entries, err := preflight.ParseAccepted(data)
	if err != nil {
		return nil, exit.Fail(exit.Usage, form, "%s: %w", file, err)
	}
	return entries, nil
}

// roundUp rounds up to whole units: a value below one would become 0, which means the default.
func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit }

// take overrides a field of a document with that of a flag that was given.
func take[T any](given bool, field *T, flag T) {
	if given {
		*field = flag
	}
}

// over overrides a document with the given flags.
func (c *Flags) over(command *cobra.Command, document v1alpha1.ChangeSpec) v1alpha1.ChangeSpec {
	given := func(flag string) bool { return command.Flags().Changed(flag) }
	texts := map[string][2]*string{
		"to":          {&document.To, &c.Spec.To},
		"cni-version": {&document.CNIVersion, &c.Spec.CNIVersion},
		"manifest":    {&document.Manifest, &c.Spec.Manifest},
		"pod-cidr":    {&document.PodCIDR, &c.Spec.PodCIDR},
		"strategy":    {&document.Strategy, &c.Spec.Strategy},
		"agent-image": {&document.AgentImage, &c.Spec.AgentImage},
		"dataplane":   {&document.Dataplane, &c.Spec.Dataplane},
		"reflectors":  {&document.Reflectors, &c.Spec.Reflectors},
		"pool":        {&document.Pool, &c.Spec.Pool},

		"domain-label": {&document.DomainLabel, &c.Spec.DomainLabel},

		"encapsulation": {&document.Encapsulation, &c.Spec.Encapsulation},

		"kubernetes-to": {&document.KubernetesTo, &c.Spec.KubernetesTo},
		"label-nodes":   {&document.LabelNodes, &c.Spec.LabelNodes},
		"add-hook":      {&document.AddHook, &c.Spec.AddHook},
		"remove-hook":   {&document.RemoveHook, &c.Spec.RemoveHook},
		"replace-nodes": {&document.ReplaceNodes, &c.Spec.ReplaceNodes},
	}
	for flag, pair := range texts {
		if given(flag) || *pair[0] == "" {
			*pair[0] = *pair[1]
		}
	}
	take(given("max-parallel"), &document.MaxParallel, c.Spec.MaxParallel)
	take(given("surge"), &document.Surge, c.Spec.Surge)
	take(given("max-lost"), &document.MaxLost, c.Spec.MaxLost)
	take(given("remove-label"), &document.RemoveLabels, c.Spec.RemoveLabels)
	take(given("add-label"), &document.AddLabels, c.Spec.AddLabels)
	take(given("cluster-id"), &document.ClusterIDs, c.Spec.ClusterIDs)
	take(given("outside"), &document.Outside, c.Spec.Outside)
	take(given("outside-rate"), &document.OutsideRate, c.Spec.OutsideRate)
	take(given("peered"), &document.Peered, c.Spec.Peered)
	if given("waves") {
		document.Waves, document.WavePercents = c.Spec.Waves, c.Spec.WavePercents
	}
	return document
}

func readChange(file string) (*v1alpha1.Change, error) {
	data, err := infile.Read(file)
	if err != nil {
		return nil, exit.Fail(exit.Usage, "name a file that holds a Change document", "%v", err)
	}
	var change v1alpha1.Change
	if err := bounded.UnmarshalStrict(data, &change); err != nil {
		return nil, exit.Fail(exit.Usage, "see `theseus plan --help` for the fields", "%s: %v", file, err)
	}
	if change.APIVersion != v1alpha1.APIVersion || change.Kind != "Change" {
		return nil, exit.Fail(exit.Usage,
			fmt.Sprintf("it must begin with apiVersion: %s and kind: Change", v1alpha1.APIVersion),
			"%s is a %s %s, not a Change", file, change.APIVersion, change.Kind)
	}
	return &change, nil
}

// Reasons reads ID=REASON flags.
func Reasons(flag string, given []string) (map[string]string, error) {
	all := map[string]string{}
	for _, one := range given {
		id, reason, ok := strings.Cut(one, "=")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, exit.Fail(exit.Usage, fmt.Sprintf("write --%s %s='why'", flag, id),
				"--%s %s gives no reason", flag, one)
		}
		all[id] = reason
	}
	return all, nil
}
