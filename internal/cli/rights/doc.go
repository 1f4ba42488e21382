// Package rights is the command `theseus rights`.
package rights
