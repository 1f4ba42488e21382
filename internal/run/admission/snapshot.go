package admission

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Snapshot reads the cluster. It retries kinds that it cannot read because of an outage, for at most journal.Patience:
// the checks would report it as missing evidence, which a person would have to look at. What cannot be read for longer
// is missing.
func Snapshot(ctx context.Context, client *kube.Client, version string,
	waiting func(error)) (*cluster.Snapshot, error) {
	var snapshot *cluster.Snapshot
	err := outage.Retry(ctx, journal.Patience.Reading(), waiting, func(ctx context.Context) (err error) {
		if snapshot, err = kube.Snapshot(ctx, client, version, time.Now()); err != nil {
			return err
		}
		if away := snapshot.Away(); len(away) > 0 {
			return apierrors.NewServiceUnavailable("reading " + strings.Join(away, ", "))
		}
		return nil
	})
	if snapshot != nil && ctx.Err() == nil {
		return snapshot, nil
	}
	return nil, err
}
