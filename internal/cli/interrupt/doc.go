// Package interrupt handles signals: they end most commands at once, and a run of a migration after the current
// action.
package interrupt
