// Package certs has the command `theseus mirror certs`.
package certs
