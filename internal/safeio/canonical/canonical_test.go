package canonical_test

import (
	"encoding/json"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/safeio/canonical"
)

// TestSame: what means the same has one form.
func TestSame(t *testing.T) {
	for form, texts := range map[string][]string{
		`{"a":[1,null,true,"<"],"b":{}}`: {`{"a":[1,null,true,"<"],"b":{}}`,
			` { "b" : { } , "a" : [ 1.0 , null , true , "\u003c" ] } `},
		`9007199254740993`: {`9007199254740993`},
		`1000`:             {`1000`, `1e3`, `1000.0`, `1.0e+3`},
		`0.1`:              {`0.1`, `0.10`, `1e-1`},
		`0`:                {`0`, `-0`, `0.0`},
	} {
		for _, text := range texts {
			got, err := canonical.JSON(json.RawMessage(text))
			want := strings.ReplaceAll(form, "<", `\u003c`)
			if err != nil || string(got) != want {
				t.Errorf("%s has the form %s, %v; want %s", text, got, err, want)
			}
		}
	}
}

// TestDiffers: what differs has different forms, also where a reader of floats sees no difference.
func TestDiffers(t *testing.T) {
	for one, other := range map[string]string{
		`9007199254740993`:       `9007199254740992`,
		`{"a":null}`:             `{}`,
		`"1"`:                    `1`,
		`[]`:                     `null`,
		`{"a":{"b":1},"c":"\""}`: `{"a":{"b":1,"c":""}}`,
		`0.1`:                    `0.10000000000000002`,
	} {
		left, errLeft := canonical.Hash(slices.Values([]any{json.RawMessage(one)}))
		right, errRight := canonical.Hash(slices.Values([]any{json.RawMessage(other)}))
		if errLeft != nil || errRight != nil || left == right {
			t.Errorf("%s and %s: %s, %s, %v, %v", one, other, left, right, errLeft, errRight)
		}
	}
}

// TestListed: lists that are written entry by entry have the same hash as in one piece.
func TestListed(t *testing.T) {
	whole := map[string]any{"a": 1, "b<": []any{map[string]any{"z": 1, "y": 2}, "x"}, "c": []any{}, "d": nil}
	lists := map[string]iter.Seq[any]{"b<": slices.Values(whole["b<"].([]any)), "c": slices.Values([]any{})}
	listed := canonical.Listed{Object: map[string]any{"a": 1, "b<": nil, "d": nil}, Lists: lists}
	want, err := canonical.Hash(slices.Values([]any{whole, "next"}))
	got, errListed := canonical.Hash(slices.Values([]any{listed, "next"}))
	if err != nil || errListed != nil || got != want {
		t.Errorf("%s, %v; want %s, %v", got, errListed, want, err)
	}
	lists["c"] = slices.Values([]any{"more"})
	if got, _ := canonical.Hash(slices.Values([]any{listed, "next"})); got == want {
		t.Error("an entry of a list is not in the hash")
	}
	lists["c"] = slices.Values([]any{json.RawMessage(`{"a":1,"a":2}`)})
	if _, err := canonical.Hash(slices.Values([]any{listed})); err == nil {
		t.Error("an entry with a key that stands twice has a hash")
	}
}

// TestRefuses: a document that two readers may read differently has no form.
func TestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"a":2}`:                   `key "a"`,
		`{"x":[{"a":1,"\u0061":1}]}`:      `key "a"`,
		strings.Repeat("[", 2000):         "nested deeper",
		`{} {}`:                           "data after",
		`{"a":`:                           "EOF",
		``:                                "EOF",
		`{"a":{"x":1},"b":1,"a":{"y":1}}`: `key "a"`,
	} {
		if err := canonical.Once([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
		if !json.Valid([]byte(text)) {
			continue
		}
		if _, err := canonical.JSON(json.RawMessage(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", text, err, want)
		}
	}
}
