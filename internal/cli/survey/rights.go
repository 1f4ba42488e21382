package survey

import (
	"context"

	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// AskRights asks whether this user has the permissions for a plan, in addition to those for any change.
func AskRights(ctx context.Context, client *kube.Client, snapshot *cluster.Snapshot, p *plan.Plan) error {
	if ok, _ := snapshot.Has("rights"); !ok {
		return nil // the check of rights reports why
	}
	more, err := kube.Rights(ctx, client, snapshot.Rights, p.Steps)
	snapshot.Rights = append(snapshot.Rights, more...)
	return err
}
