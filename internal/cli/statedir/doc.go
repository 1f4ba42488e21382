// Package statedir is the folder of a migration on this machine: the copy of the journal, the evidence, and which plan
// was approved.
package statedir
