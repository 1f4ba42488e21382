package terminal

import (
	"testing"
)

func TestFold(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"fits", "one two\nthree\n", "one two\nthree\n"},
		{"a sentence", "    one two three four\n", "    one two\n    three\n    four\n"},
		{"a list", "  - one two three\n", "  - one two\n    three\n"},
		{"a list without marks", "  a: bb ccc dddd\n", "  a: bb ccc\n    dddd\n"},
		{"no line's end", "one two three", "one two\nthree"},
		{"a word that is too long", "one-two-three-four five\n", "one-two-three-four\nfive\n"},
		{"a command", "    fix: kubectl get nodes -o yaml\n", "    fix: kubectl get nodes -o yaml\n"},
		{"colours take no room", "\x1b[1;31mblock\x1b[0m \x1b[1ma/b\x1b[0m\n",
			"\x1b[1;31mblock\x1b[0m \x1b[1ma/b\x1b[0m\n"},
		{"runes, not bytes", "ééééé ééééé\n", "ééééé ééééé\n"},
		{"two blanks stay", "a  b ccc ddd eee\n", "a  b ccc ddd\neee\n"},
	} {
		if got := Fold(test.text, 12); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}
