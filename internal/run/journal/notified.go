package journal

import (
	"context"
	"fmt"
	"strconv"

	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

// annotationNotified is the number of the last record of a Migration's journal whose notification was sent, or given
// up.
const annotationNotified = v1alpha1.Group + "/notified"

// Notified reads the number of the last record whose notification was sent, 0 before the first. found is false if no
// process has sent any.
func Notified(ctx context.Context, client dynamic.Interface, name string) (seq int, found bool, err error) {
	migration, err := get(ctx, client, name)
	if err != nil {
		return 0, false, err
	}
	return NotifiedIn(migration)
}

// NotifiedIn is what Notified reads, in a Migration that was read.
func NotifiedIn(migration *v1alpha1.Migration) (seq int, found bool, err error) {
	text, found := migration.Annotations[annotationNotified]
	if !found {
		return 0, false, nil
	}
	seq, err = strconv.Atoi(text)
	if err != nil || seq < 0 {
		return 0, true, fmt.Errorf("the annotation %s of migration %s is %q, and not a number",
			annotationNotified, migration.Name, text)
	}
	return seq, true, nil
}

// SetNotified writes the number of the last record whose notification was sent.
func SetNotified(ctx context.Context, client dynamic.Interface, name string, seq int) error {
	return patch(ctx, client, migrationResource, name, map[string]any{"metadata": map[string]any{
		"annotations": map[string]any{annotationNotified: strconv.Itoa(seq)}}})
}
