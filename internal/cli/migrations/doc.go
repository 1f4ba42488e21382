// Package migrations has the common form of commands about one migration, the named or the latest one, and reads its
// journal.
package migrations
