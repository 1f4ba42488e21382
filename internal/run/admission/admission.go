package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Request is a plan that is about to begin.
type Request struct {
	Client *kube.Client
	Plan   *plan.Plan
	// Entered is true if the plan's Migration is in the cluster already, without a record: only other migrations count
	// as unfinished then.
	Entered bool
	// Holder is the name under which this process holds the lock; "" if it does not.
	Holder string
	// Version is that of this program.
	Version string
	// Waiting gets the reason why a call is retried while the API server is unavailable; it may be nil.
	Waiting func(error)
	// Say gets what Alone waits for, before it does; it may be nil.
	Say func(string)
}

// Refusal says why a plan may not begin.
type Refusal struct {
	// Reason is one of the reasons of v1alpha1.ConditionDegraded.
	Reason string
	// Result has the findings that block the change, if the reason is Blocked or RightsMissing.
	Result finding.Result
	err    error
	hint   string
}

func (r *Refusal) Error() string { return r.err.Error() }
func (r *Refusal) Unwrap() error { return r.err }

// Hint says what to do about it.
func (r *Refusal) Hint() string { return r.hint }

// Refuse is the refusal of a plan, for one of the reasons of v1alpha1.ConditionDegraded.
func Refuse(reason, hint, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, err: fmt.Errorf(format, args...), hint: hint}
}

// newPlan is the hint where only another plan helps.
const newPlan = "make a new plan with `theseus plan`"

// Check returns a *Refusal if the plan may not begin, and another error if that cannot be determined. The plan is one
// of this cluster's nodes (Plan.OnNodes).
func Check(ctx context.Context, r Request) error {
	snapshot, err := Snapshot(ctx, r.Client, r.Version, r.Waiting)
	if err != nil {
		return err
	}
	if err := madeFor(r.Plan, snapshot.UID); err != nil {
		return err
	}
	if err := Alone(ctx, r); err != nil {
		return err
	}
	if err := AskRights(ctx, r.Client, snapshot, r.Plan); err != nil {
		return err
	}
	// New blocking findings may have appeared since the plan was made, and another user may have made it.
	p := r.Plan
	if err := kube.AddWritten(ctx, r.Client, snapshot, p.Steps); err != nil {
		return err
	}
	pass := &check.Pass{Snapshot: snapshot, Change: p.Change, Found: drivers.All().Detect(snapshot),
		Source: &p.Source, Steps: p.Steps}
	if !p.InPlace() {
		pass.Target = &p.Target
	}
	result := preflight.Run(preflight.All(), pass,
		preflight.Options{Accept: p.Change.Accept, Accepted: p.Change.Accepted, Now: time.Now()})
	if result.Blocks() {
		return blocked(result)
	}
	if stale := plan.Stale(p, snapshot); len(stale) > 0 {
		return Refuse(v1alpha1.ReasonStalePlan, newPlan, "the cluster has changed since the plan was made: %s",
			strings.Join(stale, "; "))
	}
	return nil
}

// SameCluster returns a *Refusal if a plan was made for another cluster, and another error if that cannot be
// determined. A journal in the cluster does not show it: that may come from a backup of another one.
func SameCluster(ctx context.Context, client *kube.Client, p *plan.Plan) error {
	if !p.OnNodes() {
		return nil // the identities of both clusters are compared once they are reached
	}
	var uid string
	err := outage.Retry(ctx, journal.Patience.Reading(), nil, func(ctx context.Context) (err error) {
		uid, err = client.ClusterUID(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("reading which cluster this is: %w", err)
	}
	return madeFor(p, uid)
}

// madeFor returns a *Refusal if a plan was made for a cluster other than the one with the UID.
func madeFor(p *plan.Plan, uid string) error {
	if uid == p.Cluster.UID {
		return nil
	}
	return Refuse(v1alpha1.ReasonWrongCluster, "choose the cluster with --context, or make a new plan for this one",
		"the plan was made for another cluster (%s, this is %s)", p.Cluster.UID, uid)
}

// CheckRights returns a *Refusal if this user lacks permissions for the steps of a plan, and another error if that
// cannot be determined. It is for plans that Check is not for.
func CheckRights(ctx context.Context, r Request) error {
	known, err := kube.NeededRights(ctx, r.Client)
	if err != nil {
		return err
	}
	snapshot := &cluster.Snapshot{Sources: []cluster.Source{{Resource: "rights"}}, Rights: known}
	if err := AskRights(ctx, r.Client, snapshot, r.Plan); err != nil {
		return err
	}
	checks := slices.DeleteFunc(preflight.All(), func(c check.Check) bool { return c.ID != rights })
	result := preflight.Run(checks, &check.Pass{Snapshot: snapshot}, preflight.Options{Accept: r.Plan.Change.Accept,
		Accepted: r.Plan.Change.Accepted, Now: time.Now()})
	if result.Blocks() {
		return blocked(result)
	}
	return nil
}

// AskRights asks whether this user has the permissions for a plan, in addition to those for any change.
func AskRights(ctx context.Context, client *kube.Client, snapshot *cluster.Snapshot, p *plan.Plan) error {
	if ok, _ := snapshot.Has("rights"); !ok {
		return nil // the check of rights reports why
	}
	more, err := kube.Rights(ctx, client, snapshot.Rights, p.Steps, plan.UsesOf(p)...)
	snapshot.Rights = append(snapshot.Rights, more...)
	return err
}

// LacksRights reports whether a permission is missing.
func (r *Refusal) LacksRights() bool {
	return slices.ContainsFunc(Blocking(r.Result), func(f finding.Finding) bool { return f.ID == rights })
}

// blocked is the refusal for findings. If only permissions are missing, its reason says so.
func blocked(result finding.Result) *Refusal {
	refusal := Refuse(v1alpha1.ReasonRightsMissing,
		"fix the findings, then apply again; or accept them in a new plan: theseus plan --accept ID=REASON",
		"findings block this change: %d", result.Summary.Block)
	refusal.Result = result
	for _, f := range Blocking(result) {
		if f.ID != rights {
			refusal.Reason = v1alpha1.ReasonBlocked
		}
	}
	return refusal
}

// rights is the ID of the check of permissions.
const rights = "api/rights"

// Blocking returns the findings that block a change.
func Blocking(result finding.Result) []finding.Finding {
	var all []finding.Finding
	for _, f := range result.Findings {
		if f.Severity == finding.Block && f.Accepted == "" {
			all = append(all, f)
		}
	}
	return all
}

// Alone returns a *Refusal while another migration has not ended, or if this one has begun. It takes some seconds
// to see whether a process still runs that holds the lock and did not renew it lately.
func Alone(ctx context.Context, r Request) error {
	known, err := journal.List(ctx, r.Client.Dynamic)
	if apierrors.IsForbidden(err) {
		return nil // without that right apply does not begin: the check of rights reports all missing rights
	}
	if err != nil {
		return err
	}
	for _, migration := range known {
		over := engine.Phase(migration.Status.Phase) == engine.PhaseDone ||
			engine.Phase(migration.Status.Phase) == engine.PhaseRolledBack
		own := migration.Name == r.Plan.Name
		if over && own {
			return Refuse(v1alpha1.ReasonBlocked, "make a new plan", "migration %s has already ended (%s)",
				migration.Name, migration.Status.Phase)
		}
		if over || own && r.Entered {
			continue
		}
		if err := unfinished(ctx, r, &migration, own); err != nil {
			return err
		}
	}
	return nil
}

// unfinished is the error for a migration that has not ended.
func unfinished(ctx context.Context, r Request, migration *v1alpha1.Migration, own bool) error {
	holder, err := journal.Holding(ctx, run.Leases(r.Client), time.Time{}, func(text string) {
		if r.Say != nil {
			r.Say("migration " + migration.Name + " has not ended: " + text)
		}
	})
	if err != nil {
		return err
	}
	if holder != nil && holder.Holder != r.Holder {
		return Refuse(v1alpha1.ReasonBlocked, holder.Hint(), "migration %s is running: %w", migration.Name, holder)
	}
	ways := "`theseus status` says how to continue"
	if p, _, err := journal.Load(ctx, r.Client.Dynamic, migration.Name); err == nil {
		records, err := journal.NewCluster(r.Client.Dynamic, migration.Name).Records(ctx)
		if state, failed := engine.Replay(records); err == nil && failed == nil {
			ways = engine.Judge(p.Steps, state, false).Ways
		}
	}
	if own {
		return Refuse(v1alpha1.ReasonBlocked, ways, "migration %s has already begun, and no process runs it",
			migration.Name)
	}
	return Refuse(v1alpha1.ReasonBlocked, "`theseus status` shows it; "+ways,
		"another migration has not ended, and no process runs it: %s", migration.Name)
}
