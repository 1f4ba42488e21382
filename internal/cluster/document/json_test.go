package document

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzValue holds the cutting of JSON to what encoding/json takes for one value, in pieces of any size.
func FuzzValue(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"]\"}",{}],"b":null}`, `"\\"`, `-1.5e9`, `[[],{}]`,
		`true`, ` {"x" : "\u00e9"} `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		want := strings.TrimSpace(string(data))
		input := append(bytes.Clone(data), ",7"...)
		for _, size := range []int{16, 1 << 12} {
			r := &jsonReader{input: bufio.NewReaderSize(iotest.HalfReader(bytes.NewReader(input)), size), line: 1}
			got, err := r.value()
			if err != nil || string(got) != want {
				t.Fatalf("got %q, %v; want %q", got, err, want)
			}
			if r.expect(',', "comma") != nil {
				t.Fatalf("what follows %q is lost", want)
			}
			if next, err := r.value(); err != nil || string(next) != "7" {
				t.Fatalf("then %q, %v", next, err)
			}
		}
	})
}
