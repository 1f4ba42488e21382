package canonical

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// naive is the canonical form by a tree of the document.
func naive(value any) ([]byte, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	tree, err := parse(data)
	if err != nil {
		return nil, err
	}
	return json.Marshal(tree)
}

func parse(data []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	tree, err := next(decoder, 0)
	if err != nil {
		return nil, err
	}
	return tree, end(decoder)
}

func next(decoder *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("JSON nested deeper than %d levels", maxDepth)
	}
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return object(decoder, depth)
		}
		return array(decoder, depth)
	case json.Number:
		return number(token), nil
	}
	return token, nil
}

func object(decoder *json.Decoder, depth int) (any, error) {
	fields := map[string]any{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		key := token.(string) // the decoder accepts nothing else here
		if _, known := fields[key]; known {
			return nil, twice(key)
		}
		if fields[key], err = next(decoder, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := decoder.Token()
	return fields, err
}

func array(decoder *json.Decoder, depth int) (any, error) {
	items := []any{}
	for decoder.More() {
		item, err := next(decoder, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	_, err := decoder.Token()
	return items, err
}

// TestNaive: random documents have the form that a tree of them has, or are refused for the same reason.
func TestNaive(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 20_000 {
		text := randomValue(random, 0)
		if !json.Valid([]byte(text)) {
			t.Fatalf("%q is no JSON", text)
		}
		want, wantErr := naive(json.RawMessage(text))
		got, err := JSON(json.RawMessage(text))
		if !bytes.Equal(got, want) || fmt.Sprint(err == nil) != fmt.Sprint(wantErr == nil) {
			t.Fatalf("%s\nhas the form %s, %v\nand by its tree %s, %v", text, got, err, want, wantErr)
		}
		if err != nil {
			refused++
		}
	}
	if refused < 100 || refused > 10_000 {
		t.Errorf("%d of 20,000 have a key twice", refused)
	}
}

// randomValue is the text of a value, in one of the ways in which it can be written.
func randomValue(random *rand.Rand, depth int) string {
	kind := random.IntN(8)
	if depth > 4 {
		kind = random.IntN(5)
	}
	gap := []string{"", " ", "\n\t"}[random.IntN(3)]
	switch kind {
	case 0:
		return gap + []string{"true", "false", "null"}[random.IntN(3)]
	case 1:
		return []string{"0", "-0", "1.0", "1e3", "-12", "9007199254740993", "9223372036854775807",
			"9223372036854775808", "123456789012345678", "1234567890123456789", "1e400", "0.1", "-1.5e-7",
			"1E2", "12.0"}[random.IntN(15)]
	case 2, 3, 4:
		return randomText(random)
	case 5:
		var all []string
		for range random.IntN(4) {
			all = append(all, randomValue(random, depth+1))
		}
		return "[" + gap + strings.Join(all, gap+",") + "]"
	}
	var all []string
	for range random.IntN(6) {
		all = append(all, gap+randomText(random)+gap+":"+randomValue(random, depth+1))
	}
	return "{" + strings.Join(all, ",") + gap + "}"
}

func randomText(random *rand.Rand) string {
	parts := []string{"a", "b", "Z", "1", "-", ".", "<", ">", "&", "\u00e4", "\xff", "\u2028", "\ufffd", `\n`, `\u0061`,
		`\u003c`, `\ud800`, `\ud83d\ude00`, `\\`, `\"`, `\/`, "\U0001F600"}
	var text strings.Builder
	for range random.IntN(4) {
		text.WriteString(parts[random.IntN(len(parts))])
	}
	return `"` + text.String() + `"`
}

// BenchmarkHash: a document like a step of a plan, hashed as it is and by its tree.
func BenchmarkHash(b *testing.B) {
	type action struct {
		ID, Op, Title string
		Args          map[string]any
		Timeout       int
	}
	var document []action
	for i := range 1000 {
		document = append(document, action{fmt.Sprintf("wave-1/a/%d", i), "task",
			"move the pods of node-1 to Calico, and -> wait",
			map[string]any{"node": "node-1", "pods": []string{"a", "b"}}, i})
	}
	b.Run("form", func(b *testing.B) {
		for b.Loop() {
			if _, err := JSON(document); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("tree", func(b *testing.B) {
		for b.Loop() {
			if _, err := naive(document); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// spaced marshals itself with spaces, and odd makes a key that must be escaped.
type (
	spaced struct{}
	odd    string
)

func (spaced) MarshalJSON() ([]byte, error) { return []byte(` { "b" : 1 , "a" : [ 1 , 2 ] } `), nil }
func (o odd) MarshalText() ([]byte, error)  { return []byte("<" + string(o) + "\xff\u2028>"), nil }

// TestNaiveEdges: the same of values at the edges of what JSON and Go have, alone and within others, and at the
// greatest depth.
func TestNaiveEdges(t *testing.T) {
	nested := func(depth int, open, inner, end string) any {
		return json.RawMessage(strings.Repeat(open, depth) + inner + strings.Repeat(end, depth))
	}
	values := []any{nil, map[string]any(nil), []string(nil), map[string]any{}, []any{}, struct{}{},
		json.RawMessage(nil), json.RawMessage(" null "), spaced{}, map[odd]int{"a": 1, "b": 2},
		map[int]int{-1: 2, 10: 1, 9: 0}, map[string]int{"\xff": 1, "\xfe": 2}, "\u2028\u2029", []byte("abc"), 1e21,
		-1e21, 1e20, 1e-7, math.Copysign(0, -1), float32(0.1), math.MaxFloat64, math.SmallestNonzeroFloat64,
		uint64(math.MaxUint64), int64(math.MinInt64), json.Number("1E400"), json.Number("-0.0"),
		json.Number("9007199254740993.0"), json.Number("-9223372036854775808"), json.Number("-9223372036854775809")}
	for depth := maxDepth - 1; depth <= maxDepth+1; depth++ {
		for _, inner := range []string{"1", "{}", "[]"} {
			values = append(values, nested(depth, "[", inner, "]"), nested(depth, `{"b":1,"a":`, inner, "}"))
		}
	}
	for _, value := range values {
		for _, whole := range []any{value, []any{value, value}, map[string]any{"z": value, "<": value, "a": value}} {
			want, wantErr := naive(whole)
			got, err := JSON(whole)
			if !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
				t.Errorf("%.80v\nhas the form %.200s, %v\nand by its tree %.200s, %v", whole, got, err, want, wantErr)
			}
		}
	}
}
