package shell

import (
	"os/exec"
	"strings"
	"testing"
)

func TestWord(t *testing.T) {
	for text, want := range map[string]string{
		"node-1": "node-1", "kube-system/a.b": "kube-system/a.b", "": "''", "a b": "'a b'", "it's": `'it'\''s'`,
		"$(id)": "'$(id)'", "~": "'~'", "key=value": "key=value", "*": "'*'",
		"a\nb": "'a\nb'", "!x": "'!x'", "ü": "'ü'",
	} {
		if got := Word(text); got != want {
			t.Errorf("%q became %s, want %s", text, got, want)
		}
	}
	if got := Words("a", "b c"); got != "a 'b c'" {
		t.Error(got)
	}
	if got := JSON(map[string]any{"a": "it's && <b>"}); got != `'{"a":"it'\''s && <b>"}'` {
		t.Error(got)
	}
}

// FuzzWord holds that a real shell takes a word for what it was made of.
func FuzzWord(f *testing.F) {
	for _, seed := range []string{"a", "$(id)", "it's", "a\nb", "\\", "-n", "`x`;#&|", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsRune(text, 0) {
			return // no argument has it
		}
		got, err := exec.Command("sh", "-c", "printf %s. "+Word(text)).Output()
		if want := text + "."; err != nil || string(got) != want {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	})
}
