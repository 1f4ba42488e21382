package apply

import (
	"context"
	"fmt"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/follow"
	"github.com/theseus-cni/theseus/internal/cli/incluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// handOver lets the controller in the cluster carry out a plan, and follows the run. The approval has the signature, if
// there is one. A user who may not approve has handed the plan over as well: it waits for another person.
func handOver(ctx context.Context, a *app.App, client *kube.Client, p *plan.Plan, windows []v1alpha1.Window,
	signature string) error {
	if err := incluster.Begin(ctx, a, client, p, windows...); err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "%s (hash %s) is in the cluster; the controller runs it once it is approved\n", p.Name, p.Hash)
	if err := incluster.ApproveAndSay(ctx, a, client, p, signature, ""); err != nil {
		return err
	}
	return follow.Run(ctx, a, client, p.Name, 0)
}
