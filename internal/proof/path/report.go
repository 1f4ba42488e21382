package path

import "time"

// ReportEvery keeps the reports of a whole cluster at 50 a second or fewer: every second with few nodes, every ten
// seconds with many. A report costs the API server 6 ms, or 50 ms if many paths lose probes (docs/results.md), which
// starting pods may need. Agents report four times as often while a plan is new.
func ReportEvery(nodes int) time.Duration {
	return min(max(time.Second, time.Duration(nodes)*20*time.Millisecond), 10*time.Second)
}

// FullEvery is the longest time between two reports of a node in full: one in 60, or every five minutes. The round
// trips of paths without losses are as old as that.
func FullEvery(nodes int) time.Duration { return min(60*ReportEvery(nodes), 5*time.Minute) }

// AskedEvery is the time between two reports of nodes that a gate has told to report at once. It keeps the reports
// of so many nodes at 100 a second or fewer, for the few seconds that the gate takes.
func AskedEvery(nodes int) time.Duration {
	return max(time.Second, time.Duration(nodes)*10*time.Millisecond)
}

// Asks reports whether a gate tells nodes to report at once: in a cluster of so many nodes, and with so many to be
// told, their reports come often enough otherwise.
func Asks(nodes, told int) bool { return 2*AskedEvery(told) <= ReportEvery(nodes) }
