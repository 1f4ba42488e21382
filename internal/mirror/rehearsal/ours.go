package rehearsal

import (
	"bytes"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Made reports whether a rehearsal made an object, of whichever original: the object has the label, and by
// managedFields it is a rehearsal that set it. The label alone is not believed: controllers copy labels, and people
// write them.
func Made(live metav1.Object) bool {
	mark := live.GetLabels()[MarkLabel]
	return mark != "" && !strings.HasPrefix(mark, changedPrefix) && wrote(live, "labels", MarkLabel)
}

// wrote reports whether Manager owns a label or an annotation of a live object.
func wrote(live metav1.Object, of, key string) bool {
	path := fieldpath.MakePathOrDie("metadata", of, key)
	for _, entry := range live.GetManagedFields() {
		if entry.Manager != Manager || entry.FieldsV1 == nil {
			continue
		}
		set := &fieldpath.Set{}
		if set.FromJSON(bytes.NewReader(entry.FieldsV1.Raw)) == nil && set.Has(path) {
			return true
		}
	}
	return false
}
