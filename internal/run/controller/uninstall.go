package controller

import (
	"context"
	"fmt"
	"strings"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Removable returns an error while a Migration that the controller runs has not ended: without the controller, no
// process would continue it.
func Removable(ctx context.Context, client *kube.Client) error {
	var left []string
	first, change := "", ""
	if err := outage.Retry(ctx, journal.Patience.Reading(), nil, func(ctx context.Context) error {
		all, err := journal.List(ctx, client.Dynamic)
		if err != nil {
			return err
		}
		left = nil
		for i := range all {
			if m := &all[i]; m.Spec.InCluster && !over(m) {
				first, change = m.Name, ""
				if origin, made := journal.OriginOf(m); made && !journal.Begun(m) {
					change = origin.Name
				}
				left = append(left, fmt.Sprintf("%s (%s)", m.Name, describe(m.Status.Phase, m.Status.Step)))
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if len(left) == 0 {
		return nil
	}
	err := fmt.Errorf("the controller runs migrations that have not ended: %s", strings.Join(left, ", "))
	if change != "" {
		return engine.WithHint(err, "`kubectl delete change "+change+"` withdraws the plan of "+first+
			", which has not begun; then uninstall again")
	}
	return engine.WithHint(err, "`theseus rollback "+first+"` undoes it, `theseus watch "+first+
		"` waits for its end, and `theseus resume "+first+
		"` takes it over; then uninstall again")
}

func describe(phase, step string) string {
	switch {
	case phase == "":
		return "not begun"
	case step == "":
		return phase
	}
	return phase + ", step " + step
}
