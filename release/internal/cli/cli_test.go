package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestPlatform: a platform that nothing is released for ends with what can be named, before anything is built.
func TestPlatform(t *testing.T) {
	for _, c := range []struct{ platform, want string }{
		{"linux/riscv64", "error: theseus is not released for \"linux/riscv64\"\n" +
			"hint: name some of [linux/amd64 linux/arm64 darwin/amd64 darwin/arm64]\n"},
		{"darwin/arm64", "error: images are made for Linux alone, and --platform names none with it\n" +
			"hint: add --platform linux/amd64\n"},
	} {
		for _, command := range [][]string{{"images"}, {"release", "v0.2.0"}} {
			var said bytes.Buffer
			code := Main(t.Context(), append(command, "--platform", c.platform, "--dir", t.TempDir()+"/out"),
				&said, &said)
			if code != 1 || !strings.HasSuffix(said.String(), c.want) {
				t.Errorf("%v --platform %s: exit %d, said %q, want %q",
					command, c.platform, code, said.String(), c.want)
			}
		}
	}
}
