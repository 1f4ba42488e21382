// Package clusters is shared by the commands about a mirror: it connects to the original and the mirror, as their flags
// name them.
package clusters
