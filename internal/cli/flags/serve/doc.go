// Package serve is the command `theseus flags serve`.
package serve
