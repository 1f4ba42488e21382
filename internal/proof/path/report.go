package path

import "time"

// ReportEvery keeps the reports of a whole cluster at 50 a second or fewer: every second with few nodes, every ten
// seconds with many. Each report costs the API server about 30 ms, which starting pods may need. Agents report four
// times as often while a plan is new.
func ReportEvery(nodes int) time.Duration {
	return min(max(time.Second, time.Duration(nodes)*20*time.Millisecond), 10*time.Second)
}
