package apply

import (
	"context"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/pair"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// admitMirror refuses a plan that was made for other clusters, or whose zones have changed since.
func admitMirror(ctx context.Context, a *app.App, client *kube.Client, access mirror.Access, p *plan.Plan) error {
	pair, err := pair.Reach(ctx, a, access, p)
	if err != nil {
		return err
	}
	if err := alone(ctx, a, client, p.Name); err != nil {
		return err
	}
	places, err := pair.Places(ctx)
	if err != nil {
		return err
	}
	for _, found := range places {
		if found.At != "original" {
			return exit.Fail(exit.Failed, "make a new plan with `theseus plan`", "%s has changed since the plan was made: %s", found.Name, strings.Join(found.Records, ", "))
		}
	}
	return nil
}
