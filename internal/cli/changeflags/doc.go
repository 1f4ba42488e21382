// Package changeflags is the flags that say which change is wanted, and the document that --change names
// instead.
package changeflags
