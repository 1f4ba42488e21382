// Package freeze is the commands `theseus mirror freeze` and `theseus mirror thaw`.
package freeze
