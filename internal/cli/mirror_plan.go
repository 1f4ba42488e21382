package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/run"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/adopt"
	"github.com/theseus-cni/theseus/internal/change/encapsulation"
	"github.com/theseus-cni/theseus/internal/change/kind"
	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/change/pool"
	"github.com/theseus-cni/theseus/internal/change/recreate"
	"github.com/theseus-cni/theseus/internal/change/reflectors"
	"github.com/theseus-cni/theseus/internal/change/rollout"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/change/upgrade"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/mirror/config"
	"github.com/theseus-cni/theseus/internal/mirror/dns"
	"github.com/theseus-cni/theseus/internal/mirror/dns/zone"
	"github.com/theseus-cni/theseus/internal/mirror/freeze"
	"github.com/theseus-cni/theseus/internal/mirror/replica"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/step"
)

// registerAccess adds the flags by which the mirror and the zones are reached.
func registerAccess(command *cobra.Command, access *mirror.Access) {
	flags := command.Flags()
	flags.StringVar(&access.Kubeconfig, "mirror-kubeconfig", "", "strategy mirror: kubeconfig file of the mirror (else that of the original)")
	flags.StringVar(&access.Context, "mirror-context", "", "strategy mirror: context of the mirror")
	flags.StringVar(&access.Zones, "zones", "", "strategy mirror: file that says how the zones are reached")
}

// twins is the pair of clusters that access names, or, where it names none, the setup of a plan.
func (a *app) twins(access, planned mirror.Access) (*twins, string) {
	if access.Kubeconfig == "" && access.Context == "" {
		access.Kubeconfig, access.Context = planned.Kubeconfig, planned.Context
	}
	m := &twins{app: a, other: genericclioptions.NewConfigFlags(true)}
	*m.other.KubeConfig, *m.other.Context = access.Kubeconfig, access.Context
	return m, cmp.Or(access.Zones, planned.Zones)
}

// mirrorPlanFlags are what a plan of the strategy mirror is told beside the change.
type mirrorPlanFlags struct {
	access    mirror.Access
	selection copyFlags
	dns       dnsPlanFlags
	freeze    mirror.FreezeArgs
	switching mirror.Switch
	rollAfter time.Duration
	config    []string
	answers   []string
	certs     mirror.CertificateArgs
	cloudPlan string
	endpoint  string
	prove     bool
	validFor  time.Duration
	keep      bool
}

func (f *mirrorPlanFlags) register(command *cobra.Command) {
	registerAccess(command, &f.access)
	f.selection.add(command)
	f.dns.registerMoves(command)
	flags := command.Flags()
	flags.StringVar(&f.freeze.Reason, "because", "", "strategy mirror: the reason of the freeze, which everybody reads who is stopped")
	flags.StringSliceVar(&f.freeze.Allowed, "allow", nil, "strategy mirror: users who may go on to deploy, and groups as group:NAME")
	flags.StringVar(&f.switching.Command, "switch-command", "", "strategy mirror: what changes the idle original, run by a shell; run twice it must do the same. Without it a person does")
	flags.StringVar(&f.switching.Roll, "roll-command", "", "strategy mirror: what replaces one node, $"+mirror.NodeVariable+", run by a shell, once for each that is not Ready --roll-after the switch command has ended")
	flags.DurationVar(&f.rollAfter, "roll-after", 10*time.Minute, "strategy mirror: how long nodes may take to be Ready after the switch command")
	flags.StringVar(&f.switching.Strategy, "switch-strategy", "", "strategy mirror: change the idle original by steps of the plan, by this strategy (recreate, adopt or surge), with the flags that it needs")
	flags.StringSliceVar(&f.config, "switch-config", nil, "strategy mirror: the original's configuration (kops, Cluster API), which the command gets with the network --to and with doubled nodes, in the file $"+mirror.ConfigVariable)
	flags.StringArrayVar(&f.answers, "switch-answer", nil, "strategy mirror: what was decided about the configuration of --switch-config, as for theseus mirror config --answer")
	flags.StringSliceVar(&f.certs.Domains, "domain", nil, "strategy mirror: give certificates the mirror's names before, and take them back at the end: blue.example.org=green.example.org")
	flags.StringSliceVar(&f.certs.Skip, "skip-certificate", nil, "strategy mirror: certificates to leave out, namespace/name")
	flags.BoolVar(&f.certs.HTTP01, "http01", false, "strategy mirror: names that the authority asks by HTTP-01 point to the original")
	flags.StringVar(&f.cloudPlan, "cloud-plan", "", "strategy mirror: a plan of theseus mirror cloud, carried out before and taken back at the end")
	flags.StringVar(&f.endpoint, "cloud-endpoint", "", "strategy mirror: address of the cloud's API, for --cloud-plan; nothing is changed where none is named")
	flags.BoolVar(&f.prove, "prove-certificates", false, "strategy mirror: prove by handshakes what the mirror serves for every name before names move")
	flags.DurationVar(&f.validFor, "valid-for", 72*time.Hour, "strategy mirror: how long the certificates of --prove-certificates must be valid from then on")
	flags.BoolVar(&f.keep, "keep-mirror", false, "strategy mirror: leave what was copied on the mirror")
}

// planMirror makes a plan of the strategy mirror.
func (a *app) planMirror(ctx context.Context, f *mirrorPlanFlags, change v1alpha1.ChangeSpec) error {
	m, _ := a.twins(f.access, mirror.Access{})
	f.dns.zones = f.access.Zones
	f.dns.bake = time.Duration(change.BakeSeconds) * time.Second
	copier, err := m.copier(&f.selection)
	if err != nil {
		return err
	}
	want := freeze.Freeze{Namespaces: copier.Namespaces, Reason: f.freeze.Reason, Allowed: f.freeze.Allowed, By: "whoever applies it", Since: time.Now()}
	if err := want.Check(); err != nil {
		return fail(exitUsage, "give one with --because, such as --because 'CHG-1234'", "%w", err)
	}
	pass, err := copier.Look(ctx)
	if err != nil {
		return err
	}
	if err := replica.Decided(pass); err != nil {
		return coded(err)
	}
	if pass.Delta.InStep == 0 {
		return fail(exitBlocked, "theseus mirror copy, with the same flags: it makes the mirror's load balancers, to which the names will point; nobody asks there yet",
			"nothing was copied to the mirror, so its services have no addresses")
	}
	setup := mirror.Setup{Access: f.access, Switch: f.switching, Keep: f.keep,
		Freeze: mirror.FreezeArgs{Namespaces: copier.Namespaces, Reason: f.freeze.Reason, Allowed: f.freeze.Allowed}, Copy: f.selection.Selection}
	setup.Copy.Namespaces, setup.Switch.To = copier.Namespaces, change.To
	if f.switching.Roll != "" {
		setup.Switch.RollAfter = step.Duration(f.rollAfter)
	}
	if f.prove {
		setup.Handshakes = &mirror.HandshakeArgs{ValidFor: step.Duration(f.validFor)}
	}
	for _, file := range []*string{&setup.Access.Kubeconfig, &setup.Access.Zones} {
		if *file != "" {
			if *file, err = filepath.Abs(*file); err != nil {
				return err
			}
		}
	}
	if setup.Original, err = copier.Original.Identity(ctx); err != nil {
		return err
	}
	if setup.Mirror, err = copier.Mirror.Identity(ctx); err != nil {
		return err
	}
	if setup.Names, err = m.dnsPlan(ctx, f.dns); err != nil {
		return err
	}
	if err := m.extras(ctx, f, change, &setup); err != nil {
		return err
	}
	own := change
	own.Strategy = setup.Switch.Strategy
	snapshot, within, err := a.planSwitch(ctx, own)
	if err != nil {
		return err
	}
	if within != nil { // pods that cannot be adopted are created again
		setup.Switch.Strategy = within.Strategy
	}
	draft, err := mirror.Propose(&kind.Request{Snapshot: snapshot, Change: change, Drivers: drivers.All(), Options: plan.Options{Version: a.version, Now: time.Now()}}, setup, within)
	if err != nil {
		return err
	}
	p, err := plan.Seal(snapshot, draft)
	if err != nil {
		return err
	}
	return a.writePlan(p)
}

// planSwitch sees the original, and plans its change where that is by a strategy.
func (a *app) planSwitch(ctx context.Context, change v1alpha1.ChangeSpec) (*cluster.Snapshot, *plan.Plan, error) {
	if change.Strategy == "" {
		snapshot, err := a.see(ctx, nil)
		return snapshot, nil, err
	}
	if err := switchable(change.Strategy); err != nil {
		return nil, nil, err
	}
	pass, result, _, err := a.preflight(ctx, nil, change, checkOptions(change))
	if err != nil {
		return nil, nil, err
	}
	if err := a.mustNotBlock(result, acceptHint); err != nil {
		return nil, nil, err
	}
	change.AgentImage = a.pinned(ctx, pass.Served, change.AgentImage)
	p, err := plan.Make(pass.Snapshot, change, drivers.All(), result.Findings, plan.Options{Version: a.version, Now: time.Now(), Manifest: pass.Manifest})
	return pass.Snapshot, p, err
}

// switchable refuses strategies by which the original is not changed in a plan of the strategy mirror.
func switchable(strategy string) error {
	switch strategy {
	case recreate.Name, adopt.Name, surge.Name:
		return nil
	case mirror.Name:
		return fail(exitUsage, "give the one by which the idle original is changed: recreate, adopt or surge", "--switch-strategy %s: the original has its mirror already", strategy)
	case upgrade.Name, rollout.Name, pool.Name, reflectors.Name, encapsulation.Name:
		return fail(exitUsage, "make a plan of its own for it, before this one or after it; or give --switch-command with what changes the original",
			"--switch-strategy %s: it leaves the network that there is, and names come home only when another one, which --to names, is seen on the original", strategy)
	}
	return fail(exitUsage, "recreate, adopt or surge; or --switch-command with what changes the original", "--switch-strategy %s is not known", strategy)
}

// extras are the parts of a plan that are there when they are asked for: rights in the cloud, names in certificates, and
// the original's configuration.
func (m *twins) extras(ctx context.Context, f *mirrorPlanFlags, change v1alpha1.ChangeSpec, setup *mirror.Setup) error {
	if (f.cloudPlan == "") != (f.endpoint == "") {
		return fail(exitUsage, "give both, or none and use the lines of theseus mirror cloud plan --format cli", "--cloud-plan and --cloud-endpoint go together")
	}
	if f.cloudPlan != "" {
		p, err := readCloudPlan(f.cloudPlan)
		if err != nil {
			return err
		}
		m.cloudFindings(p)
		setup.Cloud = &mirror.CloudSetup{Endpoint: f.endpoint, Actions: p.Actions}
	}
	if len(f.certs.Domains) > 0 {
		f.certs.Namespaces = setup.Copy.Namespaces
		setup.Certificates = &f.certs
		_, entries, err := m.survey(ctx, surveyOf(setup.Certificates))
		if err == nil {
			err = mayAdd(entries)
		}
		if err != nil {
			return err
		}
	}
	if len(f.config) > 0 {
		if f.switching.Command == "" || change.To == "" {
			return fail(exitUsage, "give --to, and --switch-command, such as 'kops replace -f $"+mirror.ConfigVariable+" && kops update cluster --yes && kops rolling-update cluster --yes'",
				"--switch-config makes a configuration with another network for a command")
		}
		result, _, err := m.convert(&configFlags{from: f.config, answers: f.answers, options: config.Options{Network: change.To, Surge: true}})
		if err != nil {
			return err
		}
		if err := m.askConfig(result, "--switch-answer"); err != nil {
			return err
		}
		setup.Switch.Config = &mirror.Config{Text: string(result.Text)}
		for _, c := range result.Changes {
			setup.Switch.Config.Changes = append(setup.Switch.Config.Changes, fmt.Sprintf("%s:%d %s: %s -> %s", c.File, c.Line, c.Path, cmp.Or(c.From, "none"), cmp.Or(c.To, "none")))
		}
	}
	return nil
}

// surveyOf is what mirror certs is told for a step of a plan.
func surveyOf(args *mirror.CertificateArgs) *certsFlags {
	return &certsFlags{namespaces: args.Namespaces, domains: args.Domains, skip: args.Skip, http01: args.HTTP01, serves: 30 * 24 * time.Hour}
}

// pairOf is everything by which a plan of the strategy mirror reaches its world.
type pairOf struct {
	*twins
	plan             *plan.Plan
	original, mirror *replica.Cluster
	zones            []*dns.Zone
	config           *dns.Config
	zonesFile        string
}

// reach connects to both clusters and the zones, and makes sure that the clusters are the plan's.
func (a *app) reach(ctx context.Context, p *plan.Plan) (*pairOf, error) {
	m, zones := a.twins(a.access, p.Mirror.Access)
	pair := &pairOf{twins: m, plan: p, zonesFile: zones}
	client, err := a.client()
	if err != nil {
		return nil, err
	}
	other, err := m.mirrorClient()
	if err != nil {
		return nil, err
	}
	for _, one := range []struct {
		into   **replica.Cluster
		client *kube.Client
		id     string
		what   string
	}{{&pair.original, client, p.Mirror.Original, "the original"}, {&pair.mirror, other, p.Mirror.Mirror, "the mirror"}} {
		if *one.into, err = replica.Connect(one.client); err != nil {
			return nil, err
		}
		id, err := (*one.into).Identity(ctx)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", one.what, err)
		}
		if id != one.id {
			return nil, fail(exitFailed, "name it with --mirror-context or --mirror-kubeconfig, and the original with --context", "this is not %s of the plan, but another cluster", one.what)
		}
	}
	if pair.config, err = readZones(zones); err != nil {
		return nil, err
	}
	pair.zones, err = pair.config.Open(ctx)
	return pair, err
}

// whereabouts says where a name is, by the zone itself: at the "original", the "mirror", in "both" (weighed), or "elsewhere".
type whereabouts struct {
	Name     string   `json:"name"`
	At       string   `json:"at"`
	Services []string `json:"services"`
	Records  []string `json:"records,omitempty"`
	// Changed is set where records are not, TTLs aside, what the plan knows.
	Changed bool `json:"changed,omitempty"`
	// TTL is the longest one of its address records now, in seconds.
	TTL uint32 `json:"ttl"`
}

// places reads where the names of the plan are.
func (p *pairOf) places(ctx context.Context) ([]whereabouts, error) {
	var all []whereabouts
	for _, z := range p.zones {
		var wanted []zone.Place
		for _, m := range p.plan.Mirror.Names.Moves {
			if m.Zone == z.Name {
				wanted = append(wanted, m.Places()...)
			}
		}
		if len(wanted) == 0 {
			continue
		}
		current, err := z.Read(ctx, wanted)
		if err != nil {
			return nil, err
		}
		for _, m := range p.plan.Mirror.Names.Moves {
			if m.Zone == z.Name {
				all = append(all, placeOf(m, current))
			}
		}
	}
	return all, nil
}

func placeOf(m zone.Move, current zone.Current) whereabouts {
	found := whereabouts{Name: strings.TrimSuffix(m.Name, "."), Services: m.Services, At: "elsewhere"}
	var sets []zone.RRSet
	for _, at := range m.Places() {
		for _, set := range current[at] {
			sets = append(sets, set)
			if set.IsAddress() {
				found.Records = append(found.Records, set.String())
				found.TTL = max(found.TTL, set.TTL)
			}
		}
	}
	same := func(wanted []zone.RRSet) bool {
		return slices.EqualFunc(zone.Sorted(slices.Clone(wanted)), zone.Sorted(sets), zone.RRSet.Same)
	}
	switch {
	case same(m.Before):
		found.At = "original"
	case same(m.After):
		found.At = "mirror"
	case slices.ContainsFunc(sets, func(set zone.RRSet) bool { return set.Weight != nil && strings.HasPrefix(set.SetID, "theseus-") }):
		found.At = "both"
	default:
		found.Changed = true
	}
	return found
}

// admitMirror refuses a plan that was made for other clusters, or for zones as they were.
func (a *app) admitMirror(ctx context.Context, client *kube.Client, p *plan.Plan) error {
	pair, err := a.reach(ctx, p)
	if err != nil {
		return err
	}
	if err := a.alone(ctx, client, p.Name); err != nil {
		return err
	}
	places, err := pair.places(ctx)
	if err != nil {
		return err
	}
	for _, found := range places {
		if found.At != "original" {
			return fail(exitFailed, "make the plan anew with `theseus plan`", "%s has changed since the plan was made: %s", found.Name, strings.Join(found.Records, ", "))
		}
	}
	return nil
}

// hands does what a plan of the strategy mirror says, each by the package whose matter it is.
type hands struct {
	pair  *pairOf
	names *dns.Actor
	twins *replica.Actor
	// own are for the original's nodes.
	own     engine.Actor
	records engine.Journal
	dir     string
	note    func(string)
}

func (p *pairOf) hands(own engine.Deps, records engine.Journal, dir string, note func(string)) (engine.Actor, engine.Gate, error) {
	prober, err := p.config.Prober()
	if err != nil {
		return nil, nil, err
	}
	h := &hands{pair: p, own: own.Actor, records: records, dir: dir, note: note,
		names: &dns.Actor{Zones: p.zones, Resolvers: p.config.Resolvers, Prober: prober, Clock: run.Clock{}, Note: note},
		twins: &replica.Actor{Original: p.original, Mirror: p.mirror, Note: note}}
	return h, &holdGate{Gate: dns.Gate{Prober: prober, Clock: run.Clock{}}, own: own.Gate, whole: p.whole, note: note}, nil
}

func (h *hands) of(action step.Action) engine.Actor {
	switch action.Op {
	case step.DNS:
		return h.names
	case step.Mirror:
		return h.twins
	}
	return h.own
}

// Observe implements engine.Actor.
func (h *hands) Observe(ctx context.Context, action step.Action, before json.RawMessage) (engine.Observation, error) {
	if action.Op != step.Mirror {
		return h.of(action).Observe(ctx, action, before)
	}
	switch action.Verb {
	case mirror.Change:
		why, err := h.pair.whole(ctx, h.pair.plan.Mirror.Switch.To)
		return engine.Observation{Done: err == nil && why == "" && h.pair.plan.Mirror.Switch.To != ""}, nil
	case mirror.AddNames:
		return h.certificates(ctx, action)
	case mirror.Cloud:
		return h.cloud(ctx, action)
	}
	return h.twins.Observe(ctx, action, before)
}

// Do implements engine.Actor.
func (h *hands) Do(ctx context.Context, action step.Action, before json.RawMessage) (json.RawMessage, error) {
	if action.Op == step.Mirror {
		switch action.Verb {
		case mirror.Change:
			return nil, h.change(ctx)
		case mirror.Roll:
			return nil, h.roll(ctx)
		case mirror.Handshakes:
			return nil, h.handshakes(ctx)
		case mirror.AddNames:
			return nil, h.addNames(ctx, action)
		case mirror.TakeNames:
			return nil, h.takeNames(ctx, action)
		case mirror.Cloud:
			return nil, h.doCloud(ctx, action)
		}
	}
	return h.of(action).Do(ctx, action, before)
}

// Holds implements engine.Actor.
func (h *hands) Holds(ctx context.Context, c step.Condition) (bool, string, error) {
	return h.own.Holds(ctx, c)
}

// change runs the command that changes the original; without one a person does it.
func (h *hands) change(ctx context.Context) error {
	line := h.pair.plan.Mirror.Switch.Command
	if line == "" {
		h.note("the original is idle and yours: bring it to " + h.pair.plan.Mirror.Switch.To)
		return nil
	}
	var env []string
	if config := h.pair.plan.Mirror.Switch.Config; config != nil {
		name := filepath.Join(h.dir, "original.yaml")
		if err := outfile.Write(name, []byte(config.Text)); err != nil {
			return err
		}
		env = append(env, mirror.ConfigVariable+"="+name)
	}
	return h.shell(ctx, line, env...)
}

// rollLook is the time between two looks at the original's nodes.
const rollLook = 5 * time.Second

// roll replaces nodes that stay sick, each once. What is sick then is for the gate to wait for, and for a person to see.
func (h *hands) roll(ctx context.Context) error {
	roll := h.pair.plan.Mirror.Switch
	for end := time.Now().Add(time.Duration(roll.RollAfter)); ; {
		sick, err := h.pair.sick(ctx)
		if err != nil {
			return kube.Passing(err)
		}
		if len(sick) == 0 {
			return nil
		}
		if left := time.Until(end); left > 0 {
			h.note(fmt.Sprintf("%s not Ready: %s", cluster.Count(len(sick), "node"), strings.Join(sick[:min(len(sick), 3)], ", ")))
			if err := (run.Clock{}).Sleep(ctx, min(left, rollLook)); err != nil {
				return err
			}
			continue
		}
		for _, node := range sick {
			h.note("node " + node + " is not Ready after " + time.Duration(roll.RollAfter).String() + ": it is replaced once more")
			if err := h.shell(ctx, roll.Roll, mirror.NodeVariable+"="+node); err != nil {
				return fmt.Errorf("node %s: %w", node, err)
			}
		}
		return nil
	}
}

// sick are the original's nodes that are not Ready.
func (p *pairOf) sick(ctx context.Context) ([]string, error) {
	nodes, err := p.original.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var sick []string
	for i := range nodes.Items {
		if node := &nodes.Items[i]; !cluster.NodeReady(node) {
			sick = append(sick, node.Name)
		}
	}
	return sick, nil
}

// shell runs a command of the user's with variables; what it says is in a file.
func (h *hands) shell(ctx context.Context, line string, env ...string) error {
	log := filepath.Join(h.dir, "change.log")
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	command := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	var tail lastLine
	command.Stdout, command.Stderr = file, &tail
	command.Env = append(append(os.Environ(), "THESEUS_MIGRATION="+h.pair.plan.Name), env...)
	command.WaitDelay = 10 * time.Second
	tail.to = file
	if err := command.Run(); err != nil {
		return engine.WithHint(fmt.Errorf("the command failed: %w: %s", err, tail.String()), "what it said is in "+log+"; mend it")
	}
	return nil
}

// lastLine keeps the last line that passes through it.
type lastLine struct {
	to   *os.File
	line []byte
}

const longestLine = 500

func (l *lastLine) Write(data []byte) (int, error) {
	if lines := bytes.Split(bytes.TrimSpace(data), []byte("\n")); len(lines[len(lines)-1]) > 0 {
		last := lines[len(lines)-1]
		l.line = slices.Clone(last[:min(len(last), longestLine)])
	}
	return l.to.Write(data)
}

func (l *lastLine) String() string { return string(l.line) }

// handshakes proves what the mirror serves.
func (h *hands) handshakes(ctx context.Context) error {
	args := h.pair.plan.Mirror.Handshakes
	prove := &proveFlags{dnsSources: dnsSources{zones: h.pair.zonesFile}, left: time.Duration(args.ValidFor)}
	if named := h.pair.plan.Mirror.Certificates; named != nil {
		prove.domains = named.Domains
	}
	proofs, err := h.pair.proveCerts(ctx, prove)
	if err != nil {
		return err
	}
	var wrong []string
	for _, proof := range proofs {
		if len(proof.Wrong) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s at %s: %s", proof.Name, proof.Address, strings.Join(proof.Wrong, ", ")))
		}
	}
	if len(wrong) > 0 {
		return engine.WithHint(fmt.Errorf("%d of %d handshakes are not as they should be: %s", len(wrong), len(proofs), strings.Join(wrong[:min(len(wrong), 3)], "; ")),
			"theseus mirror certs prove shows all of them")
	}
	h.note(cluster.Count(len(proofs), "handshake") + " as they should be")
	return nil
}

// whole says why the original is not, or not yet, on a network, alone and in order; "" when it is. It is always where no
// network is named.
func (p *pairOf) whole(ctx context.Context, network string) (string, error) {
	if network == "" {
		return "", nil
	}
	p.original.Mapper.Reset() // the network that comes defines kinds of its own
	snapshot, err := kube.Snapshot(ctx, p.original.Client, p.version, time.Now())
	if err != nil {
		return "", err
	}
	found := drivers.All().Detect(snapshot)
	switch {
	case len(found) == 0:
		return "the original has no network", nil
	case len(found) > 1:
		return fmt.Sprintf("the original has %s and %s", found[0].CNI, found[1].CNI), nil
	case found[0].CNI != network:
		return "the original is on " + found[0].CNI, nil
	case len(found[0].Problems) > 0:
		return network + " is not in order: " + strings.Join(found[0].Problems, "; "), nil
	}
	for i := range snapshot.Nodes {
		if node := &snapshot.Nodes[i]; !cluster.NodeReady(node) {
			return "node " + node.Name + " is not Ready", nil
		}
	}
	return "", nil
}

// holdGate is the gate of a plan of the strategy mirror: that over names, which also watches them at the mirror for as
// long as the original is being changed.
type holdGate struct {
	dns.Gate
	// own judges what is measured on the original's nodes.
	own   engine.Gate
	whole func(context.Context, string) (string, error)
	note  func(string)
}

// Ask implements engine.Gate.
func (g *holdGate) Ask(ctx context.Context, gate step.Gate, heed func(context.Context) error) (engine.Verdict, error) {
	if gate.Args == nil {
		return g.own.Ask(ctx, gate, heed)
	}
	var args mirror.HoldArgs
	if err := json.Unmarshal(gate.Args, &args); err != nil {
		return engine.Verdict{}, fmt.Errorf("arguments of the gate: %w", err)
	}
	if args.Hold == nil {
		return g.Gate.Ask(ctx, gate, heed)
	}
	for {
		verdict, err := g.Gate.Ask(ctx, gate, heed)
		if err != nil || !verdict.Pass {
			return verdict, err
		}
		why, err := g.whole(ctx, args.Hold.To)
		switch {
		case err != nil && !outage.Passes(err) && !unreachable(err):
			return verdict, kube.Passing(err)
		case err != nil:
			why = err.Error() // its API server may be what is being changed
		case why == "":
			return verdict, nil
		}
		g.note(why + "; meanwhile " + verdict.Reason)
	}
}

func unreachable(err error) bool {
	var one *kube.UnreachableError
	return errors.As(err, &one)
}

// mirrorSummary says where the names are at the end of a run, and which of them somebody else has.
func (a *app) mirrorSummary(ctx context.Context, r *run.Run, outcome engine.Outcome) error {
	records, err := journal.NewCluster(r.Client.Dynamic, r.Plan.Name).Records(ctx)
	if err != nil {
		fmt.Fprintf(a.Err, "warning: no summary: %v\n", err)
		return nil
	}
	left := dns.LeftAlone(records)
	for _, text := range left {
		fmt.Fprintf(a.Err, "note: left alone, as somebody else changed it: %s\n", text)
	}
	board := newNameBoard(r.Plan)
	for _, record := range records {
		board.take(record, nil)
	}
	if a.output != "json" {
		fmt.Fprintf(a.Out, "%s: %s requests of its own gates, %d failed; theseus mirror status shows where the names are\n", r.Plan.Name, cluster.Thousands(board.asked), board.lost)
	}
	if len(left) > 0 && outcome.End != engine.EndDone {
		return fail(exitNeedsPerson, "look at the names that were left alone", "%s: %s", outcome.End, orAsked(outcome.Cause))
	}
	return nil
}
