package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

// The exit codes, the same in every command and printed in every help text.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitBlocked     = 3
	exitStopped     = 5
	exitNeedsPerson = 6
	exitInterrupted = 130
)

const exitHelp = `Exit codes:
  0  done
  1  error
  2  usage
  3  findings block
  4  a gate failed and the change was rolled back
  5  stopped before the point of no return
  6  needs a person
  130  interrupted
`

// exitError is an error with an exit code, and a hint for the person who reads it.
type exitError struct {
	code int
	err  error
	hint string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }
func (e *exitError) Hint() string  { return e.hint }

// fail makes an error with a code and a hint.
func fail(code int, hint, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...), hint: hint}
}

// hinted is what errors of other packages offer.
type hinted interface{ Hint() string }

// exitCode prints an error and its hint, and returns the exit code: the only place that does.
func exitCode(w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	var quiet quietExit
	if errors.As(err, &quiet) {
		return int(quiet)
	}
	var coded *exitError
	if errors.Is(err, context.Canceled) && !errors.As(err, &coded) {
		err = fail(exitInterrupted, "run it again", "interrupted")
	}
	fmt.Fprintf(w, "error: %s\n", oneLine(err.Error()))
	if hint := hintOf(err); hint != "" {
		fmt.Fprintf(w, "hint: %s\n", oneLine(hint))
	}
	if errors.As(err, &coded) {
		return coded.code
	}
	if errors.Is(err, engine.ErrNeedsPerson) {
		return exitNeedsPerson
	}
	return exitFailed
}

// hintOf is what a person can do about an error: what the error says itself, else what its kind suggests.
func hintOf(err error) string {
	var own hinted
	var refused *cni.Refusal
	var call *url.Error
	var file *fs.PathError
	switch {
	case errors.As(err, &own) && own.Hint() != "":
		return own.Hint()
	case errors.As(err, &refused) && refused.Hint != "":
		return refused.Hint
	case apierrors.IsUnauthorized(err):
		return "check the user of the current context: kubectl config view --minify"
	case apierrors.IsForbidden(err):
		return "use a context with that right; kubectl auth can-i --list shows those of this one"
	case outage.Untrusted(err):
		return outage.UntrustedHint
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space there, or write to another disk"
	case errors.As(err, &call):
		return "check the context and the network: kubectl cluster-info"
	case errors.As(err, &file):
		return "check the path, and that you may use it"
	}
	return ""
}

// quietExit ends the program with a code when everything was said already.
type quietExit int

func (q quietExit) Error() string { return fmt.Sprintf("exit %d", int(q)) }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
