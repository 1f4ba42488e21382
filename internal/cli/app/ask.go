package app

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/theseus-cni/theseus/internal/cli/exit"
)

// Terminal is the input, if it is a terminal.
func (a *App) Terminal() (*os.File, bool) {
	in, ok := a.In.(*os.File)
	return in, ok && term.IsTerminal(int(in.Fd()))
}

// Typed waits until a person types a word on the terminal.
func (a *App) Typed(ctx context.Context, word string) error {
	in, _ := a.Terminal() // the caller has checked that there is one
	fmt.Fprintf(a.Err, "Type %q to continue: ", word)
	answer := make(chan string, 1)
	go func() { // an interrupt does not end a read from a terminal; the program's exit does
		line, _ := bufio.NewReader(in).ReadString('\n') // an incomplete line is no confirmation
		answer <- line
	}()
	select {
	case <-ctx.Done():
		return exit.Fail(exit.Interrupted, "nothing was changed", "interrupted before it was confirmed")
	case line := <-answer:
		if strings.TrimSpace(line) == word {
			return nil
		}
	}
	return exit.Fail(exit.Stopped, "nothing was changed", "not confirmed")
}
