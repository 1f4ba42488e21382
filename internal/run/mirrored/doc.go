// Package mirrored carries out plans of the strategy mirror: it does their actions, each with the package
// for it, and evaluates their gates. It needs both clusters and the zones, and no terminal.
package mirrored
