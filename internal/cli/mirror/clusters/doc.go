// Package clusters is what the commands about a mirror share: the original and the mirror, as their flags name
// them.
package clusters
