// Package planfile is the file of a plan: written, read, signed, and held against who must have signed it.
package planfile
