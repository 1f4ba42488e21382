package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// unavailable marks an error that only means that the API server was unavailable: the engine retries the action after
// such errors.
type unavailable struct{ error }

func (u unavailable) Unwrap() error   { return u.error }
func (u unavailable) Temporary() bool { return true }

// classify marks transient errors.
func classify(err error) error {
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case outage.Passes(err):
		return unavailable{err}
	case outage.Refused(err):
		return engine.Refused(err)
	}
	if _, hint := outage.Denied(err); hint != "" {
		return engine.WithHint(err, hint)
	}
	return err
}

// Passing marks transient errors of actors in other packages, so that the engine retries.
func Passing(err error) error {
	switch {
	case err != nil && outage.Passes(err):
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	case outage.Refused(err):
		return engine.Refused(err)
	}
	return err
}

// ignoreNoKind turns "no such kind" into nil: before Theseus is set up, and after it was removed, its kinds do not
// exist. If a kind was deleted while its mapping was cached, the API server answers "not found".
func ignoreNoKind(err error) error {
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
