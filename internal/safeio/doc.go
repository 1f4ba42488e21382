// Package safeio reads input from outside and writes output for people: files and text that are bounded, escaped,
// signed, hashed, and written completely or not at all.
//
// Belongs here: small packages that know nothing of clusters, and guard a boundary of the program: bounded
// (YAML and JSON within limits), infile and outfile (files of the user's), printable (no control
// characters), shell (quotes and splits the words of a command line), signed (SSH signatures), canonical (one
// form of JSON, and its hash), fault (where in an input an error is),
// group (programs in process groups of their own).
//
// Does not belong here: what a file means. Snapshots and manifests are read in cluster, flag sets in flags,
// plans in change.
//
// Door: bounded, canonical, fault, group, infile, outfile, printable, shell, signed.
// Hands: group, infile, outfile, signed.
package safeio
