// Package sign has the command `theseus sign`.
package sign
