// Package serve has the command `theseus flags serve`.
package serve
