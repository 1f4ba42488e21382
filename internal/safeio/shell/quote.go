// Package shell writes words of command lines, so that a command that is shown to a person does exactly that when it is
// pasted: names and values from a cluster are words, and no part of the command. It splits commands that run without a
// shell. It runs nothing.
package shell

import (
	"encoding/json"
	"strings"
)

// plain are the characters besides letters and digits that mean only themselves to a shell.
const plain = "_-./:=@%+,"

// Word is a text as one word of a command line: unquoted if that is safe, else in single quotes.
func Word(text string) string {
	special := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(plain, r)
	}
	if text != "" && !strings.ContainsFunc(text, special) {
		return text
	}
	return Quoted(text)
}

// Quoted is a text in single quotes.
func Quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// Words are texts as words, with spaces between them.
func Words(texts ...string) string {
	words := make([]string, len(texts))
	for i, text := range texts {
		words[i] = Word(text)
	}
	return strings.Join(words, " ")
}

// JSON is a value as JSON, in single quotes.
func JSON(value any) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // selectors have && in them
	if err := encoder.Encode(value); err != nil {
		return "''"
	}
	return Quoted(strings.TrimSpace(b.String()))
}
