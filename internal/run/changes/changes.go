package changes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/record"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

const (
	// pollEvery is the interval at which Changes and Migrations are read.
	pollEvery = 3 * time.Second
	// callTimeout bounds a call to the API server.
	callTimeout = 10 * time.Second
)

var resource = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
	Resource: manifest.Plural("Change")}

// Planner makes plans for the Changes of a cluster, one at a time.
type Planner struct {
	Client *kube.Client
	// Holder names this process for the lock.
	Holder string
	// Memory is what this process may use.
	Memory admission.Memory
	// AgentImage is the image of the agent for Changes that name none; "" if this build knows none.
	AgentImage string
	// Version is that of this program.
	Version string
	// Out gets a line for everything that happens.
	Out io.Writer
	// Events records events; it may be nil.
	Events record.EventRecorder
	// Snapshot reads the cluster; nil means kube.Snapshot.
	Snapshot func(context.Context) (*cluster.Snapshot, error)

	looked  map[string]Looked // by UID of the Change
	sources map[string]read   // the same
	plans   map[string]*facts // by hash; nil for a plan that cannot be read
	said    string            // the last error of a turn
}

// Run looks after Changes until ctx ends.
func (p *Planner) Run(ctx context.Context) {
	for {
		err := p.turn(ctx)
		text := ""
		if err != nil && ctx.Err() == nil {
			text = outage.Steady(err).Error()
		}
		if text != "" && text != p.said {
			p.say("changes: %s", text)
		}
		p.said = text
		if outage.Sleep(ctx, pollEvery) != nil {
			return
		}
	}
}

// turn looks at every Change once. It makes at most one plan.
func (p *Planner) turn(ctx context.Context) error {
	if p.looked == nil {
		p.looked, p.sources, p.plans = map[string]Looked{}, map[string]read{}, map[string]*facts{}
	}
	all, err := p.list(ctx)
	if err != nil {
		return err
	}
	migrations, err := journal.List(ctx, p.Client.Dynamic)
	if err != nil {
		return err
	}
	var failures []error
	for _, orphan := range orphans(migrations, all) {
		failures = append(failures, p.withdraw(ctx, orphan, "its Change was deleted"))
	}
	p.forget(all, migrations)
	inOrder(all)
	for i := range all[min(len(all), maxChanges):] {
		failures = append(failures, p.write(ctx, &all[maxChanges+i], tooMany(), nil))
	}
	for i := range all[:min(len(all), maxChanges)] {
		change := &all[i]
		if change.DeletionTimestamp != nil {
			continue
		}
		acted, err := p.follow(ctx, change, migrations)
		failures = append(failures, err)
		if acted { // the Migrations are others by now
			break
		}
	}
	return errors.Join(failures...)
}

// forget drops what is known about objects that were deleted.
func (p *Planner) forget(changes []v1alpha1.Change, migrations []v1alpha1.Migration) {
	gone := func(uid string) bool {
		return !slices.ContainsFunc(changes, func(c v1alpha1.Change) bool { return string(c.UID) == uid })
	}
	maps.DeleteFunc(p.looked, func(uid string, _ Looked) bool { return gone(uid) })
	maps.DeleteFunc(p.sources, func(uid string, _ read) bool { return gone(uid) })
	maps.DeleteFunc(p.plans, func(hash string, _ *facts) bool {
		return !slices.ContainsFunc(migrations, func(m v1alpha1.Migration) bool { return m.Spec.PlanHash == hash })
	})
}

// follow handles a Change. acted is true if the Migrations may have changed.
func (p *Planner) follow(ctx context.Context, change *v1alpha1.Change,
	migrations []v1alpha1.Migration) (acted bool, err error) {
	defer func() { // this process may run a migration, which a manifest of a user must not end
		if r := recover(); r != nil {
			p.looked[string(change.UID)] = Looked{change.Generation, "", time.Now()}
			err = fmt.Errorf("the planner failed on Change %s, which is a bug of Theseus: %v", change.Name, r)
		}
	}()
	s := Situation{Change: change, Looked: p.looked[string(change.UID)], Now: time.Now()}
	s.Own, s.Other = split(change, migrations)
	var source source
	waits := s.Other != nil && (s.Own == nil || over(s.Own))
	// no manifest of a user is read while a run is under way
	if !waits && (s.Own == nil || over(s.Own) || !started(s.Own)) {
		if source, err = p.manifest(ctx, change); err != nil {
			return false, err
		}
		s.ManifestDigest = source.digest
	}
	decision := Decide(s)
	if source.problem != nil && (decision.Do == Plan || decision.Do == Leave) { // it is read again soon
		return false, p.write(ctx, change, *source.problem, nil)
	}
	switch decision.Do {
	case Tell:
		return false, p.tell(ctx, change, s.Own)
	case Wait:
		delete(p.looked, string(change.UID)) // it is planned as soon as the other has ended
		return false, p.write(ctx, change, waiting(s.Other), nil)
	case Compare:
		p.looked[string(change.UID)] = Looked{change.Generation, s.ManifestDigest, s.Now}
		changed, err := p.compare(ctx, s.Own)
		if err != nil || changed == "" {
			return false, errors.Join(err, p.tell(ctx, change, s.Own))
		}
		decision = Decision{Replan, v1alpha1.ReasonStale, changed}
		return true, p.replan(ctx, change, s.Own, source, decision)
	case Replan:
		return true, p.replan(ctx, change, s.Own, source, decision)
	case Plan:
		return true, p.plan(ctx, change, source)
	}
	return false, nil
}

// tell writes the status that follows from a Migration.
func (p *Planner) tell(ctx context.Context, change *v1alpha1.Change, own *v1alpha1.Migration) error {
	made, err := p.planOf(ctx, own)
	if err != nil {
		return err
	}
	return p.write(ctx, change, of(change, own, made), own)
}

// planOf are the facts of a Migration's plan, which is read once; nil if it cannot be read.
func (p *Planner) planOf(ctx context.Context, own *v1alpha1.Migration) (*facts, error) {
	if facts, ok := p.plans[own.Spec.PlanHash]; ok {
		return facts, nil
	}
	made, _, err := journal.LoadWithin(ctx, p.Client.Dynamic, own.Name, p.Memory.PlanBytes())
	if apierrors.IsNotFound(err) || err != nil && passes(err) {
		return nil, err
	}
	if err != nil {
		return p.learn(own.Spec.PlanHash, nil), nil
	}
	return p.learn(own.Spec.PlanHash, known(made)), nil
}

// compare says what has changed in the cluster since the plan of a Migration was made; "" if nothing has.
func (p *Planner) compare(ctx context.Context, own *v1alpha1.Migration) (string, error) {
	made, err := p.planOf(ctx, own)
	if err != nil || made == nil {
		return "", err
	}
	snapshot, err := p.snapshot(ctx)
	if err != nil {
		return "", err
	}
	stale := plan.Stale(made.cluster, snapshot)
	if len(stale) == 0 {
		return "", nil
	}
	return "the cluster has changed since the plan was made: " + joined(stale), nil
}

// replan withdraws a Migration that has not begun, and makes another plan. It does nothing if another process was
// faster: the next turn decides again.
func (p *Planner) replan(ctx context.Context, change *v1alpha1.Change, own *v1alpha1.Migration,
	from source, why Decision) error {
	lapsed := "Approvals of the plan " + own.Spec.PlanHash + " do not count for the next one"
	withdrawn := false
	err := p.locked(ctx, func(ctx context.Context, client *kube.Client) error {
		seen, err := readChange(ctx, client, change.Name)
		if err != nil || seen.ResourceVersion != change.ResourceVersion {
			return ignoreNotFound(err)
		}
		now, err := journal.Get(ctx, client.Dynamic, own.Name) // a user may have changed its windows
		if err != nil || now.UID != own.UID || started(now) {
			return ignoreNotFound(err)
		}
		kept := keep(change, now)
		if kept != nil {
			why.Why += ". The next plan gets the windows that a user gave to it"
		}
		next := unplanned(why.Reason, why.Why+"; planning again. "+lapsed)
		next.withdraws, next.windows = true, kept
		// before the Migration is gone: another process may make the next plan
		if written, err := p.put(ctx, client, change, next, nil); err != nil || !written {
			return err
		}
		err = journal.Withdraw(ctx, client.Dynamic, now)
		withdrawn = err == nil
		return ignoreNotFound(err)
	})
	if err != nil || !withdrawn {
		return err
	}
	p.say("%s: withdrawn: %s", own.Name, why.Why)
	kind := corev1.EventTypeNormal
	if why.Reason == v1alpha1.ReasonStale {
		kind = corev1.EventTypeWarning
	}
	p.event(change, kind, "Withdrawn", "withdrew Migration "+own.Name+": "+why.Why+". "+lapsed)
	return p.plan(ctx, change, from)
}

// keep returns the windows that a user gave to a Migration which is withdrawn, for the next one; nil if there are none.
func keep(change *v1alpha1.Change, own *v1alpha1.Migration) *v1alpha1.KeptWindows {
	theirs, users := usersWindows(change, own)
	if !users {
		return nil
	}
	return &v1alpha1.KeptWindows{Given: theirs, Of: change.Spec.Windows}
}

// usersWindows returns the windows that a user gave to a Migration, maybe none; false if it has those of its Change, or
// if those were edited since the Migration was made. A Migration that an earlier release made for a Change with windows
// does not say which these were: they count as the Change's.
func usersWindows(change *v1alpha1.Change, own *v1alpha1.Migration) ([]v1alpha1.Window, bool) {
	origin, _ := journal.OriginOf(own)
	if origin.Windows && origin.Given == nil {
		return nil, false
	}
	return own.Spec.Windows, equal(origin.Given, change.Spec.Windows) && !equal(origin.Given, own.Spec.Windows)
}

func equal(a, b []v1alpha1.Window) bool {
	return len(a) == 0 && len(b) == 0 || alike(a, b)
}

// withdraw deletes a Migration that has not begun. Another process that holds the lock is no error: a later turn tries
// again.
func (p *Planner) withdraw(ctx context.Context, m *v1alpha1.Migration, why string) error {
	err := p.locked(ctx, func(ctx context.Context, client *kube.Client) error {
		return journal.Withdraw(ctx, client.Dynamic, m)
	})
	if err == nil {
		p.say("%s: withdrawn: %s", m.Name, why)
	}
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// locked calls do while this process holds the lock on the cluster.
func (p *Planner) locked(ctx context.Context, do func(context.Context, *kube.Client) error) error {
	lease, held, err := journal.Acquire(ctx, run.Leases(p.Client), p.Holder)
	if err != nil {
		return err
	}
	defer lease.Release(context.WithoutCancel(ctx)) //nolint:errcheck // a lock that is not released expires
	fenced, err := p.Client.Fenced(lease.Check)
	if err != nil {
		return err
	}
	return do(held, fenced)
}

// list reads all Changes, of those after the first maxChanges little more than their names. A cluster without their CRD
// has none.
func (p *Planner) list(ctx context.Context) ([]v1alpha1.Change, error) {
	var all []v1alpha1.Change
	options := metav1.ListOptions{Limit: listPage}
	for {
		list, err := p.page(ctx, options)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("listing Changes: %w", err)
		}
		for i := range list.Items {
			var one v1alpha1.Change
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &one); err != nil {
				return nil, fmt.Errorf("Change %s: %w", list.Items[i].GetName(), err)
			}
			all = append(all, one)
		}
		bare(all)
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// readChange reads one Change.
func readChange(ctx context.Context, client *kube.Client, name string) (*v1alpha1.Change, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	object, err := client.Dynamic.Resource(resource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading Change %s: %w", name, err)
	}
	var change v1alpha1.Change
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &change); err != nil {
		return nil, fmt.Errorf("Change %s: %w", name, err)
	}
	return &change, nil
}

// page reads one page of the list of Changes.
func (p *Planner) page(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return p.Client.Dynamic.Resource(resource).List(ctx, options)
}

// write is put for callers whose next turn decides again in any case.
func (p *Planner) write(ctx context.Context, change *v1alpha1.Change, d draft, own *v1alpha1.Migration) error {
	_, err := p.put(ctx, p.Client, change, d, own)
	return err
}

// put writes the status of a Change, if it differs. It writes nothing, and is false, if another process has written the
// Change since it was read. The Change is updated as well. An event tells a new reason why it has no plan.
func (p *Planner) put(ctx context.Context, client *kube.Client, change *v1alpha1.Change, d draft,
	own *v1alpha1.Migration) (bool, error) {
	next := d.status(change, own, time.Now())
	if alike(next, change.Status) {
		return true, nil
	}
	news := !same(change.Status.Conditions, next.Conditions)
	if news || change.Status.PlanHash != next.PlanHash {
		p.say("Change %s: %s", change.Name, d.message)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.Change{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Change"},
		ObjectMeta: metav1.ObjectMeta{Name: change.Name, UID: change.UID, ResourceVersion: change.ResourceVersion},
		Status:     next, // the API server keeps the spec
	})
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	written, err := client.Dynamic.Resource(resource).UpdateStatus(ctx, &unstructured.Unstructured{Object: object},
		metav1.UpdateOptions{FieldManager: manifest.ControllerName})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil // edited or deleted meanwhile: the next turn decides again
	}
	if err != nil {
		return false, fmt.Errorf("writing the status of Change %s: %w", change.Name, err)
	}
	change.Status, change.ResourceVersion = next, written.GetResourceVersion()
	if kind := d.kind(); news && kind != "" {
		message := d.message
		if len(d.next) > 0 {
			message = cut(message, maxEvent/2) + "; " + d.next[0]
		}
		p.event(change, kind, d.reason, message)
	}
	return true, nil
}

// same reports whether Planned has the same status and reason in both lists.
func same(a, b []metav1.Condition) bool {
	find := func(all []metav1.Condition) metav1.Condition {
		for _, c := range all {
			if c.Type == v1alpha1.ConditionPlanned {
				return metav1.Condition{Status: c.Status, Reason: c.Reason}
			}
		}
		return metav1.Condition{}
	}
	return find(a) == find(b)
}

// alike compares two values as JSON.
func alike(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// event records an event of a Change.
func (p *Planner) event(change *v1alpha1.Change, kind, reason, message string) {
	if p.Events == nil {
		return
	}
	about := &corev1.ObjectReference{APIVersion: v1alpha1.APIVersion, Kind: "Change",
		Name: change.Name, UID: change.UID}
	p.Events.Event(about, kind, reason, cut(message, maxEvent))
}

func (p *Planner) say(format string, args ...any) {
	fmt.Fprintf(p.Out, "%s  %s\n", time.Now().UTC().Format(time.RFC3339), fmt.Sprintf(format, args...))
}
