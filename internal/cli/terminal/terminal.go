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

// Is says whether a stream leads to a terminal.
func Is(w io.Writer) bool {
	file, ok := FileOf(w)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Width is how many columns a text may have: those of the terminal, up to what reads well.
func Width(out io.Writer) int {
	const most = 120
	if file, ok := FileOf(out); ok && Is(out) {
		columns, _ := Size(file)
		return min(columns, most)
	}
	return most
}

// Size is the size of a terminal now; one that does not tell, or is too small for words, has 80 by 24.
func Size(terminal *os.File) (width, height int) {
	width, height, err := term.GetSize(int(terminal.Fd()))
	if err != nil || width < 20 || height < 5 {
		return 80, 24
	}
	return width, height
}
