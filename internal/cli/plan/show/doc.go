// Package show has the command `theseus plan show`.
package show
