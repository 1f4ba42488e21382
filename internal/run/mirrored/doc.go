// Package mirrored carries out plans of the strategy mirror: it does their actions, each with the package that knows
// how, and evaluates their gates. It needs both clusters and the zones, and no terminal.
package mirrored
