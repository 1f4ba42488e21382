// Package contents says which images there are, and what is in each: a program of Theseus, the Debian programs that
// it calls, and the reason for each. A test compares them with the calls in the source.
package contents
