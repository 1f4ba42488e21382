package changes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/run/propose"
	"github.com/theseus-cni/theseus/internal/run/window"
)

// retryAfter is how long a Change is left alone after an error that may go away by itself.
const retryAfter = 30 * time.Second

// source is the manifests of a Change, without their objects: those of many Changes may need more memory than there is.
type source struct {
	digest  string // SHA-256 of their text, in hex; "" if the Change has none, or if they cannot be read
	problem *draft // why there are none that can be used; nil if they can
}

// read is a source as it was read for a version of a Change.
type read struct {
	source
	generation int64
	at         time.Time
}

// readEvery is the interval at which the ConfigMap of a Change is read.
const readEvery = 15 * time.Second

// manifest reads the manifests of a Change.
func (p *Planner) manifest(ctx context.Context, change *v1alpha1.Change) (source, error) {
	known, ok := p.sources[string(change.UID)]
	if ok && known.generation == change.Generation && time.Since(known.at) < readEvery {
		return known.source, nil
	}
	text, problem, err := p.text(ctx, change.Spec.ManifestFrom)
	if err != nil {
		return source{}, err
	}
	next := read{source{problem: problem}, change.Generation, time.Now()}
	switch {
	case problem != nil || change.Spec.ManifestFrom == nil:
	case ok && known.digest == digestOf(text) && known.problem == nil:
		next.source = known.source
	default:
		_, next.source = decode(text)
	}
	p.sources[string(change.UID)] = next
	return next.source, nil
}

// text is the manifests as YAML. problem says why there is none.
func (p *Planner) text(ctx context.Context, from *v1alpha1.ManifestSource) (text string, problem *draft, err error) {
	if from == nil || from.ConfigMap == "" {
		if from != nil {
			text = from.Inline
		}
		return text, nil, nil
	}
	missing := func(format string, args ...any) *draft {
		d := unplanned(v1alpha1.ReasonManifestMissing, fmt.Sprintf(format, args...),
			fmt.Sprintf("create it: kubectl create configmap %s -n %s --from-file=FILE; then the controller plans "+
				"again", from.ConfigMap, v1alpha1.Namespace))
		return &d
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := p.Client.Typed.CoreV1().ConfigMaps(v1alpha1.Namespace).Get(ctx, from.ConfigMap, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", missing("there is no ConfigMap %s/%s, which spec.manifestFrom names",
			v1alpha1.Namespace, from.ConfigMap), nil
	}
	if err != nil {
		return "", nil, fmt.Errorf("reading ConfigMap %s: %w", from.ConfigMap, err)
	}
	all := maps.Clone(found.Data)
	if all == nil {
		all = map[string]string{}
	}
	for key, data := range found.BinaryData {
		all[key] = string(data)
	}
	keys := slices.Sorted(maps.Keys(all))
	switch {
	case from.Key == "" && len(keys) == 1:
		return all[keys[0]], nil, nil
	case from.Key == "":
		return "", missing("ConfigMap %s has %s, so spec.manifestFrom.key must name one: %s", from.ConfigMap,
			cluster.Count(len(keys), "key"), strings.Join(keys, ", ")), nil
	case !slices.Contains(keys, from.Key):
		return "", missing("ConfigMap %s has no key %s, which spec.manifestFrom names; its keys are %s", from.ConfigMap,
			from.Key, strings.Join(keys, ", ")), nil
	}
	return all[from.Key], nil, nil
}

// objects are the manifests of a Change, if they still are those of a source.
func (p *Planner) objects(ctx context.Context, change *v1alpha1.Change,
	from source) ([]unstructured.Unstructured, *draft, error) {
	if change.Spec.ManifestFrom == nil {
		return nil, nil, nil
	}
	text, problem, err := p.text(ctx, change.Spec.ManifestFrom)
	if problem != nil || err != nil {
		return nil, problem, err
	}
	if digestOf(text) != from.digest {
		delete(p.sources, string(change.UID))
		return nil, nil, errors.New("the manifest was edited while the plan was made")
	}
	objects, read := decode(text)
	return objects, read.problem, nil
}

// decode reads manifests.
func decode(text string) ([]unstructured.Unstructured, source) {
	objects, err := kube.DecodeObjects("the manifest", strings.NewReader(text))
	if err == nil {
		err = propose.NoSecrets(objects)
	}
	if err != nil {
		d := unplanned(v1alpha1.ReasonManifestInvalid, err.Error(), hints(err)...)
		return nil, source{digest: digestOf(text), problem: &d}
	}
	return objects, source{digest: digestOf(text)}
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// hints are what a person can do about an error; none if that is not known.
func hints(err error) []string {
	if hint := propose.HintOf(err); hint != "" {
		return []string{hint}
	}
	return nil
}

// plan makes a plan for a Change, and writes it to the cluster as a Migration that waits for its approval; or writes
// why not. The Migration gets the windows of the Change, or those that a user gave to the one that it replaces.
func (p *Planner) plan(ctx context.Context, change *v1alpha1.Change, from source) error {
	p.looked[string(change.UID)] = Looked{change.Generation, from.digest, time.Now()}
	if change.Status.ObservedGeneration != change.Generation || len(change.Status.Conditions) == 0 {
		if err := p.write(ctx, change,
			unplanned(v1alpha1.ReasonPlanning, "the controller reads the cluster and makes a plan"), nil); err != nil {
			return err
		}
	}
	windows := change.Spec.Windows
	if kept := change.Status.Windows; kept != nil && equal(kept.Of, windows) {
		windows = kept.Given
	}
	made, why, err := p.propose(ctx, change, from)
	var own *v1alpha1.Migration
	if err == nil && made != nil {
		own, why, err = p.enter(ctx, change, from, made, windows)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		p.looked[string(change.UID)] = Looked{change.Generation, from.digest, time.Now().Add(retryAfter - againEvery)}
		again := "the controller tries again in " + retryAfter.String()
		d := unplanned(v1alpha1.ReasonRetrying, err.Error(), append(hints(err), again)...)
		if reason, hint := admission.Cause(err); reason != "" {
			d = unplanned(reason, err.Error(), hint, again)
		}
		return errors.Join(err, p.write(ctx, change, d, nil))
	case why != nil:
		return p.write(ctx, change, *why, nil)
	case own == nil: // the Change was edited meanwhile
		return nil
	}
	p.event(change, corev1.EventTypeNormal, v1alpha1.ReasonPlanned,
		"Migration "+own.Name+" has the plan "+own.Spec.PlanHash+", which waits for its approval")
	return p.write(ctx, change, of(change, own, p.learn(own.Spec.PlanHash, known(made))), own)
}

// propose makes a plan; or says why not.
func (p *Planner) propose(ctx context.Context, change *v1alpha1.Change, from source) (*plan.Plan, *draft, error) {
	if from.problem != nil {
		return nil, from.problem, nil
	}
	spec := change.Spec
	if spec.AgentImage == "" {
		spec.AgentImage = p.AgentImage
	}
	if whatif.Asked(spec) {
		d := unplanned(v1alpha1.ReasonInvalid, "a plan only changes the network",
			"use kubernetesTo, removeLabels, addLabels, labelNodes, clusterIDs and replaceNodes "+
				"only with `theseus check`")
		return nil, &d, nil
	}
	if _, err := window.Of(spec.Windows); err != nil {
		d := unplanned(v1alpha1.ReasonInvalid, err.Error(), "correct spec.windows of this Change")
		return nil, &d, nil
	}
	spec.Windows = nil // they are about the run, and not part of the plan
	nodes, err := p.nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := p.Memory.FitsNodes(nodes); err != nil {
		return nil, why(err), nil
	}
	snapshot, err := p.snapshot(ctx)
	if err != nil {
		return nil, nil, err
	}
	options := propose.Options(spec, time.Now())
	options.Skip = map[string]string{propose.CheckOfRights: "the controller gets the permissions for " +
		"a plan once the plan exists"}
	objects, problem, err := p.objects(ctx, change, from)
	if problem != nil || err != nil {
		return nil, problem, err
	}
	checked, err := propose.Check(propose.Input{Snapshot: snapshot, Change: spec, Manifest: objects, Options: options})
	if err != nil {
		return nil, why(err), nil
	}
	if checked.Unnamed != nil {
		return nil, why(checked.Unnamed), nil
	}
	if checked.Result.Blocks() {
		d := blocked(checked.Result, admission.Blocking(checked.Result))
		return nil, &d, nil
	}
	if spec.ManifestFrom != nil { // the plan has what came of it, and the origin its digest
		spec.ManifestFrom = &v1alpha1.ManifestSource{ConfigMap: spec.ManifestFrom.ConfigMap, Key: spec.ManifestFrom.Key}
	}
	made, err := propose.Plan(checked, spec, plan.Options{Version: p.Version, Now: time.Now()})
	if err == nil {
		err = admission.InCluster(made)
	}
	if err == nil {
		if err := kube.AddWritten(ctx, p.Client, snapshot, made.Steps); err != nil {
			return nil, nil, err
		}
		if fresh := propose.Planned(&checked, made, options); fresh.Blocks() {
			d := blocked(fresh, admission.Blocking(fresh))
			return nil, &d, nil
		}
	}
	if err == nil {
		err = p.fits(made)
	}
	if err != nil {
		d := why(err)
		d.findings = checked.Result.Findings
		return nil, d, nil
	}
	return made, nil, nil
}

// fits returns an error if a plan is too large for the cluster, or for the controller that will read it.
func (p *Planner) fits(made *plan.Plan) error {
	size, err := journal.Fits(made)
	if err != nil {
		return err
	}
	for i := range made.Steps { // a plan is read with its steps written out
		text, err := json.Marshal(&made.Steps[i])
		if err != nil {
			return err
		}
		size += len(text)
	}
	return p.Memory.FitsPlan(made.Name, size)
}

// why is the status for an error of planning.
func why(err error) *draft {
	reason := v1alpha1.ReasonRefused
	var refusal *admission.Refusal
	if _, invalid := errors.AsType[propose.Invalid](err); invalid {
		reason = v1alpha1.ReasonInvalid
	} else if errors.As(err, &refusal) {
		reason = refusal.Reason
	}
	next := hints(err)
	if _, refused := errors.AsType[*cni.Refusal](err); refused && len(next) > 0 && strings.Contains(next[0], "--") {
		next = append(next, "flags of the command line are fields of spec here, such as podCIDR for --pod-cidr")
	}
	d := unplanned(reason, err.Error(), next...)
	return &d
}

// errTaken says that another migration began while a plan was made.
var errTaken = errors.New("another migration has not ended")

// enter writes a plan to the cluster as a Migration. It returns neither if the Change was edited meanwhile, or if
// another process has kept the windows of a user in it since it was read, or used them.
func (p *Planner) enter(ctx context.Context, change *v1alpha1.Change, from source, made *plan.Plan,
	windows []v1alpha1.Window) (*v1alpha1.Migration, *draft, error) {
	origin := v1alpha1.ChangeOrigin{Name: change.Name, UID: string(change.UID), Generation: change.Generation,
		ManifestDigest: from.digest, Windows: len(change.Spec.Windows) > 0, Given: change.Spec.Windows}
	edited := false
	err := p.locked(ctx, func(ctx context.Context, client *kube.Client) error {
		all, err := journal.List(ctx, client.Dynamic)
		if err != nil {
			return err
		}
		own, other := split(change, all)
		if other != nil || own != nil && !over(own) {
			return errTaken
		}
		now, err := readChange(ctx, client, change.Name)
		edited = apierrors.IsNotFound(err) || err == nil && (now.UID != change.UID ||
			now.Generation != change.Generation || now.DeletionTimestamp != nil ||
			!alike(now.Status.Windows, change.Status.Windows))
		if err != nil || edited {
			return err
		}
		return journal.CreateForChange(ctx, client.Dynamic, made, origin, windows...)
	})
	if edited || errors.Is(err, errTaken) { // the next turn decides again
		delete(p.looked, string(change.UID))
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	own, err := journal.Get(ctx, p.Client.Dynamic, made.Name)
	return own, nil, err
}

// nodes is the number of nodes. It reads one of them.
func (p *Planner) nodes(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := p.Client.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("counting nodes: %w", err)
	}
	more := int64(0)
	if list.RemainingItemCount != nil {
		more = *list.RemainingItemCount
	}
	return int64(len(list.Items)) + more, nil
}

// snapshot reads the cluster.
func (p *Planner) snapshot(ctx context.Context) (*cluster.Snapshot, error) {
	if p.Snapshot != nil {
		return p.Snapshot(ctx)
	}
	return admission.Snapshot(ctx, p.Client, p.Version, nil)
}

// passes reports whether an error may go away by itself.
func passes(err error) bool {
	return errors.Is(err, engine.ErrUnavailable) || errors.Is(err, engine.ErrRefused) ||
		errors.Is(err, context.Canceled) || outage.Passes(err)
}

func joined(all []string) string { return strings.Join(all, "; ") }

// facts are what a status needs of a plan. A plan itself may have many megabytes.
type facts struct {
	summary  []string
	findings []finding.Finding
	// cluster is a plan with the cluster alone, for plan.Stale.
	cluster *plan.Plan
}

// maxFacts bounds the plans of which the facts are kept. The facts of others are read again.
const maxFacts = 20

// learn keeps the facts of a plan; nil stands for a plan that cannot be read.
func (p *Planner) learn(hash string, about *facts) *facts {
	if len(p.plans) >= maxFacts {
		clear(p.plans)
	}
	p.plans[hash] = about
	return about
}

// known are the facts of a plan.
func known(p *plan.Plan) *facts {
	return &facts{summary(p), p.Findings, &plan.Plan{Cluster: p.Cluster}}
}
