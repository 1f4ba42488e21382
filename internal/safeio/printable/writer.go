// Package printable makes text safe for terminals, logs and pages. Names and messages in a cluster are written by
// others: a control character in them can hide lines, write to the clipboard, or reorder the text that a person reads.
// Each such character is shown as \u and its code, which JSON reads as the same character.
package printable

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"
)

// colour matches Theseus' own escapes: bold, dim, and colours that are visible on black and on white. None hides text.
var colour = regexp.MustCompile("^\x1b\\[(?:[012]|(?:1;)?3[1-6])m")

// begun matches the beginning of a colour escape.
var begun = regexp.MustCompile("^\x1b(?:\\[[0-9;]{0,4})?$")

// Text returns a text without control characters except line ends, tabs and colours, and without marks that change the
// direction of reading. Bytes that are not UTF-8 are shown as \ufffd.
func Text(text []byte) []byte {
	clean, rest := convert(text, true)
	return append(clean, rest...)
}

// Line returns a text as part of one line: without control characters of any kind, so that it neither begins a line of
// its own nor has a colour.
func Line(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return harmful(r) || r == utf8.RuneError }) {
		return text
	}
	var clean []byte
	for _, r := range text {
		if harmful(r) {
			clean = fmt.Appendf(clean, `\u%04x`, r)
		} else {
			clean = utf8.AppendRune(clean, r)
		}
	}
	return string(clean)
}

// convert makes text safe, except an incomplete character or colour at its end, unless it is the end of all text.
func convert(text []byte, end bool) (clean, rest []byte) {
	clean = make([]byte, 0, len(text))
	for len(text) > 0 {
		if c := text[0]; c >= ' ' && c < 0x7f || c == '\n' || c == '\t' {
			clean, text = append(clean, c), text[1:]
			continue
		}
		if !end && (!utf8.FullRune(text) || len(text) == 1 && text[0] == '\r' || begun.Match(text)) {
			return clean, text
		}
		if code := colour.Find(text); code != nil {
			clean, text = append(clean, code...), text[len(code):]
			continue
		}
		r, size := utf8.DecodeRune(text)
		switch {
		case bytes.HasPrefix(text, []byte("\r\n")), !harmful(r) && (r != utf8.RuneError || size > 1):
			clean = append(clean, text[:size]...)
		default:
			clean = fmt.Appendf(clean, `\u%04x`, r)
		}
		text = text[size:]
	}
	return clean, nil
}

// harmful are control characters, line ends that only some programs know, and marks that change the direction.
func harmful(r rune) bool {
	switch {
	case r < ' ', r >= 0x7f && r < 0xa0, r == 0x2028, r == 0x2029,
		r == 0x061c, r == 0x200e, r == 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

// Writer writes text as Text makes it, also if two writes split a character.
type Writer struct {
	to   io.Writer
	lock sync.Mutex
	held []byte
}

// NewWriter makes a Writer to another writer.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Unwrap is the writer that the text goes to.
func (w *Writer) Unwrap() io.Writer { return w.to }

// Write implements io.Writer.
func (w *Writer) Write(text []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	clean, rest := convert(append(w.held, text...), false)
	w.held = bytes.Clone(rest)
	if len(clean) > 0 {
		if _, err := w.to.Write(clean); err != nil {
			return 0, err
		}
	}
	return len(text), nil
}

// Flush writes an incomplete end of the text.
func (w *Writer) Flush() error {
	w.lock.Lock()
	defer w.lock.Unlock()
	if len(w.held) == 0 {
		return nil
	}
	_, err := w.to.Write(Text(w.held))
	w.held = nil
	return err
}
