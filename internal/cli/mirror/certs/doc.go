// Package certs is the command `theseus mirror certs`.
package certs
