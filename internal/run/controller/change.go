package controller

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/journal"
)

// outdated says what has become of the Change that a Migration was made for since it was planned: the plan must not
// begin then, although it is approved. Package changes withdraws it, if this controller makes plans. "" if the Change
// is as it was; so it is for a Migration that was made for no Change, and for one whose Changes this controller may not
// read.
func (c *Controller) outdated(ctx context.Context, m *v1alpha1.Migration) (string, error) {
	origin, made := journal.OriginOf(m)
	if !made {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	change, err := c.Client.Dynamic.Resource(resource("Change")).Get(ctx, origin.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "the Change " + origin.Name + " was deleted", nil
	case apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("reading Change %s: %w", origin.Name, err)
	case string(change.GetUID()) != origin.UID || change.GetDeletionTimestamp() != nil:
		return "the Change " + origin.Name + " was deleted, or created again", nil
	case change.GetGeneration() != origin.Generation:
		return "the Change " + origin.Name + " was edited", nil
	}
	return "", nil
}
