package exit

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
	Done        = 0
	Failed      = 1
	Usage       = 2
	Blocked     = 3
	Stopped     = 5
	NeedsPerson = 6
	Lost        = 7
	Unproven    = 8
	Interrupted = 130
)

// Help is the part of the root command's help text about exit codes.
const Help = `Exit codes:
  0  done
  1  error
  2  usage
  3  blocked by findings
  4  a gate failed and the change was rolled back
  5  stopped before the point of no return
  6  needs a person
  7  guard: a loss is proven
  8  guard: not proven, since the probes did not cover the whole change
  130  interrupted
`

// Error is an error with an exit code, and a hint for the person who reads it.
type Error struct {
	Code int
	err  error
	hint string
}

func (e *Error) Error() string { return e.err.Error() }
func (e *Error) Unwrap() error { return e.err }

// Hint is what a person can do about it.
func (e *Error) Hint() string { return e.hint }

// Fail makes an error with a code and a hint.
func Fail(code int, hint, format string, args ...any) error {
	return &Error{Code: code, err: fmt.Errorf(format, args...), hint: hint}
}

// hinted is implemented by errors of other packages that have a hint.
type hinted interface{ Hint() string }

// Code prints an error and its hint, and returns the exit code. No other function does.
func Code(w io.Writer, err error) int {
	if err == nil {
		return Done
	}
	var quiet Quiet
	if errors.As(err, &quiet) {
		return int(quiet)
	}
	var coded *Error
	if errors.Is(err, context.Canceled) && !errors.As(err, &coded) {
		err = Fail(Interrupted, "run it again", "interrupted")
	}
	fmt.Fprintf(w, "error: %s\n", OneLine(err.Error()))
	if hint := HintOf(err); hint != "" {
		fmt.Fprintf(w, "hint: %s\n", OneLine(hint))
	}
	if errors.As(err, &coded) {
		return coded.Code
	}
	if errors.Is(err, engine.ErrNeedsPerson) {
		return NeedsPerson
	}
	return Failed
}

// HintOf is the hint of an error: its own, else one for its kind.
func HintOf(err error) string {
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
		return "use a context with that permission; kubectl auth can-i --list shows the current ones"
	case outage.Untrusted(err):
		return outage.UntrustedHint
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free disk space there, or write to another disk"
	case errors.As(err, &call):
		return "check the context and the network: kubectl cluster-info"
	case errors.As(err, &file):
		return "check the path and its permissions"
	}
	return ""
}

// Quiet ends the program with a code after the command has printed everything.
type Quiet int

func (q Quiet) Error() string { return fmt.Sprintf("exit %d", int(q)) }

// OneLine puts a text of several lines on one.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Cause is why a run ended. Without a recorded cause, a person asked for it.
func Cause(cause string) string {
	if cause == "" {
		return "as requested"
	}
	return cause
}
