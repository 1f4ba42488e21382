// Package contents says which images there are, and what is in each: its program of Theseus, the programs of Debian
// that this one calls, and the reason for every one. A test compares them with what the source calls.
package contents
