// Package sign is the command `theseus sign`.
package sign
