package shell_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/safeio/shell"
)

func TestSplit(t *testing.T) {
	for _, test := range []struct {
		command string
		want    []string
		err     string
	}{
		{"add", []string{"add"}, ""},
		{"  theseus-lab\tnode add\n", []string{"theseus-lab", "node", "add"}, ""},
		{`sh -c 'kops "edit" $X' ""`, []string{"sh", "-c", `kops "edit" $X`, ""}, ""},
		{`a\ b "c\"d\e" 'f\' g"h"i`, []string{"a b", `c"d\e`, `f\`, "ghi"}, ""},
		{"rm *; ~ | >x", []string{"rm", "*;", "~", "|", ">x"}, ""},
		{"", nil, "no program"},
		{" \t", nil, "no program"},
		{`"" x`, nil, "no program"},
		{"a 'b", nil, "not closed"},
		{`a "b`, nil, "not closed"},
		{`a \`, nil, "backslash"},
		{"a\x00b", nil, "byte 0"},
		{"'a\x00b'", nil, "byte 0"},
		{"a\\\x00b", nil, "byte 0"},
	} {
		got, err := shell.Split(test.command)
		if !slices.Equal(got, test.want) || (err == nil) != (test.err == "") ||
			err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: %q, %v", test.command, got, err)
		}
	}
}

// FuzzSplit: what is split and quoted again is split into the same.
func FuzzSplit(f *testing.F) {
	f.Add(`sh -c "a \"b\"" 'c d' e\ f`)
	f.Add("a '")
	f.Fuzz(func(t *testing.T, command string) {
		words, err := shell.Split(command)
		if err != nil {
			return
		}
		var quoted []string
		for _, word := range words {
			quoted = append(quoted, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
		}
		again, err := shell.Split(strings.Join(quoted, " "))
		if err != nil || !slices.Equal(again, words) {
			t.Errorf("%q is %q, and quoted again %q (%v)", command, words, again, err)
		}
	})
}
