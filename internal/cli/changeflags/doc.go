// Package changeflags has the flags that describe the requested change, and the document that --change names
// instead.
package changeflags
