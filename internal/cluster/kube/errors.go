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

// unavailable marks an error that says nothing about the action, only that the API server could not be
// asked: the engine waits such errors out.
type unavailable struct{ error }

func (u unavailable) Unwrap() error   { return u.error }
func (u unavailable) Temporary() bool { return true }

// classify marks the errors that pass by themselves.
func classify(err error) error {
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return err
	case outage.Passes(err):
		return unavailable{err}
	case outage.Refused(err):
		return engine.Refused(err)
	}
	return err
}

// Passing marks the errors of other actors than this package's that pass by themselves: the engine waits them out.
func Passing(err error) error {
	switch {
	case err != nil && outage.Passes(err):
		return fmt.Errorf("%w: %w", engine.ErrUnavailable, err)
	case outage.Refused(err):
		return engine.Refused(err)
	}
	return err
}

// ignoreNoKind turns "no such kind" into nil: before Theseus is set up, and after it has left, there is none.
// A kind that went away while its mapping was remembered answers like an object that is not there.
func ignoreNoKind(err error) error {
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
