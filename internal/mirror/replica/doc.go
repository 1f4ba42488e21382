// Package replica keeps the objects of a mirror cluster in step with the original's: it reads both, lets
// package objects decide what to change, and makes the changes.
package replica
