// Package statedir is the folder in which this machine keeps what belongs to a migration: its copy of the
// journal, the evidence, and which plan was approved.
package statedir
