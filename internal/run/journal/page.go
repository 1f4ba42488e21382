package journal

import (
	"bytes"
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// page is a JournalPage as a client returns it. Its records are not text: to make text of them only to read it again
// would take most of the time of reading a large journal.
type page struct {
	object  map[string]any
	name    string
	number  int
	records []any
}

// pageOf reads everything of a page but its records.
func pageOf(object map[string]any) (page, error) {
	records, ok := object["records"].([]any)
	if object["records"] != nil && !ok {
		return page{}, errors.New("records is not a list")
	}
	rest := make(map[string]any, len(object))
	for key, value := range object {
		if key != "records" {
			rest[key] = value
		}
	}
	var one v1alpha1.JournalPage
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(rest, &one)
	return page{object, one.Name, one.Page, records}, err
}

// typed is the page with its records as text.
func (p *page) typed() (*v1alpha1.JournalPage, error) {
	var one v1alpha1.JournalPage
	return &one, runtime.DefaultUnstructuredConverter.FromUnstructured(p.object, &one)
}

// join puts the pages' records into one list. A missing page is an error, never a shorter journal.
func join(name string, pages []page, atLeast int) ([]engine.Record, error) {
	if len(pages) < atLeast {
		return nil, engine.NeedsPerson(lostPage, "the journal of %s had %d pages, but only %d remain",
			name, atLeast, len(pages))
	}
	n := 0
	for _, page := range pages {
		n += len(page.records)
	}
	records := make([]engine.Record, 0, n)
	for i, page := range pages {
		if page.number != i+1 {
			return nil, engine.NeedsPerson(lostPage, "page %d of the journal of %s is missing", i+1, name)
		}
		if len(page.records) == 0 {
			return nil, engine.NeedsPerson(lostPage, "JournalPage %s has no records", page.name)
		}
		for _, value := range page.records {
			r, err := recordOf(value)
			if err != nil {
				return nil, engine.NeedsPerson(lostPage, "JournalPage %s: record %d cannot be read: %w",
					page.name, len(records)+1, err)
			}
			records = append(records, r)
		}
	}
	return records, nil
}

// recordOf is decode for a record that is not text, but what a client has read from it.
func recordOf(value any) (engine.Record, error) {
	if r, ok := direct(value); ok {
		return r, nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return engine.Record{}, err
	}
	return decode(raw)
}

// decode reads a record and refuses unknown fields: the hash chain would not cover them.
func decode(raw []byte) (r engine.Record, err error) {
	err = strict(raw, &r)
	return r, err
}

func strict(raw []byte, to any) error {
	reader := json.NewDecoder(bytes.NewReader(raw))
	reader.DisallowUnknownFields()
	return reader.Decode(to)
}

// direct reads a record field by field. ok is false for a record that has anything unusual, such as an unknown field:
// decode then judges its text.
func direct(value any) (r engine.Record, ok bool) {
	fields, ok := value.(map[string]any)
	if !ok {
		return r, false
	}
	for name, value := range fields {
		ok = true
		switch name {
		case "seq":
			var n int64
			n, ok = value.(int64)
			r.Seq = int(n)
		case "at":
			var text string
			if text, ok = value.(string); ok {
				ok = r.At.UnmarshalText([]byte(text)) == nil
			}
		case "event":
			var text string
			text, ok = value.(string)
			r.Event = engine.Event(text)
		case "step":
			r.Step, ok = value.(string)
		case "action":
			r.Action, ok = value.(string)
		case "undo":
			r.Undo, ok = value.(bool)
		case "result":
			r.Result, ok = value.(string)
		case "error":
			r.Error, ok = value.(string)
		case "before":
			r.Before, ok = raw(value)
		case "inverse":
			ok = tree(value, &r.Inverse)
		case "verdict":
			ok = tree(value, &r.Verdict)
		case "data":
			r.Data, ok = raw(value)
		case "by":
			r.By, ok = value.(string)
		case "epoch":
			r.Epoch, ok = value.(int64)
		case "chain":
			r.Chain, ok = value.(string)
		default:
			ok = false
		}
		if !ok {
			return engine.Record{}, false
		}
	}
	return r, true
}

// raw is a value as text.
func raw(value any) (json.RawMessage, bool) {
	text, err := json.Marshal(value)
	return text, err == nil
}

// tree reads a value as decode does.
func tree(value, to any) bool {
	text, ok := raw(value)
	return ok && strict(text, to) == nil
}

// whole verifies the hash chain of a journal. Its error names the record, and the page that holds it.
func whole(records []engine.Record, pages []page) error {
	_, err := engine.Chained(records)
	if errors.Is(err, engine.ErrUnchained) {
		return nil // the engine refuses to continue with it; it can still be read
	}
	var broken *engine.Broken
	if !errors.As(err, &broken) {
		return err
	}
	at := 0
	for _, page := range pages {
		if at += len(page.records); broken.Index < at {
			broken.Place = "JournalPage " + page.name
			break
		}
	}
	return broken
}
