package journal

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// annotationNotified is the number of the last record of a Migration's journal whose notification was sent, or given up.
const annotationNotified = v1alpha1.Group + "/notified"

// Notified is the number of the last record whose notification was sent; 0 if none was.
func Notified(ctx context.Context, client dynamic.Interface, name string) (int, error) {
	migration, err := get(ctx, client, name)
	if err != nil {
		return 0, err
	}
	text, found := migration.Annotations[annotationNotified]
	if !found {
		return 0, nil
	}
	seq, err := strconv.Atoi(text)
	if err != nil || seq < 0 {
		return 0, fmt.Errorf("the annotation %s of migration %s is %q, and not a number", annotationNotified, name, text)
	}
	return seq, nil
}

// SetNotified writes the number of the last record whose notification was sent.
func SetNotified(ctx context.Context, client dynamic.Interface, name string, seq int) error {
	return patch(ctx, client, migrationResource, name, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{annotationNotified: strconv.Itoa(seq)}}})
}
