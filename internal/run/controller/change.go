package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// current reports whether the Change that a Migration was made for still is as it was planned. If it was edited or deleted, the
// plan must not begin, although it is approved: package changes withdraws it. A Migration that was made for no Change is
// current, and so is one whose Changes this controller may not read, because it makes no plans.
func (c *Controller) current(ctx context.Context, m *v1alpha1.Migration) (bool, error) {
	origin, made := journal.OriginOf(m)
	if !made {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	change, err := c.Client.Dynamic.Resource(resource("Change")).Get(ctx, origin.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("reading Change %s: %w", origin.Name, err)
	}
	return string(change.GetUID()) == origin.UID && change.GetGeneration() == origin.Generation && change.GetDeletionTimestamp() == nil, nil
}
