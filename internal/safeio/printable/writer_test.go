package printable

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		"plain, ü\ttab\nline\r\n":          "plain, ü\ttab\nline\r\n",
		"\x1b[31mred\x1b[0m":               "\x1b[31mred\x1b[0m",
		"\x1b[1;33mwarn\x1b[0m":            "\x1b[1;33mwarn\x1b[0m",
		"a\x1b]52;c;bHM=\x07b":             `a\u001b]52;c;bHM=\u0007b`,
		"a\x1b]8;;http://x\x1b\\b":         `a\u001b]8;;http://x\u001b\b`,
		"\x1b[30mhidden on black":          `\u001b[30mhidden on black`,
		"\x1b[2Aup, \x1b[8mhidden":         `\u001b[2Aup, \u001b[8mhidden`,
		"over\rwritten":                    `over\u000dwritten`,
		"a\u202eb\u2066c\u200fd\u061ce":    `a\u202eb\u2066c\u200fd\u061ce`,
		"c1 \u009b31m, del \x7f, ls\u2028": `c1 \u009b31m, del \u007f, ls\u2028`,
		"not \xff UTF-8":                   `not \ufffd UTF-8`,
	} {
		if got := string(Text([]byte(text))); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"plain ü":                          "plain ü",
		"a\nfix: kubectl delete ns x":      `a\u000afix: kubectl delete ns x`,
		"\x1b[32mgreen\x1b[0m\ttab\u202e.": `\u001b[32mgreen\u001b[0m\u0009tab\u202e.`,
		"\xff":                             "\ufffd",
	} {
		if got := Line(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func FuzzWriter(f *testing.F) {
	f.Add([]byte("a\x1b[31mb\xe2\x80\xaec\r\nd"), 3)
	f.Add([]byte("\x1b[3"), 1)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		cut = max(0, min(cut, len(text)))
		var out bytes.Buffer
		w := NewWriter(&out)
		for _, part := range [][]byte{text[:cut], text[cut:]} {
			if n, err := w.Write(part); err != nil || n != len(part) {
				t.Fatal(n, err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if got, want := out.Bytes(), Text(text); !bytes.Equal(got, want) {
			t.Errorf("cut at %d: %q, whole: %q", cut, got, want)
		}
		if !utf8.Valid(out.Bytes()) || !bytes.Equal(Text(out.Bytes()), out.Bytes()) {
			t.Errorf("%q is not clean", out.Bytes())
		}
		if value, err := json.Marshal(string(text)); err == nil {
			var before, after string
			if json.Unmarshal(value, &before) != nil || json.Unmarshal(Text(value), &after) != nil || before != after {
				t.Errorf("JSON %q says something else after it", value)
			}
		}
	})
}
