package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/adopt"
	"github.com/theseus-cni/theseus/internal/change/recreate"
	"github.com/theseus-cni/theseus/internal/change/surge"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/flags/flagset"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/safeio/canonical"
	"github.com/theseus-cni/theseus/internal/step/adoption"
	"github.com/theseus-cni/theseus/internal/step/estimate"
)

// Options are what a plan depends on beside the snapshot and the change.
type Options struct {
	// Manifest is the target's manifests as the user gave them, decoded.
	Manifest []unstructured.Unstructured
	// Version is the version of this tool.
	Version string
	Now     time.Time
	// Name of the migration; empty makes one of the networks' names and the plan's hash.
	Name string
	// Flags are the values of flags on nodes, as resolved for this plan; the algorithm is filled in where it is not said.
	Flags Flags
	// Decided is where a flag set says what every node gets of the flag that is rolled out; nil where the change does.
	Decided *Decided
}

// flags says by which algorithm they were resolved.
func (o Options) flags() Flags {
	resolved := o.Flags
	resolved.Algorithm = cmp.Or(resolved.Algorithm, flagset.Algorithm)
	return resolved
}

// Decided is a flag as it was evaluated for every node.
type Decided struct {
	Origin
	// Knob is the setting that it means, and Values what it says of it, by node; a node of which it says nothing has
	// the cluster's value.
	Knob   string
	Values map[string]string
}

// Refusal says why no plan is made, and what the user can do about it.
type Refusal = cni.Refusal

func refuse(hint, format string, args ...any) error {
	return &Refusal{Message: fmt.Sprintf(format, args...), Hint: hint}
}

// unadoptable refuses to adopt pods; hint, of joint.Anew, tells whether they can be created again.
func unadoptable(hint, message string) error {
	return &Refusal{Message: message, Hint: hint, Anew: true}
}

// Make plans a change, or returns a *Refusal. Findings are kept in the plan for the reader; whether they
// stop the change is decided before a plan is asked for.
func Make(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry, findings []finding.Finding, options Options) (*Plan, error) {
	p, err := construct(snapshot, change, drivers, findings, options)
	if err == nil {
		err = keepsSecrets(snapshot, p)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// construct makes the plan of the kind of change that is wanted.
func construct(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, drivers cni.Registry, findings []finding.Finding, options Options) (*Plan, error) {
	if change.Encapsulation != "" {
		return makeEncapsulation(snapshot, change, drivers, findings, options)
	}
	if change.Pool != "" {
		return makePool(snapshot, change, drivers, findings, options)
	}
	if change.Reflectors != "" {
		return makeReflectors(snapshot, change, drivers, findings, options)
	}
	if err := stranger(change); err != nil {
		return nil, err
	}
	if RollsOut(change) {
		return makeRollout(snapshot, change, drivers, findings, options)
	}
	if Upgrades(snapshot, change, drivers) {
		return makeUpgrade(snapshot, change, drivers, findings, options)
	}
	change, instead, err := choose(snapshot, change, drivers, options.Manifest)
	if err != nil {
		return nil, err
	}
	driver, err := wanted(change, drivers, options.Manifest)
	if err != nil {
		return nil, err
	}
	source, err := inPlace(snapshot, drivers)
	if err != nil {
		return nil, err
	}
	if err := nodesReady(snapshot, source); err != nil {
		return nil, err
	}
	var replaced *Surge
	var waves []joint.Wave
	if change.Strategy == surge.Name {
		replaced, waves, err = replacing(snapshot, change)
	} else {
		waves, err = countedWaves(snapshot, change)
	}
	if err != nil {
		return nil, err
	}
	target, outlook, err := bring(snapshot, change, driver, source, waves, options.Manifest)
	if err != nil {
		return nil, err
	}
	if err := housed(snapshot, target); err != nil {
		return nil, err
	}
	if err := dispensable(source); err != nil {
		return nil, err
	}
	if err := movable(outlook, source); err != nil {
		return nil, err
	}
	from, _ := drivers.Get(source.CNI)
	in := joint.Input{
		Snapshot: snapshot, Source: source, Target: target, Change: change, Waves: waves, Outlook: outlook,
		SourceResidue: from.Residue(source), TargetResidue: driver.Residue(&target.Installation),
	}
	strategy, why, steps := recreate.Name, reason(source, target), recreate.Steps
	if instead != "" {
		why = "pods cannot be adopted (" + instead + "), so each is created again; " + why
	}
	if change.Strategy == adopt.Name {
		strategy, why, steps = adopt.Name, adoptReason(source, target), adopt.Steps
	}
	if replaced != nil {
		strategy, why, steps = surge.Name, surgeReason, surgeSteps(replaced, change)
		outlook.Workloads = ofDaemons(outlook.Workloads)
	}
	p := begun(snapshot, change, options, strategy, why)
	p.Source, p.Target, p.Waves = *source, target.Installation, wavesOf(waves)
	p.Steps, p.Workloads, p.Findings, p.Surge = steps(in), workloadsOf(outlook.Workloads), findings, replaced
	return p.sealed(snapshot, source.CNI+"-to-"+change.To, outlook.PerNode)
}

// begun is a plan without its steps: what every plan says of itself.
func begun(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, options Options, strategy, reason string) *Plan {
	return &Plan{
		APIVersion: v1alpha1.APIVersion, Kind: Kind,
		Name: options.Name, Theseus: options.Version, MadeAt: metav1.NewTime(options.Now.UTC().Truncate(time.Second)), Flags: options.flags(),
		Cluster: describe(snapshot), Change: change, Strategy: strategy, Reason: reason,
	}
}

// sealed completes a plan that has its steps: what its gates hold besides, its estimate, for which pods are those of each
// node that move, a name that begins with stem where it has none, its hash; and verifies it.
func (p *Plan) sealed(snapshot *cluster.Snapshot, stem string, pods map[string][]estimate.Pod) (*Plan, error) {
	if err := holdSessions(snapshot, p); err != nil {
		return nil, err
	}
	if p.Mirror == nil { // whose steps have theirs
		estimate.Steps(p.Steps, len(p.Cluster.Nodes), pods)
	}
	for _, s := range p.Steps {
		p.Estimate += s.Estimate
	}
	if p.Name == "" {
		p.Name = stem + "-" + suffix(p)
	}
	p.Hash = Hash(p)
	if err := Verify(p); err != nil {
		return nil, fmt.Errorf("the plan that was made breaks a rule, which is a bug of Theseus: %w", err)
	}
	return p, nil
}

// suffix tells migrations of one cluster apart.
func suffix(p *Plan) string {
	sum := sha256.Sum256([]byte(p.Cluster.UID + p.Cluster.Fingerprint + p.Change.To + p.Change.PodCIDR + p.MadeAt.Format(time.RFC3339)))
	return hex.EncodeToString(sum[:3])
}

func describe(snapshot *cluster.Snapshot) Cluster {
	c := Cluster{UID: snapshot.UID, Kubernetes: snapshot.Kubernetes, Fingerprint: Fingerprint(snapshot), TakenAt: snapshot.TakenAt}
	for i := range snapshot.Nodes {
		c.Nodes = append(c.Nodes, snapshot.Nodes[i].Name)
	}
	return c
}

func reason(source *cni.Installation, target *cni.Target) string {
	return fmt.Sprintf("%s and %s have ranges, interfaces and tunnels of their own, so both can run on every node while pods move from one to the other",
		source.CNI, target.Installation.CNI)
}

func adoptReason(source *cni.Installation, target *cni.Target) string {
	return fmt.Sprintf("a pod can be moved from %s to %s while it runs, as %s gives an address to whoever asks for it and both keep off what is the other's",
		source.CNI, target.Installation.CNI, target.Installation.CNI)
}

// bring prepares the network to come, and says what happens to pods.
func bring(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, driver cni.Driver, source *cni.Installation, waves []joint.Wave,
	manifest []unstructured.Unstructured) (*cni.Target, joint.Outlook, error) {
	var outlook joint.Outlook
	if change.Strategy == adopt.Name {
		comes, err := adoptable(snapshot, driver, source, manifest)
		if err != nil {
			return nil, outlook, err
		}
		outlook = joint.Survey(snapshot, source.PodCIDRs, waves, adoption.Unfit(snapshot, source.Capabilities.Flat, comes.Orders))
		if clash := adopt.Apart(*source, outlook); clash != "" {
			return nil, outlook, unadoptable(joint.Anew(snapshot, *source, cni.Installation{}), clash)
		}
	} else {
		outlook = joint.Survey(snapshot, source.PodCIDRs, waves, nil)
	}
	target, err := driver.Install(Request(snapshot, change, source, outlook, manifest))
	if refused, ok := errors.AsType[*Refusal](err); ok {
		return nil, outlook, refused
	}
	if err != nil {
		return nil, outlook, fmt.Errorf("install %s: %w", driver.Name(), err)
	}
	if want, have := change.CNIVersion, target.Installation.Version; want != "" && want != have {
		return nil, outlook, refuse("give the manifest of the version that is wanted", "the manifest installs %s %s, not %s", change.To, have, want)
	}
	if change.Strategy == adopt.Name && (target.Adoption == nil || target.Installation.Capabilities.Attachment == nil) {
		return nil, outlook, unadoptable(joint.Anew(snapshot, *source, target.Installation), "it was never tried to give running pods to "+change.To)
	}
	for _, clash := range append(joint.Unranged(snapshot, target.Installation), joint.Clashes(*source, target.Installation)...) {
		if change.Strategy == adopt.Name && clash.ID == "overlap" {
			continue // the range is the same on purpose
		}
		return nil, outlook, refuse(clash.Hint, "%s", clash.Message)
	}
	if target.Conf.Active >= source.Capabilities.ConfName {
		return nil, outlook, refuse("rename the source's file so that it sorts later",
			"the target's CNI configuration %s would not be read before the source's %s", target.Conf.Active, source.Capabilities.ConfName)
	}
	return target, outlook, nil
}

// Request is what a driver is asked for by a change.
func Request(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, source *cni.Installation, outlook joint.Outlook,
	manifest []unstructured.Unstructured) cni.Request {
	request := cni.Request{Manifest: manifest, PodCIDR: change.PodCIDR, Source: source, NodeLabel: v1alpha1.LabelTarget, Defined: snapshot.Definitions()}
	if change.Strategy != adopt.Name || len(source.PodCIDRs) == 0 {
		return request
	}
	request.PodCIDR = source.PodCIDRs[0]
	bits, _ := adopt.NodeBits(snapshot, *source) // an error is a clash
	request.Takeover = &cni.Takeover{NodeBits: bits, Reserved: adopt.Reserved(snapshot, *source, outlook)}
	return request
}

func wanted(change v1alpha1.ChangeSpec, drivers cni.Registry, manifest []unstructured.Unstructured) (cni.Driver, error) {
	if change.To == "" {
		return nil, refuse("say --to with the network that is to come, or what changes in place: --dataplane, --pool, --encapsulation or --reflectors", "no target network is given")
	}
	driver, ok := drivers.Get(change.To)
	switch {
	case !ok:
		return nil, Unknown(change.To, drivers)
	case change.Strategy != "" && !slices.Contains([]string{recreate.Name, adopt.Name, surge.Name}, change.Strategy):
		return nil, refuse("use --strategy recreate, adopt or surge, or leave it out", "the strategy %q is not available for this change", change.Strategy)
	case len(manifest) == 0:
		return nil, refuse("say --manifest with the file that installs it, as for a new cluster", "no manifest of %s is given", change.To)
	case change.Strategy != adopt.Name && change.PodCIDR == "":
		return nil, refuse("say --pod-cidr with a free range, such as 10.96.0.0/16", "no range for the pods of %s is given", change.To)
	}
	if err := agentGiven(change); err != nil {
		return nil, err
	}
	return driver, nil
}

// Unknown refuses a network to come that no driver knows.
func Unknown(network string, drivers cni.Registry) error {
	return refuse("known are: "+strings.Join(drivers.Names(), ", ")+"; docs/networks.md says which can be the one to come", "the network %q is not known", network)
}

// countedWaves divides the nodes as the change counts them, or refuses to.
func countedWaves(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec) ([]joint.Wave, error) {
	waves, err := joint.Waves(snapshot, change.Waves)
	if err != nil {
		return nil, refuse("let the last of --waves be 0, which stands for all nodes that remain", "%v", err)
	}
	return waves, nil
}

func wavesOf(waves []joint.Wave) []Wave {
	all := make([]Wave, 0, len(waves))
	for _, w := range waves {
		all = append(all, Wave(w))
	}
	return all
}

func workloadsOf(workloads []joint.Workload) []Workload {
	all := make([]Workload, 0, len(workloads))
	for _, w := range workloads {
		all = append(all, Workload{Kind: w.Kind, Namespace: w.Namespace, Name: w.Name, Pods: w.Pods,
			Treatment: w.Treatment, Budget: w.Budget, Note: w.Note})
	}
	return all
}

// Hash is a plan's identity: the SHA-256, in hex, of its canonical form without the hash itself. Whatever the order of keys, a plan that
// was written and read again has the same.
func Hash(p *Plan) string {
	hash, err := identity(p)
	if err != nil {
		return "unhashable: " + err.Error()
	}
	return hash
}

func identity(p *Plan) (string, error) {
	bare := *p
	bare.Hash, bare.Steps = "", nil
	var err error
	if bare.Findings, err = asRead(p.Findings); err != nil {
		return "", err
	}
	parts := make([]any, 0, 1+len(p.Steps)) // one form after the other: the plan of a large cluster is not held as a tree
	parts = append(parts, bare)
	for i := range p.Steps {
		parts = append(parts, &p.Steps[i])
	}
	return canonical.Hash(parts...)
}

// asRead are findings as they are read back from a file: what one rests on may be of any type, and comes back as a more general one.
func asRead(findings []finding.Finding) (read []finding.Finding, err error) {
	data, err := json.Marshal(findings)
	if err == nil {
		err = json.Unmarshal(data, &read)
	}
	return read, err
}
