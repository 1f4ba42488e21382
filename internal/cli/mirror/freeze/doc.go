// Package freeze has the commands `theseus mirror freeze` and `theseus mirror thaw`.
package freeze
