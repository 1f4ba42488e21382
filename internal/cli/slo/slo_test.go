package slo

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/theseus-cni/theseus/internal/cli/exit"
)

func TestWithoutCommands(t *testing.T) {
	if got := withoutCommands([]string{"http://p a < 1", "command: touch x", " command: y",
		"https://a/b"}); !slices.Equal(got, []string{"http://p a < 1", "https://a/b"}) {
		t.Errorf("%q", got)
	}
}

func TestResolve(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args, given, want []string
		says              string
	}{
		"none":          {},
		"of a document": {given: []string{"http://p a < 1"}, want: []string{"http://p a < 1"}},
		"flags override": {args: []string{"--slo", "https://a/b"}, given: []string{"http://p a < 1"},
			want: []string{"https://a/b"}},
		"commas and two": {args: []string{"--slo", "http://p sum by (a,b) (c) < 1", "--slo", "command: ./x 'a b'"},
			want: []string{"http://p sum by (a,b) (c) < 1", "command: " + filepath.Join(here, "x") + " 'a b'"}},
		"prometheus": {args: []string{"--prometheus", "http://p:9090", "--slo", "a < 1", "--slo", "https://a/b"},
			want: []string{"http://p:9090 a < 1", "https://a/b"}},
		"of both": {args: []string{"--prometheus", "http://p:9090"}, given: []string{"a < 1"},
			want: []string{"http://p:9090 a < 1"}},
		"nothing to ask": {args: []string{"--prometheus", "http://p:9090"}, says: "no signal of --slo"},
		"no address": {args: []string{"--prometheus", "p:9090", "--slo", "a < 1"},
			says: "the text of --prometheus is not an address"},
		"a command": {args: []string{"--prometheus", "command: x", "--slo", "a < 1"}, says: "is not an address"},
		"a password": {args: []string{"--prometheus", "http://u:secret@p", "--slo", "a < 1"},
			says: "is not an address"},
		"another password": {args: []string{"--slo", "http://p a < 1", "--slo", "http://u:secret@p a < 1"},
			says: "--slo: signal 2 of 2: its address holds credentials"},
		"a token": {args: []string{"--slo", "https://p/x?token=secret"},
			says: "signal 1 of 1: its address holds credentials"},
		"no source":        {args: []string{"--slo", "a < 1"}, says: "has no address"},
		"empty":            {args: []string{"--slo", ""}, says: "it is empty"},
		"empty, and given": {args: []string{"--prometheus", "http://p", "--slo", ""}, says: "it is empty"},
	} {
		var f Flags
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.Register(flags, "always")
		if err := flags.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		got, err := f.Resolve(test.given)
		var out bytes.Buffer
		if err != nil && exit.Code(&out, err) != exit.Usage {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(out.String(), "secret") {
			t.Errorf("%s: %s", name, out.String())
		}
		if !slices.Equal(got, test.want) || (err != nil) != (test.says != "") ||
			!strings.Contains(out.String(), test.says) || err != nil && !strings.Contains(out.String(), "hint: ") {
			t.Errorf("%s: %q, %v: %s", name, got, err, out.String())
		}
	}
}
