package run

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// benchmarksWithin bounds how long a run waits until the pods of a benchmark are gone.
const benchmarksWithin = time.Minute

// endBenchmarks removes the pods of a benchmark whose process has lost the lock, or was killed: their load would count
// as this run's losses. It is called with the lock, so no benchmark may run. A user who may not see pods there has none
// removed.
func (r *Run) endBenchmarks(ctx context.Context) error {
	n, err := r.Client.RemoveBench(ctx, manifest.LabelBench, benchmarksWithin, r.Waiting)
	switch {
	case n == 0 && apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return engine.WithHint(fmt.Errorf("the pods of a benchmark (theseus bench network) put load on this cluster, "+
			"and could not be removed: %w", err),
			"kubectl -n "+v1alpha1.Namespace+" delete pods,services -l "+manifest.LabelBench+", then retry")
	case n > 0:
		r.View.Say(fmt.Sprintf("removed %s of a benchmark that did not end", cluster.Count(n, "pod")))
	}
	return nil
}
