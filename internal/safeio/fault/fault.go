// Package fault says what is wrong with an input, and where.
//
// The package is pure.
package fault

import "fmt"

// Error is what is wrong with an input, and where.
type Error struct {
	File string
	// Line counts from 1; 0 when it is not known.
	Line int
	Err  error
	// Advice is what to try, where there is something.
	Advice string
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.File, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Hint says what to try; empty when nothing comes to mind.
func (e *Error) Hint() string { return e.Advice }
