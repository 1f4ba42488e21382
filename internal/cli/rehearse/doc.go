// Package rehearse has the command `theseus rehearse`, which runs a change on a small copy of a cluster, and `theseus
// rehearse remove`.
package rehearse
