package survey

import (
	"context"
	"fmt"
	"time"

	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// See takes a snapshot of the cluster, or reads one.
func See(ctx context.Context, a *app.App, from []string) (*cluster.Snapshot, error) {
	if len(from) > 0 {
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
