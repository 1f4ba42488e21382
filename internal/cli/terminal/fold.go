package terminal

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// paint is what colours a text, and takes no room.
var paint = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Fold breaks lines that are wider than width columns between words; what follows stands below the line's first word, in
// lists further in. A fix is left whole: it may be a command, which is to be copied.
func Fold(text string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		body := strings.TrimRight(line, "\n")
		words := strings.TrimLeft(body, " ")
		if columns(body) <= width || strings.HasPrefix(words, "fix: ") || strings.HasPrefix(words, "|") {
			b.WriteString(line)
			continue
		}
		indent := len(body) - len(words)
		if strings.HasPrefix(words, "- ") || indent == 2 { // of a list
			indent += 2
		}
		at := len(body) - len(words)
		b.WriteString(strings.Repeat(" ", at))
		for i, word := range strings.Split(words, " ") {
			switch {
			case i == 0:
			case at+1+columns(word) > width:
				b.WriteString("\n" + strings.Repeat(" ", indent))
				at = indent
			default:
				b.WriteByte(' ')
				at++
			}
			b.WriteString(word)
			at += columns(word)
		}
		b.WriteString(line[len(body):])
	}
	return b.String()
}

func columns(text string) int { return utf8.RuneCountInString(paint.ReplaceAllString(text, "")) }
