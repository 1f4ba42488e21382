// Package wire has the protocol between the servers and the drivers of the workload.
package wire

// Leaving is the header with which an HTTP server that is about to end answers; it says so next to
// "Connection: close" because a member of a set is asked by name and no load balancer routes around it.
const Leaving = "X-Leaving"

// A stream is lines in both directions. The server greets with Hello, or with GoAway if it is about to
// end; it repeats every line that it is sent, in order; and it sends GoAway once when it is told to
// end, after which it goes on repeating until the client hangs up or its grace is over.
const (
	Hello  = "HELLO"
	GoAway = "GOAWAY"
)
