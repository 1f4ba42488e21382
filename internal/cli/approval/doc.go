// Package approval records which plan was approved on this machine, and makes sure that no other plan from the
// cluster is run.
package approval
