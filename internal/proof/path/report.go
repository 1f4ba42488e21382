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

// AskedEvery is the time over which nodes spread their answers when a gate asks some of them, or all. It keeps the
// answers at 200 a second, or at as many as the regular reports of the cluster are, where those are more (from 2,000
// nodes on). An answer takes the place of a regular report, so the average hardly grows.
func AskedEvery(nodes, asked int) time.Duration {
	each := min(answerEach, ReportEvery(nodes)/time.Duration(max(nodes, 1)))
	return max(time.Second/2, time.Duration(asked)*each)
}

// answerEach is the least time between two answers.
const answerEach = time.Second / 200

// asksFrom is the smallest number of nodes of a cluster in which gates ask questions: in a smaller one, all nodes
// report every two seconds or more often anyway.
const asksFrom = 100

// Asks reports whether gates ask nodes for a report, in a cluster of so many nodes.
func Asks(nodes int) bool { return nodes >= asksFrom }
