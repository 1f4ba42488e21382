// Package replica keeps the objects of a mirror cluster in step with the original's: it reads both, asks package
// twin what is to be done, and does it.
package replica
