package engine

import (
	"encoding/json"
	"strconv"

	"github.com/theseus-cni/theseus/internal/safeio/canonical"
)

// The journal of a large cluster has many thousands of records, and most hold only short texts. Whenever a journal is
// read, the texts of all its records are computed, so they are put together here, without reflection.

// AppendJSON appends what json.Marshal makes of a record.
func (r *Record) AppendJSON(to []byte) ([]byte, error) {
	w := writer{out: append(to, '{'), tree: appendJSON}
	w.number(`"seq":`, int64(r.Seq))
	w.time(r)
	w.text(`"event":`, string(r.Event))
	w.some(`"step":`, r.Step)
	w.some(`"action":`, r.Action)
	w.undo(r)
	w.some(`"result":`, r.Result)
	w.some(`"error":`, r.Error)
	w.raw(`"before":`, r.Before)
	w.inverse(r)
	w.verdict(r)
	w.raw(`"data":`, r.Data)
	w.some(`"by":`, r.By)
	w.epoch(r)
	w.some(`"chain":`, r.Chain)
	return append(w.out, '}'), w.err
}

// appendForm appends the canonical form of a record without its chain.
func (r *Record) appendForm(to []byte) ([]byte, error) {
	w := writer{out: append(to, '{'), tree: canonical.Append}
	w.some(`"action":`, r.Action)
	w.time(r)
	w.raw(`"before":`, r.Before)
	w.some(`"by":`, r.By)
	w.raw(`"data":`, r.Data)
	w.epoch(r)
	w.some(`"error":`, r.Error)
	w.text(`"event":`, string(r.Event))
	w.inverse(r)
	w.some(`"result":`, r.Result)
	w.number(`"seq":`, int64(r.Seq))
	w.some(`"step":`, r.Step)
	w.undo(r)
	w.verdict(r)
	return append(w.out, '}'), w.err
}

func appendJSON(to []byte, value any) ([]byte, error) {
	text, err := json.Marshal(value)
	return append(to, text...), err
}

// writer appends the members of an object, until an error.
type writer struct {
	out  []byte
	tree func(to []byte, value any) ([]byte, error) // appends what is neither a plain text nor a number
	err  error
}

func (w *writer) key(key string) {
	if w.out[len(w.out)-1] != '{' {
		w.out = append(w.out, ',')
	}
	w.out = append(w.out, key...)
}

func (w *writer) text(key, text string) {
	if w.err == nil {
		w.key(key)
		w.out, w.err = appendText(w.out, text, w.tree)
	}
}

// appendText appends a text. tree appends one that JSON has in another form.
func appendText(to []byte, text string, tree func([]byte, any) ([]byte, error)) ([]byte, error) {
	if !plain(text) {
		return tree(to, text)
	}
	return append(append(append(to, '"'), text...), '"'), nil
}

// plain is true of a text that JSON has as it is, between quotes.
func plain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c >= 0x80, c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}

// some appends a text, unless it is empty.
func (w *writer) some(key, text string) {
	if text != "" {
		w.text(key, text)
	}
}

func (w *writer) number(key string, n int64) {
	w.key(key)
	w.out = strconv.AppendInt(w.out, n, 10)
}

func (w *writer) value(key string, value any) {
	if w.err == nil {
		w.key(key)
		w.out, w.err = w.tree(w.out, value)
	}
}

func (w *writer) raw(key string, text json.RawMessage) {
	if len(text) > 0 {
		w.value(key, text)
	}
}

func (w *writer) time(r *Record) {
	w.key(`"at":"`)
	var err error
	if w.out, err = r.At.AppendText(w.out); err != nil && w.err == nil {
		w.err = err
	}
	w.out = append(w.out, '"')
}

func (w *writer) undo(r *Record) {
	if r.Undo {
		w.key(`"undo":true`)
	}
}

func (w *writer) inverse(r *Record) {
	if r.Inverse != nil {
		w.value(`"inverse":`, r.Inverse.Document())
	}
}

func (w *writer) verdict(r *Record) {
	if r.Verdict != nil {
		w.value(`"verdict":`, r.Verdict)
	}
}

func (w *writer) epoch(r *Record) {
	if r.Epoch != 0 {
		w.number(`"epoch":`, r.Epoch)
	}
}
