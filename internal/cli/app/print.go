package app

import (
	"bytes"
	"fmt"
	"io"

	"github.com/theseus-cni/theseus/internal/cli/terminal"
)

// Print writes a text: on a terminal as wide as that is, else as it is, so that other programs find whole lines.
func (a *App) Print(text string) error {
	if file, ok := terminal.FileOf(a.Out); ok && terminal.Is(a.Out) {
		width, _ := terminal.Size(file)
		text = terminal.Fold(text, width)
	}
	_, err := fmt.Fprint(a.Out, text)
	return err
}

// Printed lets write make a text, and prints it.
func (a *App) Printed(write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return a.Print(text.String())
}
