package slo

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/theseus-cni/theseus/internal/cli/exit"
)

func TestWithoutCommands(t *testing.T) {
	if got := WithoutCommands([]string{"http://p a < 1", "command: touch x", " command: y", "https://a/b"}); !slices.Equal(got, []string{"http://p a < 1", "https://a/b"}) {
		t.Errorf("%q", got)
	}
}

func TestResolve(t *testing.T) {
	for name, test := range map[string]struct {
		args, given, want []string
		says              string
	}{
		"none":             {},
		"of a document":    {given: []string{"http://p a < 1"}, want: []string{"http://p a < 1"}},
		"flags override":   {args: []string{"--slo", "https://a/b"}, given: []string{"http://p a < 1"}, want: []string{"https://a/b"}},
		"commas and two":   {args: []string{"--slo", "http://p sum by (a,b) (c) < 1", "--slo", "command: ./x"}, want: []string{"http://p sum by (a,b) (c) < 1", "command: ./x"}},
		"prometheus":       {args: []string{"--prometheus", "http://p:9090", "--slo", "a < 1", "--slo", "https://a/b"}, want: []string{"http://p:9090 a < 1", "https://a/b"}},
		"of both":          {args: []string{"--prometheus", "http://p:9090"}, given: []string{"a < 1"}, want: []string{"http://p:9090 a < 1"}},
		"nothing to ask":   {args: []string{"--prometheus", "http://p:9090"}, says: "no signal of --slo"},
		"no address":       {args: []string{"--prometheus", "p:9090", "--slo", "a < 1"}, says: "--prometheus p:9090 is not an address"},
		"a command":        {args: []string{"--prometheus", "command: x", "--slo", "a < 1"}, says: "is not an address"},
		"no source":        {args: []string{"--slo", "a < 1"}, says: "does not say where to ask"},
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
		if !slices.Equal(got, test.want) || (err != nil) != (test.says != "") || !strings.Contains(out.String(), test.says) || err != nil && !strings.Contains(out.String(), "hint: ") {
			t.Errorf("%s: %q, %v: %s", name, got, err, out.String())
		}
	}
}
