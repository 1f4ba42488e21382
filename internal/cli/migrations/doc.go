// Package migrations is the form of commands about one migration, the one that is named or the latest, and what
// its journal says.
package migrations
