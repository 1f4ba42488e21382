// Package web is the command `theseus web`.
package web
