package cli

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"
)

// print writes a text: on a terminal as wide as that is, else as it is, so that other programs find whole lines.
func (a *app) print(text string) error {
	if file, ok := fileOf(a.Out); ok && isTerminal(a.Out) {
		width, _ := screen(file)
		text = fold(text, width)
	}
	_, err := fmt.Fprint(a.Out, text)
	return err
}

// printed lets write make a text, and prints it.
func (a *app) printed(write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return a.print(text.String())
}

// paint is what colours a text, and takes no room.
var paint = regexp.MustCompile("\x1b\\[[0-9;]*m")

// fold breaks lines that are wider than width columns between words; what follows stands below the line's first word, in
// lists further in. A fix is left whole: it may be a command, which is to be copied.
func fold(text string, width int) string {
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
