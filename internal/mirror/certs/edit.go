package certs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// RecordAnnotation is on an object whose certificate got more names. Its value, a Record, is the state before. The
	// same write sets the annotation and adds the names, so neither exists without the other.
	RecordAnnotation = "theseus.dev/before-mirror-certs"
	// altNames is the annotation that adds names to the Certificate of an Ingress or Gateway (cert-manager's
	// pkg/controller/certificate-shim). cert-manager would remove names that are only in the Certificate, and names
	// that are hosts of the Ingress would become DNS records.
	altNames = "cert-manager.io/alt-names"
)

// Record is the state before names were added.
type Record struct {
	// Before is the old value of the field, as JSON; missing if there was none.
	Before json.RawMessage `json:"before,omitempty"`
	// Added are the names that were added.
	Added []string `json:"added"`
	// After is the field as written. If it is different when the names are removed, another user has changed it.
	After json.RawMessage `json:"after"`
}

// Edit is one write to an object.
type Edit struct {
	// Patch is a merge patch that only applies to the version of the object that was read.
	Patch []byte
	// Names are the names that it adds or removes.
	Names []string
	// Changed is true if another user changed the field after the names were added: that change is kept.
	Changed bool
}

// Add makes the write that adds names to an object, or nil if it already has them. The object is a Certificate, or the
// Ingress or Gateway from which cert-manager makes one.
func Add(object *unstructured.Unstructured, names []string) (*Edit, error) {
	field, have, err := read(object)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return contains(have, name) })
	if len(names) == 0 {
		return nil, nil
	}
	record, err := recordOf(object)
	if err != nil {
		return nil, err
	}
	if record == nil {
		record = &Record{Before: field}
	}
	record.Added = append(record.Added, names...)
	return edit(object, slices.Concat(have, names), record, names)
}

// Back makes the write that removes added names, or nil if none were added. It restores the field exactly; if another
// user has changed the field since, it only removes the added names.
func Back(object *unstructured.Unstructured) (*Edit, error) {
	record, err := recordOf(object)
	if record == nil || err != nil {
		return nil, err
	}
	field, have, err := read(object)
	if err != nil {
		return nil, err
	}
	e := &Edit{Changed: !bytes.Equal(field, record.After)}
	for _, name := range record.Added {
		if contains(have, name) {
			e.Names = append(e.Names, name)
		}
	}
	value := record.Before
	if e.Changed {
		left := slices.DeleteFunc(have, func(name string) bool { return contains(record.Added, name) })
		if value, err = write(object, left); err != nil {
			return nil, err
		}
	}
	e.Patch, err = patch(object, value, nil)
	return e, err
}

// edit writes the names and the record of the previous state in one patch.
func edit(object *unstructured.Unstructured, names []string, record *Record, added []string) (*Edit, error) {
	value, err := write(object, names)
	if err != nil {
		return nil, err
	}
	record.After = value
	note, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	text, err := patch(object, value, string(note))
	return &Edit{Patch: text, Names: added}, err
}

func recordOf(object *unstructured.Unstructured) (*Record, error) {
	note := object.GetAnnotations()[RecordAnnotation]
	if note == "" {
		return nil, nil
	}
	var record Record
	if err := json.Unmarshal([]byte(note), &record); err != nil || len(record.Added) == 0 || record.After == nil {
		return nil, fmt.Errorf("%s: the annotation %s says %q, which Theseus cannot read",
			Name(object), RecordAnnotation, note)
	}
	return &record, nil
}

func isCertificate(object *unstructured.Unstructured) bool { return object.GetKind() == "Certificate" }

// read returns the field that holds the names, as JSON (nil if there is none), and the names in it.
func read(object *unstructured.Unstructured) (json.RawMessage, []string, error) {
	if !isCertificate(object) {
		text, ok := object.GetAnnotations()[altNames]
		if !ok {
			return nil, nil, nil
		}
		field, err := json.Marshal(text)
		return field, strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), err
	}
	value, found, err := unstructured.NestedFieldNoCopy(object.Object, "spec", "dnsNames")
	if err != nil || !found {
		return nil, nil, err
	}
	names, _, err := unstructured.NestedStringSlice(object.Object, "spec", "dnsNames")
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", Name(object), err)
	}
	field, err := json.Marshal(value)
	return field, names, err
}

// write returns the field with the given names; nil, which removes it, if there are none.
func write(object *unstructured.Unstructured, names []string) (json.RawMessage, error) {
	switch {
	case len(names) == 0:
		return nil, nil
	case isCertificate(object):
		return json.Marshal(names)
	}
	return json.Marshal(strings.Join(names, ","))
}

// patch sets or removes (nil) the field and the record.
func patch(object *unstructured.Unstructured, field json.RawMessage, note any) ([]byte, error) {
	var value any
	if field != nil {
		value = field
	}
	annotations := map[string]any{RecordAnnotation: note}
	merge := map[string]any{"metadata": map[string]any{"resourceVersion": object.GetResourceVersion(),
		"annotations": annotations}}
	if isCertificate(object) {
		merge["spec"] = map[string]any{"dnsNames": value}
	} else {
		annotations[altNames] = value
	}
	return json.Marshal(merge)
}

// Name formats an object for people: Certificate shop/web.
func Name(object *unstructured.Unstructured) string {
	if object.GetNamespace() == "" {
		return object.GetKind() + " " + object.GetName()
	}
	return object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
}
