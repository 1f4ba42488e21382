// Package mirrored carries plans of the strategy mirror out: it does what they say, each by the package whose matter it
// is, and asks their gates. It needs both clusters and the zones, and no terminal.
package mirrored
