// Package planfile writes, reads and signs the file of a plan, and checks its signatures.
package planfile
