// Package database has the commands about flags in a database: `theseus flags put` and `theseus flags history`.
package database
