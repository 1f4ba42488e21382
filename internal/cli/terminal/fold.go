package terminal

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// paint matches colour escapes, which take no columns.
var paint = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Fold breaks lines that are wider than width columns between words. Continuation lines are indented to the line's
// first word, in lists further. A fix is not broken: it may be a command to copy.
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
		if strings.HasPrefix(words, "- ") || indent == 2 { // a list item
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
