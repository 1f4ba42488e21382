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
)

// Available demands that the cluster has a controller that runs. A user who may not read that gets no error: the
// conditions of the Migration show it.
func Available(ctx context.Context, a *app.App, client *kube.Client) error {
	var ready int32
	err := a.Patiently(ctx, app.Begin, func(ctx context.Context) error {
		ctx, cancel := client.Call(ctx)
		defer cancel()
		deployment, err := client.Typed.AppsV1().Deployments(v1alpha1.Namespace).Get(ctx,
			manifest.ControllerName, metav1.GetOptions{})
		if err == nil {
			ready = deployment.Status.AvailableReplicas
		}
		if apierrors.IsForbidden(err) {
			ready, err = 1, nil
		}
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return exit.Fail(exit.Failed, "install the chart: helm install theseus charts/theseus --namespace "+
			v1alpha1.Namespace+" --create-namespace --take-ownership",
			"this cluster has no controller: there is no Deployment %s/%s", v1alpha1.Namespace, manifest.ControllerName)
	case err != nil:
		return fmt.Errorf("looking for the controller: %w", err)
	case ready == 0:
		return exit.Fail(exit.Failed, "kubectl describe pods -n "+v1alpha1.Namespace+" shows why, then retry",
			"no pod of the controller is available: Deployment %s/%s", v1alpha1.Namespace, manifest.ControllerName)
	}
	return nil
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
