package incluster

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run"
	"github.com/theseus-cni/theseus/internal/run/journal"
	"github.com/theseus-cni/theseus/internal/step"
)

// Available demands that the cluster has a controller that runs. A user who may not read that gets no error: the
// conditions of the Migration show it.
func Available(ctx context.Context, a *app.App, client *kube.Client) error {
	var absent error
	err := a.Patiently(ctx, app.Begin, func(ctx context.Context) (err error) {
		absent, err = Absent(ctx, client)
		return err
	})
	if err != nil {
		return fmt.Errorf("looking for the controller: %w", err)
	}
	return absent
}

// Absent says why the cluster has no controller that runs; nil if it has one, or if the user may not read that.
func Absent(ctx context.Context, client *kube.Client) (absent, err error) {
	const name = v1alpha1.Namespace + "/" + manifest.ControllerName
	ctx, cancel := client.Call(ctx)
	defer cancel()
	deployment, err := client.Typed.AppsV1().Deployments(v1alpha1.Namespace).Get(ctx,
		manifest.ControllerName, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil, nil
	case apierrors.IsNotFound(err):
		return exit.Fail(exit.Failed, "install the chart: helm install theseus charts/theseus --namespace "+
			v1alpha1.Namespace+" --create-namespace --take-ownership",
			"this cluster has no controller: there is no Deployment %s", name), nil
	case err != nil || deployment.Status.AvailableReplicas > 0:
		return nil, err
	}
	why, hint, err := run.NewActor(client).Unready(ctx, step.Ref{APIVersion: "apps/v1", Kind: "Deployment",
		Namespace: v1alpha1.Namespace, Name: manifest.ControllerName})
	if err != nil || why == "" {
		why = "its pods may be starting"
	}
	if hint == "" {
		hint = "kubectl describe pods -n " + v1alpha1.Namespace + " shows why, then retry"
	}
	return exit.Fail(exit.Failed, hint, "no pod of the controller is available: Deployment %s: %s", name, why), nil
}

// Begin writes a plan to the cluster, for the controller, with the windows in which its steps may begin. It holds the
// lock meanwhile, so that no other process begins.
func Begin(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, windows ...v1alpha1.Window) error {
	lease, ctx, err := journal.Acquire(ctx, run.Leases(client), journal.Holder())
	if err != nil {
		return err
	}
	defer lease.Release(context.WithoutCancel(ctx)) //nolint:errcheck // a lock that is not released expires
	fenced, err := client.Fenced(lease.Check)
	if err != nil {
		return err
	}
	return a.Patiently(ctx, app.Begin, func(ctx context.Context) error {
		return journal.CreateInCluster(ctx, fenced.Dynamic, p, windows...)
	})
}
