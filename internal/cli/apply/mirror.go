package apply

import (
	"context"
	"strings"

	"github.com/theseus-cni/theseus/internal/change/mirror"
	"github.com/theseus-cni/theseus/internal/cli/app"
	"github.com/theseus-cni/theseus/internal/cli/exit"
	"github.com/theseus-cni/theseus/internal/cli/mirror/pair"
	"github.com/theseus-cni/theseus/internal/run/admission"
)

// admitMirror refuses a plan that was made for other clusters, or whose zones have changed since.
func admitMirror(ctx context.Context, a *app.App, request admission.Request, access mirror.Access) error {
	pair, err := pair.Reach(ctx, a, access, request.Plan)
	if err != nil {
		return err
	}
	if err := admission.Alone(ctx, request); err != nil {
		return err
	}
	places, err := pair.Places(ctx)
	if err != nil {
		return err
	}
	for _, found := range places {
		if found.At != "original" {
			return exit.Fail(exit.Failed, "make a new plan with `theseus plan`",
				"%s has changed since the plan was made: %s", found.Name, strings.Join(found.Records, ", "))
		}
	}
	return nil
}
