package agents

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// Purpose is what a command uses Theseus' namespace for, outside of any migration.
type Purpose struct {
	// Refuses says why it does not begin during a migration.
	Refuses string
	// Holder is the name for the lock.
	Holder func() string
}

var (
	// Inspecting installs agents: their image would replace that of the migration's agents.
	Inspecting = Purpose{"inspecting the nodes would replace its agents", journal.Looker}
	// Benchmarking puts load on the network.
	Benchmarking = Purpose{"a benchmark would disturb its measurements", journal.Bencher}
)

// With makes Theseus' namespace outside of any migration, calls look, which may install agents or other objects there,
// and removes the namespace. The name is for the agents' tasks. With holds the lock meanwhile. It refuses to begin
// while a migration has not ended.
func With(ctx context.Context, a *app.App, client *kube.Client, name string, purpose Purpose,
	look func(context.Context, *kube.Actor) error) (err error) {
	if err := a.Patiently(ctx, app.Glance,
		func(ctx context.Context) error { return noneUnfinished(ctx, client, purpose.Refuses) }); err != nil {
		return err
	}
	namespace, err := namespace(ctx, client)
	if err != nil {
		return err
	}
	back, err := looker(a, client, name, 0).Install(ctx, []step.Action{joint.Apply(*namespace)}) // the lock is there
	if err != nil {
		return errors.Join(err, back(ctx))
	}
	lease, held, err := journal.Acquire(ctx, run.Leases(client), purpose.Holder())
	if err != nil {
		return err // the namespace stays: it may be in use
	}
	defer lease.Release(context.WithoutCancel(ctx)) //nolint:errcheck // a lock that is not released expires
	defer func() { err = errors.Join(err, back(ctx)) }()
	if err := noneUnfinished(held, client, purpose.Refuses); err != nil { // a migration may have begun in the meantime
		return err
	}
	fenced, err := client.Fenced(lease.Check)
	if err != nil {
		return err
	}
	return look(held, looker(a, fenced, name, lease.Epoch()))
}

// namespace is Theseus' namespace, marked as temporary if it is not there, or if it was so when the process ended that
// had made it.
func namespace(ctx context.Context, client *kube.Client) (*unstructured.Unstructured, error) {
	namespace := manifest.Namespace()
	live, err := client.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx,
		namespace.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && manifest.Temporary(live) {
		return manifest.NamespaceForNow(), nil
	}
	return namespace, err
}

// noneUnfinished refuses while a migration has not ended.
func noneUnfinished(ctx context.Context, client *kube.Client, why string) error {
	known, err := journal.List(ctx, client.Dynamic)
	if err != nil {
		return err
	}
	for _, migration := range known {
		switch engine.Phase(migration.Status.Phase) {
		case engine.PhaseDone, engine.PhaseRolledBack:
		default:
			return exit.Fail(exit.Failed,
				"wait until it ends (`theseus status`), or finish it with `theseus resume` or `theseus rollback`",
				"migration %s has not ended: %s", migration.Name, why)
		}
	}
	return nil
}

// Timeout bounds how long the agent may take to come up on every node and answer.
const Timeout = 5 * time.Minute

// looker is an actor outside of any migration; the name is for the agents' tasks.
func looker(a *app.App, client *kube.Client, name string, epoch int64) *kube.Actor {
	actor := run.NewActor(client)
	actor.Migration, actor.Epoch = name, epoch
	actor.Note = func(text string) { fmt.Fprintln(a.Err, text) }
	return actor
}
