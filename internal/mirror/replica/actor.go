package replica

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/freeze"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// Actor implements engine.Actor for what the operation step.Mirror does with the two clusters: freezing, thawing,
// copying, waiting for workloads, and taking copies down.
type Actor struct {
	Original, Mirror *Cluster
	Note             func(string)
}

// lookAgain is the time between two looks at what is not ready yet.
const lookAgain = time.Second

func (a *Actor) freezer() *Freezer { return &Freezer{Cluster: a.Original, Note: a.Note} }

// Observe implements engine.Actor. Everything here looks for itself before it writes, so nothing is ever done already;
// a freeze that was not in force before is taken back by a thaw.
func (a *Actor) Observe(ctx context.Context, action step.Action, _ json.RawMessage) (engine.Observation, error) {
	if action.Verb() != mirror.Freeze {
		return engine.Observation{}, nil
	}
	current, err := a.freezer().Current(ctx)
	if err != nil || current != nil {
		return engine.Observation{}, kube.Passing(err)
	}
	return engine.Observation{Inverse: &step.Action{Do: step.Mirror{Verb: mirror.Thaw,
		Args: json.RawMessage("{}")}, Title: "let deploys go on"}}, nil
}

// Do implements engine.Actor.
func (a *Actor) Do(ctx context.Context, action step.Action, _ json.RawMessage) (json.RawMessage, error) {
	answer, err := a.do(ctx, action)
	if err != nil {
		return nil, kube.Passing(err)
	}
	return json.Marshal(answer)
}

// Copied is the answer of mirror.Copy, Torn that of mirror.Teardown.
type (
	Copied struct {
		InStep int `json:"inStep"`
		Wrote  int `json:"wrote"`
	}
	Torn struct {
		Deleted int      `json:"deleted"`
		Stays   []string `json:"stays,omitempty"`
	}
)

func (a *Actor) do(ctx context.Context, action step.Action) (any, error) {
	switch action.Verb() {
	case mirror.Freeze:
		args, err := step.Arguments[mirror.FreezeArgs](action)
		if err != nil {
			return nil, err
		}
		return a.freeze(ctx, args)
	case mirror.Thaw:
		_, resumed, err := a.freezer().Thaw(ctx)
		return map[string]int{"resumed": len(resumed)}, err
	case mirror.Copy:
		args, err := step.Arguments[mirror.Selection](action)
		if err != nil {
			return nil, err
		}
		return a.copy(ctx, args)
	case mirror.Ready:
		args, err := step.Arguments[mirror.ReadyArgs](action)
		if err != nil {
			return nil, err
		}
		return nil, a.ready(ctx, args)
	case mirror.Teardown:
		args, err := step.Arguments[mirror.TeardownArgs](action)
		if err != nil {
			return nil, err
		}
		return a.teardown(ctx, args)
	}
	return nil, fmt.Errorf("action %s: unknown verb %q", action.ID, action.Verb())
}

// freeze freezes; a freeze that is in force already for the same reason is proven again.
func (a *Actor) freeze(ctx context.Context, args mirror.FreezeArgs) (any, error) {
	f := a.freezer()
	want := freeze.Freeze{Namespaces: args.Namespaces, Reason: args.Reason, Allowed: args.Allowed, Since: time.Now()}
	current, err := f.Current(ctx)
	if err != nil {
		return nil, err
	}
	if current != nil {
		want.By = current.By
	} else if want.By, err = f.WhoAmI(ctx); err != nil {
		return nil, err
	}
	suspended, err := f.Freeze(ctx, want)
	return map[string]int{"suspended": len(suspended)}, err
}

func (a *Actor) copy(ctx context.Context, selection mirror.Selection) (*Copied, error) {
	copier, err := NewCopier(selection, a.Note)
	if err != nil {
		return nil, err
	}
	copier.Original, copier.Mirror, copier.Planned = a.Original, a.Mirror, true
	answer := &Copied{}
	pass, err := copier.Settle(ctx, func(_ int, pass *Pass, wrote bool) {
		if wrote {
			answer.Wrote += pass.Created + pass.Updated + pass.Deleted
			a.Note(fmt.Sprintf("%d created, %d updated, %d deleted (%.1f s)",
				pass.Created, pass.Updated, pass.Deleted, pass.Took.Seconds()))
		}
	})
	if err != nil {
		return nil, err
	}
	answer.InStep = pass.Delta.InStep
	return answer, nil
}

// ready waits until every Deployment, StatefulSet and DaemonSet has its pods, in its present form.
func (a *Actor) ready(ctx context.Context, args mirror.ReadyArgs) error {
	cluster := a.Mirror
	if args.Original {
		cluster = a.Original
	}
	for said := ""; ; {
		missing, err := cluster.unready(ctx, args.Namespaces)
		if err != nil {
			return err
		}
		if len(missing) == 0 {
			return nil
		}
		text := fmt.Sprintf("%d workloads lack pods: %s", len(missing),
			strings.Join(missing[:min(len(missing), 3)], ", "))
		if text != said {
			a.Note(text)
			said = text
		}
		if wait(ctx, lookAgain); ctx.Err() != nil {
			return engine.WithHint(fmt.Errorf("%s: %w", text, ctx.Err()),
				"kubectl get pods shows why; no name points to them yet")
		}
	}
}

// unready says which workloads lack pods.
func (c *Cluster) unready(ctx context.Context, namespaces []string) ([]string, error) {
	var missing []string
	lacks := func(kind, namespace, name string, seen bool, has, wants int32) {
		if !seen || has < wants {
			missing = append(missing, fmt.Sprintf("%s %s/%s has %d of %d", kind, namespace, name, has, wants))
		}
	}
	wanted := func(replicas *int32) int32 {
		if replicas == nil {
			return 1
		}
		return *replicas
	}
	for _, namespace := range namespaces {
		apps := c.Typed.AppsV1()
		deployments, err := retried(ctx, func(ctx context.Context) (*appsv1.DeploymentList, error) {
			return apps.Deployments(namespace).List(ctx, metav1.ListOptions{})
		})
		if err != nil {
			return nil, err
		}
		for _, d := range deployments.Items {
			lacks("Deployment", namespace, d.Name, d.Status.ObservedGeneration >= d.Generation,
				min(d.Status.AvailableReplicas, d.Status.UpdatedReplicas), wanted(d.Spec.Replicas))
		}
		sets, err := retried(ctx, func(ctx context.Context) (*appsv1.StatefulSetList, error) {
			return apps.StatefulSets(namespace).List(ctx, metav1.ListOptions{})
		})
		if err != nil {
			return nil, err
		}
		for _, s := range sets.Items {
			lacks("StatefulSet", namespace, s.Name, s.Status.ObservedGeneration >= s.Generation,
				s.Status.AvailableReplicas, wanted(s.Spec.Replicas))
		}
		daemons, err := retried(ctx, func(ctx context.Context) (*appsv1.DaemonSetList, error) {
			return apps.DaemonSets(namespace).List(ctx, metav1.ListOptions{})
		})
		if err != nil {
			return nil, err
		}
		for _, d := range daemons.Items {
			lacks("DaemonSet", namespace, d.Name, d.Status.ObservedGeneration >= d.Generation, d.Status.NumberAvailable,
				d.Status.DesiredNumberScheduled)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

func (a *Actor) teardown(ctx context.Context, args mirror.TeardownArgs) (*Torn, error) {
	removal, err := a.Mirror.Copies(ctx, args.Of, args.Namespaces)
	if err != nil {
		return nil, err
	}
	torn := &Torn{Deleted: len(removal.Delete)}
	for _, left := range removal.Stays {
		torn.Stays = append(torn.Stays, left.Key.String()+": "+left.Why)
		a.Note("stays on the mirror: " + left.Key.String() + ": " + left.Why)
	}
	return torn, a.Mirror.Remove(ctx, removal, a.Note)
}

// Holds implements engine.Actor; plans of this strategy have no conditions.
func (a *Actor) Holds(_ context.Context, c step.Condition) (bool, string, error) {
	return false, "", fmt.Errorf("%q is not a condition of the mirror", c.Kind())
}
