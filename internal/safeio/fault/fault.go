// Package fault describes an error in an input, and its position.
//
// The package is pure.
package fault

import "fmt"

// Error is an error in an input, with its position.
type Error struct {
	File string
	// Line counts from 1; 0 if it is unknown.
	Line int
	Err  error
	// Advice is a hint how to fix it; it may be empty.
	Advice string
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
	}
	return fmt.Sprintf("%s: %v", e.File, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Hint says how to fix the error; it may be empty.
func (e *Error) Hint() string { return e.Advice }
