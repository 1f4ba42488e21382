package path

import "time"

// ReportEvery keeps the regular reports of a whole cluster at 25 a second or fewer, half of what a run may write by
// default, up to 500 nodes: every second with few nodes, every 20 s with 500. In a larger cluster they come as often,
// since evidence must not get older, so 5,000 nodes write 250 a second. A report costs the API server 6 ms, or 50 ms if
// many paths lose probes (docs/results.md), which starting pods may need. What is more than a count is told sooner
// (News), and gates ask for the reports that they need (Asks).
func ReportEvery(nodes int) time.Duration {
	return min(max(time.Second, time.Duration(nodes)*(time.Second/regularReports)), seldomReports)
}

// ComparedEvery is the interval in a plan whose gates compare nodes: each report is a sample of the comparison.
func ComparedEvery(nodes int) time.Duration { return min(ReportEvery(nodes), seldomCompared) }

const (
	// regularReports is how many regular reports all nodes write in a second at most, as long as that is often enough.
	regularReports = 25
	// The longest intervals.
	seldomReports  = 20 * time.Second
	seldomCompared = 10 * time.Second
)

// newsEvery is the longest time between two reports with news.
const newsEvery = 10 * time.Second

// News is the time after which a node whose regular reports have an interval has told what is more than a count: a
// loss, a leak, a stall, a restart, another plan, the first results of a path. It looks for news every second, and
// tells them then, unless it has told other news within this time.
func News(every time.Duration) time.Duration { return max(time.Second, min(every/2, newsEvery)) }

// FullEvery is the longest time between two reports of a node in full: one in 60, or every five minutes. The round
// trips of paths without losses are as old as that.
func FullEvery(nodes int) time.Duration { return min(60*ReportEvery(nodes), 5*time.Minute) }

// AskedEvery is the time over which nodes spread their answers when a gate asks some of them, or all. It keeps the
// answers at 200 a second, and the time of all at longestAsked, which more than 2,000 nodes take. An answer takes the
// place of a regular report.
func AskedEvery(nodes, asked int) time.Duration {
	each := min(answerEach, longestAsked/time.Duration(max(nodes, 1)))
	return max(time.Second/2, time.Duration(asked)*each)
}

// answerEach is the time between two answers, and longestAsked the longest over which those of all nodes are spread.
const (
	answerEach   = time.Second / 200
	longestAsked = 10 * time.Second
)

// asksFrom is the smallest number of nodes of a cluster in which gates ask questions: in a smaller one, all nodes
// report every two seconds or more often anyway.
const asksFrom = 50

// Asks reports whether gates ask nodes for a report, in a cluster of so many nodes.
func Asks(nodes int) bool { return nodes >= asksFrom }
