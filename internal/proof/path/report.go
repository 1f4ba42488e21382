package path

import "time"

// ReportEvery keeps the reports of a whole cluster at 50 a second or fewer, but has one every second of few nodes and
// every ten seconds of many. Each costs the API server some 30 ms, which pods that start may need; agents report four
// times as often while a plan is new.
func ReportEvery(nodes int) time.Duration {
	return min(max(time.Second, time.Duration(nodes)*20*time.Millisecond), 10*time.Second)
}
