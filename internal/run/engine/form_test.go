package engine_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/theseus-cni/theseus/internal/proof/signal"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/safeio/canonical"
)

// wantForms demands of a record that its JSON is json.Marshal's, and that its chain covers its canonical form.
func wantForms(t *testing.T, r engine.Record) {
	t.Helper()
	want, errWant := json.Marshal(r)
	got, err := r.AppendJSON([]byte("before"))
	if (err == nil) != (errWant == nil) || err == nil && string(got) != "before"+string(want) {
		t.Errorf("%s, %v\nwant %s, %v", got, err, want, errWant)
	}
	bare := r
	bare.Chain = ""
	hash, errWant := canonical.Hash(slices.Values([]any{"head <1>", bare}))
	link, err := engine.Link("head <1>", r)
	if (err == nil) != (errWant == nil) || link != hash {
		t.Errorf("%s has the link %s, %v; want %s, %v", want, link, err, hash, errWant)
	}
}

// TestForms: each field of a record, with values of all kinds, alone and with others.
func TestForms(t *testing.T) {
	texts := []string{"", "a", `"`, `\`, "<&>", "\x00\x1f\x7f", "ä\u2028", "\xff", "node-1/act"}
	trees := []json.RawMessage{nil, {}, json.RawMessage(`{"z": 1.0, "a":["<",null]}`),
		json.RawMessage(`{"a":1,"a":2}`), json.RawMessage(`{`), json.RawMessage(`null`)}
	inverse := node("n/undo", "n<", "join")
	values := map[string][]any{
		"Seq": {0, 1, -7, 160001},
		"At": {time.Time{}, time.Date(2026, 1, 2, 3, 4, 5, 600, time.FixedZone("", 3600)),
			time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"Undo": {false, true}, "Before": {}, "Data": {},
		"Inverse": {&inverse},
		"Verdict": {&engine.Verdict{}, &engine.Verdict{Pass: true, Reason: "<", LongestGapMillis: 1.5,
			Bad: []string{"ä"}, Signals: []signal.Answer{{}}}},
		"Epoch": {int64(0), int64(9)},
	}
	for _, tree := range trees {
		values["Before"], values["Data"] = append(values["Before"], tree), append(values["Data"], tree)
	}
	kind := reflect.TypeFor[engine.Record]()
	fill := func(r *engine.Record, field int, n int) {
		to := reflect.ValueOf(r).Elem().Field(field)
		if to.Kind() == reflect.String {
			to.SetString(texts[n%len(texts)])
			return
		}
		known := values[kind.Field(field).Name]
		if len(known) == 0 {
			t.Fatalf("no values for the field %s", kind.Field(field).Name)
		}
		to.Set(reflect.ValueOf(known[n%len(known)]))
	}
	for field := range kind.NumField() {
		for n := range len(texts) {
			t.Run(fmt.Sprintf("%s/%d", kind.Field(field).Name, n), func(t *testing.T) {
				r := engine.Record{Seq: 3, Event: engine.Acted, Chain: "c"}
				fill(&r, field, n)
				wantForms(t, r)
			})
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var r engine.Record
		for field := range kind.NumField() {
			fill(&r, field, random.IntN(60))
		}
		wantForms(t, r)
	}
}
