// Package interrupt is what signals do to a command: most commands they end, a run they end after the action at
// hand.
package interrupt
