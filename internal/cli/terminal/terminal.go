package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// FileOf is the file that a stream leads to, if it is one.
func FileOf(w io.Writer) (*os.File, bool) {
	if over, ok := w.(interface{ Unwrap() io.Writer }); ok {
		w = over.Unwrap()
	}
	file, ok := w.(*os.File)
	return file, ok
}

// Is reports whether a stream leads to a terminal.
func Is(w io.Writer) bool {
	file, ok := FileOf(w)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Width is how many columns a text may have: those of the terminal, up to a readable maximum.
func Width(out io.Writer) int {
	const most = 120
	if file, ok := FileOf(out); ok && Is(out) {
		columns, _ := Size(file)
		return min(columns, most)
	}
	return most
}

// Size is the current size of a terminal; 80 by 24 if it is unknown or too small for words.
func Size(terminal *os.File) (width, height int) {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width < 20 || height < 5 {
		return 80, 24
	}
	return width, height
}
