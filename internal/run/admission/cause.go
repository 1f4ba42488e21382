package admission

import (
	"errors"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// Cause is the reason for a condition, and what a person can do, if the cluster itself keeps Theseus from writing its
// objects. Both are empty for other errors.
func Cause(err error) (reason, hint string) {
	if errors.Is(err, journal.ErrOldCRDs) {
		return v1alpha1.ReasonOldCRDs, engine.HintOf(err)
	}
	return outage.Denied(err)
}
