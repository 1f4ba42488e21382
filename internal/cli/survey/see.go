package survey

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// See takes a snapshot of the cluster, or reads one.
func See(ctx context.Context, a *app.App, from []string) (*cluster.Snapshot, error) {
	if len(from) > 0 {
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(75) // the snapshot is nearly all of the heap, and stays: a smaller margin is enough
		}
		snapshot, notes, err := kube.ReadFiles(a.Version, a.In, from...)
		for _, note := range notes {
			fmt.Fprintln(a.Err, "note:", note)
		}
		return snapshot, err
	}
	client, err := a.Client()
	if err != nil {
		return nil, err
	}
	return kube.Snapshot(ctx, client, a.Version, time.Now())
}

// passOf is the evidence for checks: the snapshot, and the two networks as far as they are known. The error says why
// the new one is not: checks do without it then.
func passOf(snapshot *cluster.Snapshot, change v1alpha1.ChangeSpec, manifest []unstructured.Unstructured) (*check.Pass, error) {
	pass := &check.Pass{Snapshot: snapshot, Change: change, Found: drivers.All().Detect(snapshot), Manifest: manifest}
	if len(pass.Found) > 0 {
		pass.Source = pass.Found[0]
	}
	if pass.Source == nil {
		return pass, nil
	}
	target, err := plan.Comes(snapshot, change, drivers.All(), pass.Source, manifest)
	pass.Target = target
	return pass, err
}
