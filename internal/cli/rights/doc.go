// Package rights has the command `theseus rights`.
package rights
